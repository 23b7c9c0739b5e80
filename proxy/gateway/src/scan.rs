//! Where things stand in a chat request: one validating pass over the raw JSON, no value built.
//!
//! A request is edited by its bytes, so that everything else in it stays as the client wrote it: key
//! order, numbers, escapes, spaces, unknown fields. This finds the spans to edit, in the shapes of
//! all three chat APIs. Of keys that occur twice the last counts, as in JSON parsers.

mod scanner;
pub(crate) mod text;

use std::ops::Range;

use metaclaw_dialects::Api;

use self::scanner::Scanner;

/// The deepest nesting that is read, the request's own object included.
pub(crate) const MAX_DEPTH: usize = 128;

/// A piece of the raw bytes.
pub(crate) type Span = Range<usize>;

/// Why the bytes are no JSON object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ScanError {
    /// A byte that cannot stand there.
    #[error("byte {at}: expected {expected}")]
    Syntax {
        /// Where, from 0.
        at: usize,
        /// What could have stood there.
        expected: &'static str,
    },
    /// Deeper than [`MAX_DEPTH`].
    #[error("byte {at}: nested deeper than {MAX_DEPTH} levels")]
    TooDeep {
        /// Where, from 0.
        at: usize,
    },
}

/// Where the parts of a chat request stand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Right after the opening brace.
    pub open: usize,
    /// The members, in order, duplicates included.
    pub members: Vec<Member>,
    /// The conversation: the last member of that name, if it is an array.
    pub items: Option<Items>,
}

/// One `"key": value` of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// The key, unescaped.
    pub key: String,
    /// From the key's opening quote to the value's end.
    pub whole: Span,
    /// The value.
    pub value: Span,
}

/// An array of messages, or of what stands beside messages in the Responses API.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Items {
    /// The array with its brackets.
    pub whole: Span,
    /// Its elements.
    pub each: Vec<Item>,
}

/// One element of the conversation, and the values of those members that tell what was said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Item {
    /// The element.
    pub whole: Span,
    /// `role`
    pub role: Option<Span>,
    /// `content`
    pub content: Option<Span>,
    /// `type`, as the Responses API has it.
    pub kind: Option<Span>,
    /// `output`: what a tool returned, in the Responses API.
    pub output: Option<Span>,
}

/// The member that holds the conversation.
pub(crate) const fn conversation(api: Api) -> &'static str {
    match api {
        Api::Chat | Api::Messages => "messages",
        Api::Responses => "input",
    }
}

/// Finds the parts of a request.
///
/// # Errors
///
/// [`ScanError`] unless `raw` is one JSON object and nothing else.
pub(crate) fn scan(raw: &[u8], api: Api) -> Result<Layout, ScanError> {
    if let Err(error) = std::str::from_utf8(raw) {
        let (at, expected) = (error.valid_up_to(), "UTF-8");
        return Err(ScanError::Syntax { at, expected });
    }
    let mut scanner = Scanner { raw, at: 0 };
    scanner.space();
    let mut layout = Layout {
        open: scanner.at + 1,
        ..Layout::default()
    };
    scanner.object(1, |scanner, quoted| {
        let key = scanner.key(&quoted);
        let begin = scanner.at;
        if key == conversation(api) {
            // Whatever this one is, an earlier one does not count any more.
            layout.items = items(scanner)?;
        } else {
            scanner.value(2)?;
        }
        layout.members.push(Member {
            key: key.into_owned(),
            whole: quoted.start..scanner.at,
            value: begin..scanner.at,
        });
        Ok(())
    })?;
    scanner.space();
    if scanner.at == raw.len() {
        Ok(layout)
    } else {
        Err(scanner.expected("the end of the request"))
    }
}

/// The conversation with its elements, if it is an array.
fn items(scanner: &mut Scanner<'_>) -> Result<Option<Items>, ScanError> {
    if scanner.peek() != Some(b'[') {
        scanner.value(2)?;
        return Ok(None);
    }
    let start = scanner.at;
    let mut each = Vec::new();
    scanner.array(2, |scanner| {
        each.push(item(scanner)?);
        Ok(())
    })?;
    let whole = start..scanner.at;
    Ok(Some(Items { whole, each }))
}

fn item(scanner: &mut Scanner<'_>) -> Result<Item, ScanError> {
    let mut item = Item::default();
    let start = scanner.at;
    if scanner.peek() == Some(b'{') {
        scanner.object(3, |scanner, quoted| {
            let key = scanner.key(&quoted);
            let span = Some(scanner.spanned(4)?);
            match &*key {
                "role" => item.role = span,
                "content" => item.content = span,
                "type" => item.kind = span,
                "output" => item.output = span,
                _ => {}
            }
            Ok(())
        })?;
    } else {
        scanner.value(3)?;
    }
    item.whole = start..scanner.at;
    Ok(item)
}

/// The values of an array that has been scanned before; none where there is no array.
pub(crate) fn elements(raw: &[u8], array: &Span) -> Vec<Span> {
    let mut found = Vec::new();
    let mut scanner = Scanner::within(raw, array);
    scanner.space();
    // What was read once without an error is read so again.
    let _ = scanner.array(1, |scanner| {
        found.push(scanner.spanned(2)?);
        Ok(())
    });
    found
}

/// The value of one member of an object that has been scanned before; of several the last.
pub(crate) fn member(raw: &[u8], object: &Span, name: &str) -> Option<Span> {
    let mut found = None;
    let mut scanner = Scanner::within(raw, object);
    scanner.space();
    // As in `elements`.
    let _ = scanner.object(1, |scanner, quoted| {
        let is_it = scanner.key(&quoted) == name;
        let value = scanner.spanned(2)?;
        if is_it {
            found = Some(value);
        }
        Ok(())
    });
    found
}

/// Whether a string, given where it stands, says just this.
pub(crate) fn says(raw: &[u8], span: Option<&Span>, text: &str) -> bool {
    span.is_some_and(|span| is_string(raw, span) && text::read(&raw[span.clone()]) == text)
}

/// Whether a value, given where it stands, is a string.
pub(crate) fn is_string(raw: &[u8], span: &Span) -> bool {
    raw.get(span.start) == Some(&b'"')
}

// === impl Layout ===

impl Layout {
    /// The member of that name that counts.
    pub(crate) fn member(&self, key: &str) -> Option<&Member> {
        self.members.iter().rev().find(|member| member.key == key)
    }

    /// The elements of the conversation.
    pub(crate) fn each(&self) -> &[Item] {
        self.items.as_ref().map_or(&[], |items| &items.each)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn scan(raw: &[u8]) -> Result<Layout, ScanError> {
        super::scan(raw, Api::Chat)
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

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = scan(&bytes);
            let _ = scan(&[b"{\"messages\":[{", &bytes[..]].concat());
        }
    }
}
