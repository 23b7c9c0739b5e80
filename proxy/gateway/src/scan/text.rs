//! JSON strings as texts, read where they stand.
//!
//! JSON allows half a surrogate pair (`"\ud83d"`: JavaScript writes it when it cuts a text inside an
//! emoji), Unicode text does not: it is read as U+FFFD.

use std::borrow::Cow;

use memchr::{memchr, memmem};

/// The longest line that is looked for.
const MAX_LINE: usize = 4_096;
/// How many bytes at once are looked at for the end of a string: what compilers turn into a few
/// vector instructions.
const BLOCK: usize = 32;

/// How many bytes come before the next one that means something inside a string: a quote, a
/// backslash or a control character.
pub(super) fn n_plain(bytes: &[u8]) -> usize {
    // Most strings are keys and words: for those a block is too much.
    if let Some(at) = first_of_words(&bytes[..bytes.len().min(BLOCK)]) {
        return at;
    }
    // Without a branch, so that it is done for many at once.
    let means = |b: u8| u8::from(b == b'"') | u8::from(b == b'\\') | u8::from(b < 0x20);
    let (blocks, _) = bytes.as_chunks::<BLOCK>();
    let is_plain = |block: &&[u8; BLOCK]| block.iter().fold(0, |any, b| any | means(*b)) == 0;
    let start = blocks.iter().take_while(is_plain).count() * BLOCK;
    if let Some(at) = first_of_words(&bytes[start..bytes.len().min(start + BLOCK)]) {
        return start + at;
    }
    let rest = bytes[start..].iter();
    start + rest.take_while(|b| means(**b) == 0).count()
}

/// Where the first byte stands that means something, among the whole words of `bytes`.
fn first_of_words(bytes: &[u8]) -> Option<usize> {
    let (words, _) = bytes.as_chunks::<8>();
    let found = |(n, word): (usize, &[u8; 8])| Some(n * 8 + first_in(*word)?);
    words.iter().enumerate().find_map(found)
}

/// Where in eight bytes the first one stands that means something.
///
/// A byte of `x` is zero where `(x - 0x01…) & !x & 0x80…` has its high bit, and the lowest such bit
/// is never wrong (Warren, Hacker's Delight, 6-1).
fn first_in(word: [u8; 8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = ONES << 7;
    let word = u64::from_le_bytes(word);
    let less = |x: u64, n: u64| x.wrapping_sub(ONES * n) & !x & HIGHS;
    let quotes = less(word ^ (ONES * u64::from(b'"')), 1);
    let slashes = less(word ^ (ONES * u64::from(b'\\')), 1);
    let found = quotes | slashes | less(word, 0x20);
    (found != 0).then(|| found.trailing_zeros() as usize / 8)
}

/// The text of a JSON string, given with its quotes.
pub(crate) fn read(quoted: &[u8]) -> Cow<'_, str> {
    let inner = inner(quoted);
    if memchr(b'\\', inner).is_none() {
        return utf8(inner);
    }
    let mut out = String::with_capacity(inner.len());
    read_into(&mut out, quoted, usize::MAX);
    Cow::Owned(out)
}

/// Requests are UTF-8 where this is asked: the quick way first.
fn utf8(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}

/// The beginning of the text of a JSON string, given with its quotes: `limit` bytes or a few more.
pub(crate) fn head(quoted: &[u8], limit: usize) -> Cow<'_, str> {
    let inner = inner(quoted);
    let room = limit.saturating_add(3).min(inner.len());
    if memchr(b'\\', &inner[..room]).is_none() {
        return utf8(&inner[..letter_end(inner, room)]);
    }
    let mut out = String::with_capacity(room);
    read_into(&mut out, quoted, limit);
    Cow::Owned(out)
}

/// Adds the text of a JSON string, given with its quotes, to `out`, until that has `limit` bytes or
/// a few more. Ends between letters.
pub(crate) fn read_into(out: &mut String, quoted: &[u8], limit: usize) {
    let mut rest = inner(quoted);
    while out.len() < limit && !rest.is_empty() {
        let room = (limit - out.len()).saturating_add(3).min(rest.len());
        let end = memchr(b'\\', &rest[..room]);
        let end = end.unwrap_or_else(|| letter_end(rest, room));
        out.push_str(&utf8(&rest[..end]));
        rest = &rest[end..];
        if rest.first() == Some(&b'\\') && out.len() < limit {
            rest = &rest[escape_into(out, rest)..];
        }
    }
}

/// The last line of a JSON string's text, given with its quotes, that begins with `beginning`, which
/// holds no letter that JSON escapes.
pub(crate) fn last_line(quoted: &[u8], beginning: &str) -> Option<String> {
    let inner = inner(quoted);
    let mut end = inner.len();
    while let Some(at) = memmem::rfind(&inner[..end], beginning.as_bytes()) {
        if begins_line(&inner[..at]) {
            let mut line = String::new();
            // A quote before it, as `quoted` has one: what is read is the rest of the text.
            read_into(&mut line, &quoted[at..], MAX_LINE);
            return line.lines().next().map(str::to_owned);
        }
        end = at + beginning.len() - 1;
    }
    None
}

