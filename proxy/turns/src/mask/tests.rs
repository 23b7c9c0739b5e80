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
fn names_may_go_on() {
    for (text, shown) in [
        (
            "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI7K7MDENG",
            "AWS_SECRET_ACCESS_KEY=[masked: secret]",
        ),
        ("secretKey: 'a1b2c3d4e5f6'", "secretKey: '[masked: secret]'"),
        ("DB_PASSWORD_1=abcd", "DB_PASSWORD_1=[masked: password]"),
        (
            "tokenizer: Qwen2.5-tokenizer-v1",
            "tokenizer: Qwen2.5-tokenizer-v1",
        ),
    ] {
        assert_eq!(masked(text), shown);
    }
}

#[test]
fn what_stands_around_stays() {
    let key = ["sk-", "a1B2c3D4e5F6g7H8i9J0"].concat();
    for (text, shown) in [
        (
            format!("use {key}, then go"),
            "use [masked: api key], then go",
        ),
        (format!(r"a\n{key}\nb"), r"a\n[masked: api key]\nb"),
        (
            "password=hunter2&user=ann".to_owned(),
            "password=[masked: password]",
        ),
        (
            r#"{"password": "correcthorse", "n": 1}"#.to_owned(),
            r#"{"password": "[masked: password]", "n": 1}"#,
        ),
        (
            "密码是hunter2，记得改".to_owned(),
            "密码是[masked: password]，记得改",
        ),
        (
            "Passwort? The Password: Tr0ub4dor&3".to_owned(),
            "Passwort? The Password: [masked: password]",
        ),
        (
            "postgres://ann:s3cret@db/x".to_owned(),
            "postgres://ann:[masked: password]@db/x",
        ),
        (
            "Authorization: Basic dXNlcjpwYXNzd29yZDE=".to_owned(),
            "Authorization: Basic [masked: token]",
        ),
        (
            "client_secret = 'a1b2c3d4e5f6g7'".to_owned(),
            "client_secret = '[masked: secret]'",
        ),
        (
            "password=[masked: password]".to_owned(),
            "password=[masked: password]",
        ),
        (
            "my passphrase is \"correct horse staple\", ok?".to_owned(),
            "my passphrase is \"[masked: password]\", ok?",
        ),
    ] {
        assert_eq!(masked(&text), shown);
    }
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
fn secrets_in_back_ticks_are_masked_and_what_is_around_them_stays() {
    for (text, shown) in [
        (
            "The password is `hunter2`, keep it",
            "The password is `[masked: password]`, keep it",
        ),
        ("password: `Tr0ub4dor&3`", "password: `[masked: password]`"),
        ("密码是`open#sesame`。", "密码是`[masked: password]`。"),
        (
            "My passphrase is `correct horse staple`.",
            "My passphrase is `[masked: password]`.",
        ),
        (
            "run `mysql --password=hunter2`, then go",
            "run `mysql --password=[masked: password]`, then go",
        ),
        (
            "password: `hunter2 (not closed",
            "password: `[masked: password] (not closed",
        ),
        ("api_key: `a1b2c3d4e5f6g7`!", "api_key: `[masked: secret]`!"),
    ] {
        assert_eq!(masked(text), shown);
        assert_eq!(masked(shown), shown, "masked twice");
    }
}

#[test]
fn prose_and_code_stay_as_they_are() {
    for text in [
        "hash the password: `bcrypt, scrypt or argon2`",
        "hash the password: `bcrypt` or `argon2id`",
        "`password: string`, `password: required`",
        "password: `getpass.getpass()`",
        "the secret: `kubectl get secret db-1`",
        "密码：`bcrypt、scrypt`",
        "Forgot my password: how do I reset it?",
        "The password: required, at least 8 characters",
        "password = getpass.getpass()",
        "export PASSWORD=$DB_PASS",
        "token: string; secret: string",
        "max_tokens=4096",
        "a task-oriented-programming-language and risk-based-authentication-of-users",
        "Bearer authentication is required for this",
        "the basic configuration of everything",
        "https://example.com:8080/a@b",
        "the token budget is 4096, api_key: str = None",
        "eyJust kidding. sk-learn. AKIA. ghp_",
    ] {
        assert_eq!(mask().text(text), None);
    }
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
