use super::*;

fn controls(tokens: &[AddedToken]) -> ControlTokens {
    ControlTokens::new((10..).zip(tokens.iter().cloned())).unwrap()
}

fn special(text: &str) -> AddedToken {
    AddedToken::from(text, true)
}

fn plain(text: &str) -> AddedToken {
    AddedToken::from(text, false)
}

#[test]
fn special_and_bracketed_tokens_control_and_words_do_not() {
    let controls = controls(&[
        special("<s>"),
        plain("<think>"),
        plain("    "),
        plain("[X]"),
        special("€"),
    ]);
    let are_controls = [10, 11, 12, 13, 14].map(|id| controls.contains(id));
    assert_eq!(are_controls, [true, true, false, true, false]);
}

#[test]
fn a_text_is_cut_as_tokenizers_cuts_it() {
    let swallows = special("<|end|>").lstrip(true).rstrip(true);
    let controls = controls(&[
        special("<s>"),
        special("<s><s>"),
        swallows,
        plain("<b>").single_word(true),
    ]);
    let cut = |text| {
        let parts = controls.split(text).into_iter();
        let shown = parts.map(|part| match part {
            Part::Text(text) => text.to_owned(),
            Part::Control(id) => id.to_string(),
        });
        shown.collect::<Vec<_>>().join(",")
    };
    assert_eq!(cut("a<s><s><s>b"), "a,11,10,b");
    assert_eq!(cut("a <|end|> \n <|end|>b"), "a,12,12,b");
    assert_eq!(cut("a<b> <b> x"), "a<b> ,13, x");
    assert_eq!((cut(""), cut("<s>")), (String::new(), "10".into()));
}

#[test]
fn a_token_is_broken_wherever_it_may_come_whole() {
    let controls = controls(&[special("<|end|>"), plain("<think>"), special("aa_")]);
    let breaks = |text, kind| controls.breaks(text, kind);
    assert_eq!(breaks("x <|end|> <|END|>", Kind::Text), [3, 11]);
    assert_eq!(breaks("aa_aa_", Kind::Word), [1, 4]);
    assert_eq!(breaks("<think> <|end|>", Kind::Said), [9]);
    assert_eq!(breaks("plain text", Kind::Text), [0_usize; 0]);
    // At the edges, the text beside it may be the rest of a token.
    assert_eq!(breaks("> quoted", Kind::Text), [0]);
    assert_eq!(breaks("END|> quoted", Kind::Text), [0]);
    assert_eq!(breaks("if a <", Kind::Text), [6]);
    assert_eq!(breaks("|end|", Kind::Text), [0]);
    // A part of each of two tokens is a part of neither.
    assert_eq!(breaks("\n<", Kind::Text), [2]);
    assert_eq!(breaks("think", Kind::Word), [0_usize; 0]);
    assert_eq!(breaks("", Kind::Text), [0_usize; 0]);
}

#[test]
fn a_mark_is_one_that_the_request_does_not_hold() {
    assert_eq!(free_mark(|_| false), Some('\u{F0000}'));
    assert_eq!(free_mark(|c| c < '\u{F0002}'), Some('\u{F0002}'));
    assert_eq!(free_mark(may_be_mark), None);
}