/// Whether what comes after these bytes of a string begins a line of its text.
fn begins_line(before: &[u8]) -> bool {
    let escape = [&b"\\n"[..], b"\\u000a", b"\\u000A"]
        .iter()
        .find_map(|escape| before.strip_suffix(*escape));
    // A backslash that is escaped itself escapes nothing.
    let is_escape = |before: &[u8]| {
        let slashes = before.iter().rev().take_while(|b| **b == b'\\');
        slashes.count() % 2 == 0
    };
    before.is_empty() || escape.is_some_and(is_escape)
}

/// The place at or before `at` where a letter of UTF-8 ends.
fn letter_end(bytes: &[u8], at: usize) -> usize {
    let starts = |at: usize| bytes.get(at).is_none_or(|b| (*b & 0xc0) != 0x80);
    (at.saturating_sub(3)..=at)
        .rev()
        .find(|at| starts(*at))
        .unwrap_or(at)
}

/// Reads the escape that `raw` begins with; how long it is.
fn escape_into(out: &mut String, raw: &[u8]) -> usize {
    let letter = match raw.get(1) {
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => {
            let (letter, n_bytes) = unicode(raw);
            out.push(letter);
            return n_bytes;
        }
        Some(other) => char::from(*other),
        None => char::REPLACEMENT_CHARACTER,
    };
    out.push(letter);
    raw.len().min(2)
}

/// The letter that an escape of four hexadecimal digits, or a pair of them, stands for, and how long that is.
fn unicode(raw: &[u8]) -> (char, usize) {
    let first = unit(raw);
    let second = raw.get(6..).and_then(unit);
    let pair = first.zip(second).and_then(|(first, second)| {
        let letter = char::decode_utf16([first, second]).next()?.ok()?;
        (letter.len_utf16() == 2).then_some(letter)
    });
    if let Some(letter) = pair {
        return (letter, 12);
    }
    let letter = first.and_then(|unit| char::from_u32(unit.into()));
    (
        letter.unwrap_or(char::REPLACEMENT_CHARACTER),
        raw.len().min(6),
    )
}

/// The UTF-16 unit that the escape at the beginning of `raw` stands for, if one is there.
pub(crate) fn unit(raw: &[u8]) -> Option<u16> {
    let digits = raw.get(..6)?.strip_prefix(b"\\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn inner(quoted: &[u8]) -> &[u8] {
    let inner = quoted.get(1..quoted.len().saturating_sub(1));
    inner.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn half_a_pair_is_read_as_what_it_shows() {
        let read = |raw: &str| read(raw.as_bytes()).into_owned();
        assert_eq!(read(r#""a\ud83d\uDE00\n\/\u00e9é""#), "a😀\n/éé");
        assert_eq!(read(r#""\ud83d""#), "\u{fffd}");
        assert_eq!(
            read(r#""\ude00\ud83d\ud83d\ude00x""#),
            "\u{fffd}\u{fffd}😀x"
        );
        assert_eq!(read(r#""\\ud83d""#), r"\ud83d");
    }

    #[test]
    fn a_long_text_is_read_as_far_as_is_asked() {
        let raw = format!("\"{}\"", "é\\u00e9".repeat(1_000));
        let mut head = String::new();
        read_into(&mut head, raw.as_bytes(), 1_000);
        assert_eq!(head, "é".repeat(head.chars().count()));
        assert!((1_000..1_004).contains(&head.len()), "{}", head.len());
    }

    #[test]
    fn a_line_is_found_by_its_beginning_and_only_where_a_line_begins() {
        let find = |raw: &str| last_line(raw.as_bytes(), "Runtime:");
        assert_eq!(find(r#""Runtime: a\nb""#).unwrap(), "Runtime: a");
        let twice = r#""x\nRuntime: a\u000aRuntime: \u00e9\r\nand Runtime: c""#;
        assert_eq!(find(twice).unwrap(), "Runtime: é");
        assert_eq!(
            find(r#""in C:\\nRuntime: a""#),
            None,
            "a backslash and an n"
        );
        assert_eq!(find(r#""no Runtime: a""#), None);
    }

    proptest! {
        #[test]
        fn what_means_something_is_found_wherever_it_stands(
            before in "[ -!#-\\[\\]-~é😀\u{7f}]{0,90}", stop in "[\"\\\\\u{0}\u{1f}\n]", after in "[a-z\"\\\\]{0,40}",
        ) {
            let all = format!("{before}{stop}{after}");
            prop_assert_eq!(n_plain(all.as_bytes()), before.len());
            prop_assert_eq!(n_plain(before.as_bytes()), before.len());
        }

        #[test]
        fn a_text_is_what_serde_json_reads(text in any::<String>(), escaped in any::<bool>()) {
            let quoted = serde_json::to_string(&text).unwrap();
            let quoted = if escaped { in_ascii(&quoted) } else { quoted };
            prop_assert_eq!(read(quoted.as_bytes()), text.as_str());
            let mut known = String::new();
            read_into(&mut known, quoted.as_bytes(), 7);
            let head = head(quoted.as_bytes(), 7);
            prop_assert_eq!(&head, &known);
            prop_assert!(text.starts_with(&*head) && (head.len() >= 7 || head == text), "{:?}", head);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40), limit in 0usize..40) {
            read(&bytes);
            read_into(&mut String::new(), &bytes, limit);
            head(&bytes, limit);
        }
    }

    fn in_ascii(text: &str) -> String {
        let mut out = String::new();
        for letter in text.chars() {
            if letter.is_ascii() {
                out.push(letter);
                continue;
            }
            for unit in letter.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}").unwrap();
            }
        }
        out
    }
}
