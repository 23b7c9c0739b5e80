//! Where things stand in a chat request: one validating pass over the raw JSON, no value built.
//!
//! A request is edited by its bytes, so that everything else in it stays as the client wrote it: key
//! order, numbers, escapes, spaces, unknown fields. This finds the spans to edit. Of keys that occur
//! twice the last counts, as in JSON parsers.

use std::ops::Range;

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
    /// The elements of the last `messages` that is an array; `None` if there is none.
    pub messages: Option<Messages>,
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

/// The array of messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Messages {
    /// The array with its brackets.
    pub whole: Span,
    /// Its elements.
    pub each: Vec<MessageSpan>,
}

/// One element of `messages`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MessageSpan {
    /// The element.
    pub whole: Span,
    /// The value of its `role`.
    pub role: Option<Span>,
    /// The value of its `content`.
    pub content: Option<Span>,
}

/// Finds the parts of a request.
///
/// # Errors
///
/// [`ScanError`] unless `raw` is one JSON object and nothing else.
pub(crate) fn scan(raw: &[u8]) -> Result<Layout, ScanError> {
    let mut scanner = Scanner { raw, at: 0 };
    if let Err(error) = std::str::from_utf8(raw) {
        let (at, expected) = (error.valid_up_to(), "UTF-8");
        return Err(ScanError::Syntax { at, expected });
    }
    scanner.space();
    let mut layout = Layout {
        open: scanner.at + 1,
        ..Layout::default()
    };
    scanner.object(1, |scanner, quoted| {
        let key = scanner.key(&quoted);
        let begin = scanner.at;
        if key == "messages" {
            // Whatever this one is, an earlier one does not count any more.
            layout.messages = scanner.messages()?;
        } else {
            scanner.value(2)?;
        }
        layout.members.push(Member {
            key,
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

// === impl Layout ===

impl Layout {
    /// The member of that name that counts.
    pub(crate) fn member(&self, key: &str) -> Option<&Member> {
        self.members.iter().rev().find(|member| member.key == key)
    }
}

/// Reads JSON forwards; [`Scanner::at`] is always the next byte.
struct Scanner<'a> {
    raw: &'a [u8],
    at: usize,
}

// === impl Scanner ===

impl Scanner<'_> {
    fn expected(&self, expected: &'static str) -> ScanError {
        let at = self.at;
        ScanError::Syntax { at, expected }
    }

    fn peek(&self) -> Option<u8> {
        self.raw.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Goes past `byte` if it is next.
    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// Reads an object; `member` is called before each value with where its key stands, and must
    /// read the value.
    fn object(
        &mut self,
        depth: usize,
        mut member: impl FnMut(&mut Self, Span) -> Result<(), ScanError>,
    ) -> Result<(), ScanError> {
        if depth > MAX_DEPTH {
            return Err(ScanError::TooDeep { at: self.at });
        }
        if !self.take(b'{') {
            return Err(self.expected("an object: {"));
        }
        self.space();
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            let start = self.at;
            self.string()?;
            let key = start..self.at;
            self.space();
            if !self.take(b':') {
                return Err(self.expected("a colon"));
            }
            self.space();
            member(self, key)?;
            self.space();
            if self.take(b'}') {
                return Ok(());
            }
            if !self.take(b',') {
                return Err(self.expected("a comma or the object's end"));
            }
            self.space();
        }
    }

    /// Reads an array; `element` is called before each value and must read it.
    fn array(
        &mut self,
        depth: usize,
        mut element: impl FnMut(&mut Self) -> Result<(), ScanError>,
    ) -> Result<(), ScanError> {
        if depth > MAX_DEPTH {
            return Err(ScanError::TooDeep { at: self.at });
        }
        self.at += 1;
        self.space();
        if self.take(b']') {
            return Ok(());
        }
        loop {
            element(self)?;
            self.space();
            if self.take(b']') {
                return Ok(());
            }
            if !self.take(b',') {
                return Err(self.expected("a comma or the array's end"));
            }
            self.space();
        }
    }

    /// The value of `messages`, with its elements if it is an array.
    fn messages(&mut self) -> Result<Option<Messages>, ScanError> {
        if self.peek() != Some(b'[') {
            self.value(2)?;
            return Ok(None);
        }
        let start = self.at;
        let mut each = Vec::new();
        self.array(2, |scanner| {
            each.push(scanner.message()?);
            Ok(())
        })?;
        let whole = start..self.at;
        Ok(Some(Messages { whole, each }))
    }

    fn message(&mut self) -> Result<MessageSpan, ScanError> {
        let mut message = MessageSpan::default();
        let start = self.at;
        if self.peek() == Some(b'{') {
            self.object(3, |scanner, quoted| {
                let begin = scanner.at;
                scanner.value(4)?;
                let span = Some(begin..scanner.at);
                match scanner.key(&quoted).as_str() {
                    "role" => message.role = span,
                    "content" => message.content = span,
                    _ => {}
                }
                Ok(())
            })?;
        } else {
            self.value(3)?;
        }
        message.whole = start..self.at;
        Ok(message)
    }

    fn value(&mut self, depth: usize) -> Result<(), ScanError> {
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b'{') => self.object(depth, |scanner, _| scanner.value(depth + 1)),
            Some(b'[') => self.array(depth, |scanner| scanner.value(depth + 1)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            Some(_) | None => Err(self.expected("a value")),
        }
    }

    /// A key as a text. One that stands for none (a lone surrogate) is left as it was written.
    fn key(&self, span: &Span) -> String {
        let raw = &self.raw[span.clone()];
        let written = || String::from_utf8_lossy(&raw[1..raw.len() - 1]).into_owned();
        if raw.contains(&b'\\') {
            serde_json::from_slice(raw).unwrap_or_else(|_| written())
        } else {
            written()
        }
    }

    fn string(&mut self) -> Result<(), ScanError> {
        if !self.take(b'"') {
            return Err(self.expected("a string"));
        }
        loop {
            let plain = |b: &u8| !matches!(b, b'"' | b'\\' | 0..=0x1f);
            self.at += self.raw[self.at..].iter().take_while(|b| plain(b)).count();
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                Some(_) => return Err(self.expected("no control character in a string")),
                None => return Err(self.expected("the string's end")),
            }
        }
    }

    fn escape(&mut self) -> Result<(), ScanError> {
        self.at += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                let digits = self.raw.get(self.at + 1..self.at + 5).unwrap_or_default();
                if digits.len() < 4 || !digits.iter().all(u8::is_ascii_hexdigit) {
                    return Err(self.expected("four hexadecimal digits after \\u"));
                }
                self.at += 5;
            }
            Some(_) | None => return Err(self.expected("an escape")),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), ScanError> {
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), ScanError> {
        let rest = &self.raw[self.at..];
        let n_digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        self.at += n_digits;
        if n_digits == 0 {
            return Err(self.expected("a digit"));
        }
        Ok(())
    }

    fn word(&mut self, word: &'static str) -> Result<(), ScanError> {
        if !self.raw[self.at..].starts_with(word.as_bytes()) {
            return Err(self.expected("true, false or null"));
        }
        self.at += word.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

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
        let messages = layout.messages.unwrap();
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
        assert_eq!(layout.messages.unwrap().each, []);
        let gone = scan(br#"{"messages":[{}],"messages":1}"#).unwrap();
        assert_eq!(gone.messages, None);
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
