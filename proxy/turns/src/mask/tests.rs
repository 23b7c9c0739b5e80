use serde_json::json;

use super::*;

fn mask() -> Mask {
    Mask::new(true, &[]).unwrap()
}

fn masked(text: &str) -> String {
    mask().text(text).unwrap_or_else(|| text.to_owned())
}

/// Returns one secret of each known shape. They are assembled from pieces, so that no scanner treats this file as a
/// leak.
pub(crate) fn secrets() -> Vec<String> {
    let keys = [
        ["sk-", "a1B2c3D4e5F6g7H8i9J0"],
        ["sk-ant-api03-", "a1B2c3D4_e5F6-g7H8i9J0"],
        ["sk-proj-", "a1B2c3D4e5F6g7H8i9J0"],
        ["ghp_", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6"],
        ["github_pat_", "11ABCDEFG0a1B2c3D4e5F6_g7H8i9J0"],
        ["AKIA", "IOSFODNN7EXAMPL3"],
        ["xoxb-", "123456789012-a1B2c3D4e5"],
        ["xoxp-", "123456789012-a1B2c3D4e5"],
        ["AIza", "SyA1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6"],
        ["eyJhbGciOiJIUzI1NiJ9.", "eyJzdWIiOiIxMjM0In0.s1gn-ature_9"],
        ["123456789:AA", "H1a2B3c4D5e6F7g8H9i0J1k2L3m4N5o6"],
    ];
    keys.map(|pieces| pieces.concat()).into()
}

#[test]
fn every_known_shape_is_found_wherever_it_stands() {
    for secret in secrets() {
        for (before, after) in [
            ("", ""),
            ("my key is ", ", keep it"),
            ("密钥是", "，别说出去"),
            ("{\"key\":\"", "\"}"),
            (r#"{\"key\":\"x\n"#, r#"\"}"#),
            ("KEY=", "\n"),
            ("https://api.example/v1?k=", "&x=1"),
            ("Authorization: Bearer ", ""),
        ] {
            let text = format!("{before}{secret}{after}");
            let shown = masked(&text);
            assert!(!shown.contains(&secret[4..]), "{text} -> {shown}");
            assert!(shown.contains("[masked: "), "{shown}");
            assert_eq!(masked(&shown), shown, "masked twice");
            assert_eq!(masked(&text), shown, "the same each time");
        }
    }
}

#[test]
fn of_each_text_the_secrets_are_masked_and_no_more() {
    let key = ["sk-", "a1B2c3D4e5F6g7H8i9J0"].concat();
    let rows = include_str!("texts.tsv")
        .lines()
        .filter(|row| !row.starts_with('#'));
    let mut n_rows = 0;
    for row in rows {
        let (text, shown) = row.split_once('\t').unwrap_or((row, row));
        let text = text.replace("{key}", &key);
        assert_eq!(mask().text(&text).is_some(), text != shown, "{row}");
        assert_eq!(masked(&text), shown);
        assert_eq!(masked(shown), shown, "masked twice");
        n_rows += 1;
    }
    assert_eq!(n_rows, 40);
}

#[test]
fn a_private_key_goes_whole_and_what_is_behind_it_stays() {
    let body = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7\nVJTUt9Us8cKj\n";
    let begin = ["-----BEGIN RSA ", "PRIVATE KEY-----\n"].concat();
    let end = ["-----END RSA ", "PRIVATE KEY-----"].concat();
    let whole = format!("here: {begin}{body}{end}\nWhat is this?");
    assert_eq!(masked(&whole), "here: [masked: private key]\nWhat is this?");
    let escaped = whole.replace('\n', r"\n");
    assert_eq!(
        masked(&escaped),
        r"here: [masked: private key]\nWhat is this?"
    );
    let cut = masked(&format!("{begin}{body}"));
    assert_eq!(cut, "[masked: private key]");
}

#[test]
fn values_are_masked_in_every_place() {
    let key = ["sk-", "a1B2c3D4e5F6g7H8i9J0"].concat();
    let mut value = json!({
        "content": [{"text": format!("it is {key}")}, "plain"],
        "tool_calls": [{"function": {"arguments": json!({"password": "abcd", "k": key}).to_string()}}],
        "input": {"password": "abcd", "api_key": "a1b2c3d4e5f6g7h8", "password_hint": 7, "n": "password"},
        format!("x {key}"): 1,
    });
    assert!(mask().value(&mut value));
    let shown = value.to_string();
    assert!(
        !shown.contains("a1B2") && !shown.contains("abcd") && !shown.contains("a1b2"),
        "{shown}"
    );
    assert!(
        shown.contains("\"plain\"") && shown.contains("\"n\":\"password\""),
        "{shown}"
    );
    let again = value.clone();
    assert!(!mask().value(&mut value), "{value}");
    assert_eq!(value, again);
}

#[test]
fn own_patterns_are_masked_and_bad_ones_refused() {
    let own = Mask::new(false, &["ACME-[0-9]+".to_owned()]).unwrap();
    assert_eq!(
        own.text("ticket ACME-12, password=x9yz").unwrap(),
        "ticket [masked], password=x9yz"
    );
    for (pattern, why) in [
        ("(", "unclosed group"),
        ("x*", "matches where nothing stands"),
    ] {
        let error = Mask::new(true, &[pattern.to_owned()])
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("turns.mask: ") && error.contains(why),
            "{error}"
        );
    }
}

#[test]
fn every_shape_has_its_literals() {
    for text in [
        "x-----BEGIN PRIVATE KEY-----",
        "EyJ",
        "a SK-b",
        "BASIC x",
        "a://b",
        "你的密码",
    ] {
        assert_ne!(LITERALS.found_in(text), [false; 6], "{text}");
    }
    assert_eq!(
        LITERALS.found_in("What is the capital of France?"),
        [false; 6]
    );
}
