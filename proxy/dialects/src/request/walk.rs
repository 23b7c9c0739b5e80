//! A walk over JSON text that builds nothing. It is as strict as serde_json, without recursion, so no nesting is too
//! deep.
//!
//! serde_json's `RawValue` reads a value to find its end, and then reads it again for its fields. A request is walked
//! once for both.

use std::ops::Range;

pub(super) type ByteSpan = Range<usize>;

#[derive(Debug)]
pub(super) struct Walk<'a> {
    bytes: &'a [u8],
    pub at: usize,
    /// See `KnownValues::find`.
    pub in_vain: usize,
}

/// The text is not JSON. serde_json says why.
#[derive(Debug)]
pub(super) struct NotJson;

type Walked<T> = Result<T, NotJson>;

// === impl Walk ===

impl<'a> Walk<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let bytes = text.as_bytes();
        let in_vain = bytes.len();
        Self {
            bytes,
            at: 0,
            in_vain,
        }
    }

    /// Returns the next byte that is not white space, without taking it.
    pub(super) fn peek(&mut self) -> Option<u8> {
        let rest = self.bytes.get(self.at..)?;
        let is_blank = |byte: &&u8| matches!(**byte, b' ' | b'\n' | b'\r' | b'\t');
        self.at += rest.iter().take_while(is_blank).count();
        self.bytes.get(self.at).copied()
    }

    pub(super) fn take(&mut self, expected: u8) -> Walked<()> {
        if self.peek() != Some(expected) {
            return Err(NotJson);
        }
        self.at += 1;
        Ok(())
    }

    /// Walks over an object, and returns its span. `member` gets each name with its quotes, and walks over the value.
    pub(super) fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, ByteSpan) -> Walked<()>,
    ) -> Walked<ByteSpan> {
        self.list([b'{', b'}'], |walk| {
            let name = walk.name()?;
            member(walk, name)
        })
    }

    /// Walks over an array, and returns its span. `element` walks over each value.
    pub(super) fn array(
        &mut self,
        element: impl FnMut(&mut Self) -> Walked<()>,
    ) -> Walked<ByteSpan> {
        self.list([b'[', b']'], element)
    }

    fn list(
        &mut self,
        [open, close]: [u8; 2],
        mut each: impl FnMut(&mut Self) -> Walked<()>,
    ) -> Walked<ByteSpan> {
        self.take(open)?;
        let start = self.at - 1;
        if self.peek() != Some(close) {
            each(self)?;
            while self.peek() == Some(b',') {
                self.at += 1;
                each(self)?;
            }
        }
        self.take(close)?;
        Ok(start..self.at)
    }

    /// Walks over a value of any kind, and returns its span.
    pub(super) fn value(&mut self) -> Walked<ByteSpan> {
        self.peek();
        let start = self.at;
        let mut open = Vec::new();
        loop {
            match self.peek().ok_or(NotJson)? {
                bracket @ (b'{' | b'[') => {
                    self.at += 1;
                    // In ASCII, `}` is `{` plus 2, and `]` is `[` plus 2.
                    let close = bracket + 2;
                    if self.peek() == Some(close) {
                        self.at += 1;
                    } else {
                        if close == b'}' {
                            self.name()?;
                        }
                        open.push(close);
                        continue;
                    }
                }
                b'"' => {
                    self.string()?;
                }
                _ => self.scalar()?,
            }
            while let Some(&close) = open.last() {
                match self.peek() {
                    Some(b',') => {
                        self.at += 1;
                        if close == b'}' {
                            self.name()?;
                        }
                        break;
                    }
                    found if found == Some(close) => {
                        self.at += 1;
                        open.pop();
                    }
                    _ => return Err(NotJson),
                }
            }
            if open.is_empty() {
                return Ok(start..self.at);
            }
        }
    }

    fn name(&mut self) -> Walked<ByteSpan> {
        let name = self.string()?;
        self.take(b':')?;
        Ok(name)
    }

    fn string(&mut self) -> Walked<ByteSpan> {
        self.take(b'"')?;
        let start = self.at - 1;
        loop {
            let rest = &self.bytes[self.at..];
            let n_plain = n_plain(rest);
            let rest = &rest[n_plain..];
            let n_escape = match rest {
                [b'"', ..] => {
                    self.at += n_plain + 1;
                    return Ok(start..self.at);
                }
                [b'\\', b'u', digits @ ..] => {
                    let digits = digits.get(..4).ok_or(NotJson)?;
                    if !digits.iter().all(u8::is_ascii_hexdigit) {
                        return Err(NotJson);
                    }
                    6
                }
                [
                    b'\\',
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't',
                    ..,
                ] => 2,
                _ => return Err(NotJson),
            };
            self.at += n_plain + n_escape;
        }
    }

    fn scalar(&mut self) -> Walked<()> {
        let rest = &self.bytes[self.at..];
        let words: [&[u8]; 3] = [b"true", b"false", b"null"];
        if let Some(word) = words.into_iter().find(|word| rest.starts_with(word)) {
            self.at += word.len();
            return Ok(());
        }
        let digits = |from: usize| {
            let rest = rest.get(from..).unwrap_or_default();
            let n_digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if n_digits > 0 {
                Ok(from + n_digits)
            } else {
                Err(NotJson)
            }
        };
        let start = usize::from(rest.first() == Some(&b'-'));
        let mut end = digits(start)?;
        if rest[start] == b'0' && end > start + 1 {
            return Err(NotJson);
        }
        if rest.get(end) == Some(&b'.') {
            end = digits(end + 1)?;
        }
        if let Some(b'e' | b'E') = rest.get(end) {
            let has_sign = matches!(rest.get(end + 1), Some(b'+' | b'-'));
            end = digits(end + 1 + usize::from(has_sign))?;
        }
        self.at += end;
        Ok(())
    }
}

/// Returns how many bytes at the beginning are neither a quote, nor a backslash, nor a control character.
///
/// Compares eight bytes at once, because a loop over single bytes takes a quarter of the CPU of a relayed request. In
/// each expression the lowest bit that is set belongs to the first such byte.
fn n_plain(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::MAX / 255;
    const HIGHS: u64 = ONES << 7;
    let below = |word: u64, least: u8| word.wrapping_sub(ONES * u64::from(least)) & !word & HIGHS;
    let (words, rest) = bytes.as_chunks::<8>();
    for (n, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let quotes = below(word ^ (ONES * u64::from(b'"')), 1);
        let slashes = below(word ^ (ONES * u64::from(b'\\')), 1);
        let found = quotes | slashes | below(word, b' ');
        if found != 0 {
            return 8 * n + found.trailing_zeros() as usize / 8;
        }
    }
    let is_plain = |byte: &&u8| !matches!(**byte, b'"' | b'\\' | ..b' ');
    8 * words.len() + rest.iter().take_while(is_plain).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::n_plain;

    proptest! {
        #[test]
        fn many_at_once_are_as_many_as_one_by_one(bytes in "[a-zé\u{7f}\"\\\\\u{0}-\u{22}]{0,40}") {
            let bytes = bytes.as_bytes();
            let expected = bytes.iter().position(|b| matches!(b, b'"' | b'\\' | ..b' '));
            prop_assert_eq!(n_plain(bytes), expected.unwrap_or(bytes.len()));
        }
    }
}
