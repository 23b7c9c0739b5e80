//! Converts MetaClaw's names to the last part of a `tinker://` path, and back.
//!
//! Servers allow different characters there; all allow letters, digits, `-` and `_`. Any other character is written as
//! `_` and two hexadecimal digits. A checkpoint's name is followed by `_m` and the beginning of its manifest's hash, by
//! which the manifest is found if the server stores none.

use std::fmt::Write as _;

/// The text before the mark of a manifest.
const MARK: &str = "_m";
/// The number of hexadecimal digits of a manifest's mark.
const DIGITS: usize = 12;

/// Returns the name with escapes for characters that not every server allows.
pub(super) fn escaped(name: &str) -> String {
    name.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || byte == b'-' {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "_{byte:02x}");
        }
        out
    })
}

/// Reverses [`escaped`]; `None` for names that it cannot have made.
fn unescaped(text: &str) -> Option<String> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        if *first != b'_' {
            out.push(*first);
            rest = behind;
            continue;
        }
        let digits = std::str::from_utf8(behind.get(..2)?).ok()?;
        out.push(u8::from_str_radix(digits, 16).ok()?);
        rest = behind.get(2..)?;
    }
    String::from_utf8(out).ok()
}

/// Returns the mark of a manifest: the beginning of its hash.
pub(super) fn mark(manifest: &str) -> String {
    let mut hash = blake3::hash(manifest.as_bytes()).to_hex().to_string();
    hash.truncate(DIGITS);
    hash
}

/// Returns a checkpoint's name at the server.
pub(super) fn with_mark(name: &str, mark: &str) -> String {
    format!("{}{MARK}{mark}", escaped(name))
}

/// Splits a name into a checkpoint's name and mark, or an adapter's name; `None` for
/// names that cannot have been made here. Another program's name may look like one.
pub(super) fn read(text: &str) -> Option<(String, Option<&str>)> {
    match text.rsplit_once(MARK) {
        Some((name, mark)) => {
            let is_mark = mark.len() == DIGITS && mark.bytes().all(|b| b.is_ascii_hexdigit());
            if !is_mark {
                return None;
            }
            Some((unescaped(name)?, Some(mark)))
        }
        None => Some((unescaped(text)?, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for name in ["main-1a2b3c4d-000003", "_default.l1@3", "a_m-b", "x"] {
            let mark = mark("{}");
            let written = with_mark(name, &mark);
            let legal = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
            assert!(written.bytes().all(legal), "{written}");
            assert_eq!(read(&written), Some((name.to_owned(), Some(&*mark))));
            assert_eq!(read(&escaped(name)), Some((name.to_owned(), None)));
        }
    }

    #[test]
    fn names_of_others_are_not_ours() {
        for other in ["step_1_m", "final_", "a_zz", "a_mxyz"] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
