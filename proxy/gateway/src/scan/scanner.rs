//! Reads JSON forwards, checks it, builds nothing.

use std::borrow::Cow;

use super::{MAX_DEPTH, ScanError, Span, text};

/// A place in JSON text; [`Scanner::at`] is always the next byte.
pub(super) struct Scanner<'a> {
    pub(super) raw: &'a [u8],
    pub(super) at: usize,
}

// === impl Scanner ===

impl<'a> Scanner<'a> {
    /// Begins at a span of the text, and sees nothing beyond it.
    pub(super) fn within(raw: &'a [u8], span: &Span) -> Self {
        Self {
            raw: raw.get(..span.end).unwrap_or_default(),
            at: span.start,
        }
    }

    pub(super) fn expected(&self, expected: &'static str) -> ScanError {
        let at = self.at;
        ScanError::Syntax { at, expected }
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.raw.get(self.at).copied()
    }

    pub(super) fn space(&mut self) {
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
    pub(super) fn object(
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
    pub(super) fn array(
        &mut self,
        depth: usize,
        mut element: impl FnMut(&mut Self) -> Result<(), ScanError>,
    ) -> Result<(), ScanError> {
        if depth > MAX_DEPTH {
            return Err(ScanError::TooDeep { at: self.at });
        }
        if !self.take(b'[') {
            return Err(self.expected("an array: ["));
        }
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

    pub(super) fn value(&mut self, depth: usize) -> Result<(), ScanError> {
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

    /// Reads a value and says where it stands.
    pub(super) fn spanned(&mut self, depth: usize) -> Result<Span, ScanError> {
        let start = self.at;
        self.value(depth)?;
        Ok(start..self.at)
    }

    /// A key as a text.
    pub(super) fn key(&self, span: &Span) -> Cow<'a, str> {
        text::read(&self.raw[span.clone()])
    }

    fn string(&mut self) -> Result<(), ScanError> {
        if !self.take(b'"') {
            return Err(self.expected("a string"));
        }
        loop {
            self.at += text::n_plain(&self.raw[self.at..]);
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
