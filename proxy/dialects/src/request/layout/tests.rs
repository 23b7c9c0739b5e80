use proptest::prelude::*;
use serde_json::{Map, value::RawValue};

use super::*;

fn read(text: &str) -> Result<Layout, RequestError> {
    Layout::parse(Api::Chat, text, &KnownValues::default())
}

#[test]
fn finds_the_parts_and_keeps_their_bytes() {
    let raw = r#" { "model" : "m", "messages" : [ {"role":"user"} , {"content":null,"role":"x"} ] , "n":1e2 }"#;
    let layout = read(raw).unwrap();
    assert_eq!(&raw[..layout.open], " {");
    let members = layout.members.iter();
    let members: Vec<_> = members
        .map(|it| (&raw[it.whole.clone()], &raw[it.value.clone()]))
        .collect();
    let list = r#"[ {"role":"user"} , {"content":null,"role":"x"} ]"#;
    assert_eq!(members[0], (r#""model" : "m""#, r#""m""#));
    assert_eq!(members[1], (&*format!(r#""messages" : {list}"#), list));
    assert_eq!(members[2], (r#""n":1e2"#, "1e2"));
    let items = layout.items.unwrap().into_iter();
    let items: Vec<_> = items.map(|it| &raw[it.whole]).collect();
    assert_eq!(
        items,
        [r#"{"role":"user"}"#, r#"{"content":null,"role":"x"}"#]
    );
}

#[test]
fn the_last_of_two_names_counts_however_it_is_escaped() {
    let raw = r#"{"model":"a","mod\u0065l":"b","messages":[{}],"messages":[ ]}"#;
    let layout = read(raw).unwrap();
    let value = layout.member("model").unwrap().value.clone();
    assert_eq!(&raw[value], "\"b\"");
    assert_eq!(layout.items, Some(Vec::new()));
    let value = layout.member("messages").unwrap().value.clone();
    assert_eq!(&raw[value], "[ ]");
    let gone = read(r#"{"messages":[{}],"messages":1}"#).unwrap();
    assert_eq!(gone.items, None);
}

#[test]
fn no_nesting_is_too_deep() {
    for open in ["[", r#"{"a":"#] {
        let close = if open == "[" { "]" } else { "}" };
        let nested = [open, "0", close].map(|it| it.repeat(if it == "0" { 1 } else { 1_000_000 }));
        let raw = format!(
            r#"{{"messages":[{{"role":"user","content":{}}}]}}"#,
            nested.concat()
        );
        let layout = read(&raw).unwrap();
        assert_eq!(layout.items.unwrap().len(), 1);
        read(&raw[..raw.len() / 2]).unwrap_err();
    }
}

#[test]
fn what_is_wrong_is_named_without_a_word_of_it() {
    let message = |text: &str| read(text).unwrap_err().to_string();
    insta::assert_snapshot!(message("[1]"), @"the request body is no JSON object: it is an array");
    insta::assert_snapshot!(message(&format!("\"{}\"", "x".repeat(1_000))), @"the request body is no JSON object: it is a string");
    insta::assert_snapshot!(message(&"x".repeat(1_000)), @"the request body is no JSON object: expected value at line 1 column 1");
    insta::assert_snapshot!(message(""), @"the request body is no JSON object: EOF while parsing a value at line 1 column 0");
    insta::assert_snapshot!(message(r#"{"a":01}"#), @"the request body is no JSON object: invalid number at line 1 column 7");
    insta::assert_snapshot!(message(r#"{"a":1} x"#), @"the request body is no JSON object: trailing characters at line 1 column 9");
    insta::assert_snapshot!(message(r#"{"a":"\u12"}"#), @"the request body is no JSON object: invalid escape at line 1 column 12");
    insta::assert_snapshot!(message(r#"{"messages": [1,}"#), @"the request body is no JSON object: expected value at line 1 column 17");
    insta::assert_snapshot!(message(r#"{"messages" [1]}"#), @"the request body is no JSON object: expected `:` at line 1 column 13");
}

#[test]
fn a_half_surrogate_pair_may_stand_anywhere() {
    let raw = r#"{"\ud83d":"\ude00","messages":[{"\ud83d":1,"content":"\ud83d"}]}"#;
    assert_eq!(read(raw).unwrap().members[0].name, "\u{fffd}");
}

proptest! {
    /// The texts are nearly JSON, and both parsers must agree on which are valid. serde_json's limits on values
    /// (numbers beyond f64, lone surrogates) are not in the alphabet.
    #[test]
    fn agrees_with_serde_json_on_what_is_json(
        text in r#"\{("[ab\\n]{0,2}"[: ]|[\[\]{},: 0-9.e-]|true|null|"messages":\[){0,12}\}?"#,
    ) {
        let by_serde = serde_json::from_str::<Map<String, serde_json::Value>>(&text);
        let layout = read(&text);
        prop_assert_eq!(layout.is_ok(), by_serde.is_ok(), "{}", text);
        for member in layout.iter().flat_map(|it| &it.members) {
            prop_assert!(serde_json::from_str::<&RawValue>(&text[member.value.clone()]).is_ok());
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in any::<String>(), json in "[{}\\[\\]\":,a]{0,30}") {
        let _ = read(&text);
        let _ = read(&format!("{{\"messages\":[{{{json}"));
        let _ = read(&format!("{{\"messages\"{json}"));
    }
}
