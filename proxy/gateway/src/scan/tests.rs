use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn scan(raw: &[u8]) -> Result<Layout, ScanError> {
    super::scan(raw, Api::Chat, &Seen::default())
}

fn at<'a>(raw: &'a str, span: &Span) -> &'a str {
    &raw[span.clone()]
}

#[test]
fn finds_the_parts_and_keeps_their_bytes() {
    let raw = r#" { "model" : "m", "messages":[{"role":"user","content":"a\"}"} , {"content":null,"role":"x"}], "n":1e2 }"#;
    let layout = scan(raw.as_bytes()).unwrap();
    let keys: Vec<_> = layout
        .members
        .iter()
        .map(|member| at(raw, &member.whole))
        .collect();
    assert_eq!((keys[0], keys[2]), (r#""model" : "m""#, r#""n":1e2"#));
    let messages = layout.items.unwrap();
    assert_eq!(
        at(raw, messages.each[0].content.as_ref().unwrap()),
        r#""a\"}""#
    );
    assert_eq!(at(raw, messages.each[1].role.as_ref().unwrap()), "\"x\"");
}

#[test]
fn the_last_of_two_keys_counts_however_it_is_escaped() {
    let raw =
        r#"{"model":"a","mod\u0065l":"b","messages":[{"role":"a","role":"b"}],"messages":[]}"#;
    let layout = scan(raw.as_bytes()).unwrap();
    assert_eq!(at(raw, &layout.member("model").unwrap().value), "\"b\"");
    assert_eq!(layout.items.unwrap().each, []);
    let gone = scan(br#"{"messages":[{}],"messages":1}"#).unwrap();
    assert_eq!(gone.items, None);
}

#[test]
fn depth_is_bounded_and_said() {
    let nested = |n: usize| format!(r#"{{"a":{}{}}}"#, "[".repeat(n), "]".repeat(n));
    assert!(scan(nested(MAX_DEPTH - 1).as_bytes()).is_ok());
    let error = scan(nested(MAX_DEPTH).as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "byte 132: nested deeper than 128 levels");
    let deep = format!(r#"{{"a":{}"#, r#"{"a":"#.repeat(100_000));
    assert!(matches!(
        scan(deep.as_bytes()),
        Err(ScanError::TooDeep { .. })
    ));
}

#[test]
fn what_is_wrong_is_named() {
    let message = |raw: &[u8]| scan(raw).unwrap_err().to_string();
    assert_eq!(message(b"[1]"), "byte 0: expected an object: {");
    assert_eq!(
        message(b"{\"a\":01}"),
        "byte 6: expected a comma or the object's end"
    );
    assert_eq!(
        message(b"{\"a\":1} x"),
        "byte 8: expected the end of the request"
    );
    assert_eq!(message(b"{\"a\":\"\xff\"}"), "byte 6: expected UTF-8");
    assert_eq!(
        message(b"{\"a\":\"\\u12\"}"),
        "byte 7: expected four hexadecimal digits after \\u"
    );
}

type Parts = (usize, Vec<Member>, Option<Items>);

/// What a reader of this one request alone would find, and one who has seen others.
fn both(raw: &[u8], seen: &Seen) -> [Result<Parts, ScanError>; 2] {
    [&Seen::default(), seen].map(|seen| {
        let layout = super::scan(raw, Api::Chat, seen)?;
        Ok((layout.open, layout.members, layout.items))
    })
}

#[test]
fn what_came_before_is_known_again_wherever_it_stands() {
    let seen = Seen::default();
    let long = |text: &str| {
        format!(
            r#"{{"role":"system","content":"{}{text}"}}"#,
            r"é\n".repeat(500)
        )
    };
    let tools = format!(r#"[{{"name":"{}"}}]"#, "t".repeat(2_000));
    let request = |first: &str, question: &str| {
        let asked = format!(r#"{{"content":"{question}","role":"user"}}"#);
        format!(r#"{{"messages":[{first},{asked}],"tools":{tools}}}"#)
    };
    let mut before: Vec<Arc<SeenValue>> = Vec::new();
    for (first, question) in [("a", "?"), ("b", "?"), ("a", "and?"), ("b", "and then?")] {
        let raw = request(&long(first), question);
        let [alone, after_others] = both(raw.as_bytes(), &seen);
        assert_eq!(alone.unwrap(), after_others.unwrap());
        let layout = super::scan(raw.as_bytes(), Api::Chat, &seen).unwrap();
        let item = (&layout.each()[0].whole, question != "?");
        let tools = (&layout.members[1].value, !before.is_empty());
        for (span, was_seen) in [item, tools] {
            let long = layout.long(span.start).unwrap();
            assert_eq!(before.iter().any(|it| Arc::ptr_eq(it, long)), was_seen);
            before.push(Arc::clone(long));
        }
        let conversation = layout.member("messages").unwrap();
        assert!(
            layout.long(conversation.value.start).is_none(),
            "it changes"
        );
        assert!(layout.long(layout.each()[1].whole.start).is_none(), "short");
    }
}

#[test]
fn what_was_not_seen_of_late_is_forgotten() {
    let seen = Seen::default();
    let scan = |n: usize| {
        let raw = format!(r#"{{"tools":["{n:06}{}"]}}"#, "x".repeat(100_000));
        let layout = super::scan(raw.as_bytes(), Api::Chat, &seen).unwrap();
        Arc::clone(layout.long(layout.members[0].value.start).unwrap())
    };
    let first = scan(0);
    let (mut used, forgotten) = (first.clone(), scan(1));
    for n in 2..200 {
        scan(n);
        let now = scan(0);
        assert!(Arc::ptr_eq(&now, &used) || n > 40, "forgotten at {n}");
        used = now;
    }
    assert!(!Arc::ptr_eq(&scan(1), &forgotten));
    let n_bytes = seen.n_bytes();
    assert!((100_000..4 << 20).contains(&n_bytes), "{n_bytes}");
}

#[test]
fn a_request_that_is_made_to_miss_is_read_all_the_same() {
    let seen = Seen::default();
    let alike = |n: usize| format!(r#"["{}{n:04}"]"#, "x".repeat(2_000));
    for n in 0..16 {
        let raw = format!(r#"{{"tools":{}}}"#, alike(n));
        super::scan(raw.as_bytes(), Api::Chat, &seen).unwrap();
    }
    let members: Vec<String> = (100..200)
        .map(|n| format!(r#""{n}":{}"#, alike(n)))
        .collect();
    let raw = format!("{{{}}}", members.join(","));
    let [alone, after_others] = both(raw.as_bytes(), &seen);
    assert_eq!(alone.unwrap(), after_others.unwrap());
}

#[test]
fn what_begins_like_something_seen_is_read_to_its_own_end() {
    let seen = Seen::default();
    let digits = "1".repeat(2_000);
    for raw in [
        format!(r#"{{"n":{digits}}}"#),
        format!(r#"{{"n":{digits}1}}"#),
        format!(r#"{{"n":"{digits}"}}"#),
        format!(r#"{{"n":"{digits}\""}}"#),
        format!(r#"{{"n":["{digits}"]}}"#),
        format!(r#"{{"n":["{digits}"}}"#),
        format!(r#"{{"n":"{digits}" x}}"#),
        format!(r#"{{"messages":["{digits}"]}}"#),
    ] {
        let [alone, after_others] = both(raw.as_bytes(), &seen);
        assert_eq!(alone, after_others, "{raw}");
    }
    let torn = [br#"{"n":""#, digits.as_bytes(), b"\",\"a\":\"\xff\"}"].concat();
    let [alone, after_others] = both(&torn, &seen);
    assert_eq!(
        alone.as_ref().unwrap_err().to_string(),
        "byte 2013: expected UTF-8"
    );
    assert_eq!(alone, after_others);
}

/// What long values consist of; those that begin alike differ late.
const VALUES: [(&str, &str, &str); 6] = [
    ("[\"", "x", "\"]"),
    ("{\"role\":\"user\",\"content\":\"", "x", "\"}"),
    (
        "{\"role\":\"user\",\"content\":\"",
        "x",
        "\",\"role\":\"tool\"}",
    ),
    ("{\"role\":\"user\",\"content\":\"", "x", "\",\"a\":[{}]}"),
    ("{\"content\":[\"", "\\n\\u00e9", "\"]}"),
    ("\"", "é", "\""),
];

fn value(index: usize) -> String {
    let (begin, middle, end) = VALUES[index];
    [begin, &middle.repeat(1_100), end].concat()
}

proptest! {
    /// Texts that are nearly JSON: both must agree on which are. serde_json's own limits (numbers
    /// beyond f64, lone surrogates) are not in the alphabet.
    #[test]
    fn agrees_with_serde_json_on_what_is_json(
        text in r#"\{("[ab\\n]{0,2}"[: ]|[\[\]{},: 0-9.e-]|true|null|"messages":\[){0,12}\}?"#,
    ) {
        let by_serde = serde_json::from_str::<serde_json::Map<String, Value>>(&text).is_ok();
        prop_assert_eq!(scan(text.as_bytes()).is_ok(), by_serde, "{}", text);
    }

    /// A request of a few values, most of them long, in any order and cut anywhere: each is read as if it
    /// were the first.
    #[test]
    fn a_request_is_read_alike_whatever_came_before(
        requests in proptest::collection::vec((proptest::collection::vec(0..VALUES.len(), 0..6), 0usize..3_000), 1..8),
    ) {
        let seen = Seen::default();
        for (values, cut) in requests {
            let values: Vec<String> = values.into_iter().map(value).collect();
            let raw = format!(r#"{{"messages":[{}],"tools":{}}}"#, values.join(","), value(0));
            let cut = &raw.as_bytes()[..raw.len().saturating_sub(cut)];
            for raw in [raw.as_bytes(), cut] {
                let [alone, after_others] = both(raw, &seen);
                prop_assert_eq!(alone, after_others);
            }
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = scan(&bytes);
        let _ = scan(&[b"{\"messages\":[{", &bytes[..]].concat());
    }
}
