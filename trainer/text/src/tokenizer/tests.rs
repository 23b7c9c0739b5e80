pub(crate) mod families;
mod injection;

use super::*;
use crate::testing::{SPECIAL, write_tiny_text};
use proptest::prelude::*;

fn tokenizer() -> ChatTokenizer {
    let dir = tempfile::tempdir().unwrap();
    write_tiny_text(dir.path()).unwrap();
    ChatTokenizer::load(dir.path()).unwrap()
}

#[test]
fn no_half_character_is_given_out_and_no_byte_is_lost() {
    let tokenizer = tokenizer();
    let ids = tokenizer.encode("é好🙂!").unwrap();
    assert_eq!(ids.len(), 2 + 3 + 4 + 1, "one id a byte");
    let mut decoder = tokenizer.stream_decoder();
    let pieces: Vec<String> = ids.iter().map(|&id| decoder.push(id)).collect();
    assert_eq!(pieces, ["", "é", "", "", "好", "", "", "", "🙂", "!"]);
    assert_eq!(decoder.finish(), "");
}

#[test]
fn a_broken_character_is_replaced_and_what_follows_is_kept() {
    let tokenizer = tokenizer();
    let mut decoder = tokenizer.stream_decoder();
    let pieces = [0xE5, u32::from(b'a'), 0xE5].map(|id| decoder.push(id));
    assert_eq!(pieces, ["", "\u{FFFD}a", ""]);
    assert_eq!(decoder.finish(), "\u{FFFD}");
    assert_eq!(decoder.finish(), "");
}

#[test]
fn special_tokens_are_read_and_left_out_or_written() {
    let tokenizer = tokenizer();
    let ids = tokenizer.encode("<|im_start|>a<|im_end|>").unwrap();
    assert_eq!(ids, [SPECIAL[1].1, 97, SPECIAL[2].1]);
    assert_eq!(tokenizer.decode(&ids), "a");
    assert_eq!(tokenizer.decode_special(&ids), "<|im_start|>a<|im_end|>");
    // Unknown ids have no text.
    assert_eq!(tokenizer.decode(&[97, 9999, 98]), "ab");
}

#[test]
fn sentencepiece_spelling_is_bytes_too() {
    assert_eq!(*decoder::metaspace("▁Paris"), *b" Paris");
    assert_eq!(*decoder::metaspace("<0x0A>"), *b"\n");
    assert_eq!(*decoder::metaspace("<0xZZ>"), *b"<0xZZ>");
}

#[test]
fn a_damaged_tokenizer_is_named() {
    let dir = tempfile::tempdir().unwrap();
    write_tiny_text(dir.path()).unwrap();
    let file = dir.path().join("tokenizer.json");
    std::fs::write(&file, "{\"model\": 1}").unwrap();
    let message = ChatTokenizer::load(dir.path()).unwrap_err().to_string();
    assert!(message.contains("tokenizer.json is damaged"), "{message}");
    std::fs::remove_file(&file).unwrap();
    let message = ChatTokenizer::load(dir.path()).unwrap_err().to_string();
    assert!(message.contains("cannot read"), "{message}");
}

proptest! {
    #[test]
    fn decoding_ids_one_by_one_is_decoding_their_bytes(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let tokenizer = tokenizer();
        let ids: Vec<u32> = bytes.iter().copied().map(u32::from).collect();
        prop_assert_eq!(tokenizer.decode(&ids), String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn only_regular_files_of_a_model_folder_are_read() {
    for name in [
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    ] {
        let dir = tempfile::tempdir().unwrap();
        write_tiny_text(dir.path()).unwrap();
        let file = dir.path().join(name);
        std::fs::remove_file(&file).ok();
        std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
        let error = ChatTokenizer::load(dir.path()).unwrap_err().to_string();
        let expected = format!("{}: it is no regular file", file.display());
        assert!(error.ends_with(&expected), "{error}");
    }
}

/// Gemma 4's marks of thinking and calls are special tokens, and what hands over to a tool ends a reply.
#[test]
fn a_reply_keeps_the_marks_of_thinking_and_calls() {
    let gemma = families::FAMILIES
        .iter()
        .find(|it| it.name == "gemma4")
        .unwrap();
    let tokenizer = gemma.load();
    let kept = "<|channel>thought\nhm<channel|><|tool_call>call:f{a:<|\"|>x<|\"|>}<tool_call|>";
    let ids = tokenizer
        .encode(&format!("<bos><|turn>{kept}<|tool_response><turn|><eos>"))
        .unwrap();
    assert_eq!(tokenizer.decode(&ids), kept);
    let mut decoder = tokenizer.stream_decoder();
    let pieces: String = ids.iter().map(|&id| decoder.push(id)).collect();
    assert_eq!(pieces + &decoder.finish(), kept);
    let id = |token: &str| tokenizer.encode(token).unwrap()[0];
    let ends = ["<eos>", "<turn|>", "<|tool_response>"].map(id);
    assert_eq!(tokenizer.end_ids(), ends);
    assert!(tokenizer.has_channels());
    for family in families::FAMILIES.iter().filter(|it| it.name != "gemma4") {
        let tokenizer = family.load();
        assert!(!tokenizer.has_channels(), "{}", family.name);
        assert!(tokenizer.end_ids().len() <= 2, "{}", family.name);
    }
}
