//! WISHES.md: a plain list that people edit too.
//!
//! A wish is a list item (`- `, `* ` or `+ ` at the beginning of a line). Everything else in the file is people's own
//! text. It is never read as a wish, and our edits do not change it.

use std::path::Path;

use metaclaw_chat::{if_there, one_line};

use crate::file::{JournalError, MAX_FILE, failed, read_text, write_text};

/// The longest wish in characters, because it is one line that is always in the prompt.
const MAX_CHARS: usize = 300;
const HEADING: &str = "# Wishes\n\n";

/// One line that says how the owner wants the agent to behave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    pub text: String,
}

// === impl Wish ===

impl Wish {
    /// Returns an id that does not reveal its words: 16 hex digits of their BLAKE3 hash.
    pub fn id(&self) -> String {
        blake3::hash(self.text.as_bytes()).to_hex()[..16].to_owned()
    }
}

/// Why a wish cannot be stored.
#[derive(Debug, thiserror::Error)]
pub enum WishError {
    #[error("a wish must say something, this one is empty")]
    Empty,
    /// It is too long for a line in every prompt.
    #[error("a wish may have {MAX_CHARS} characters, this one has {length}")]
    TooLong {
        /// Its length in characters.
        length: usize,
    },
    #[error(transparent)]
    File(#[from] JournalError),
}

pub(crate) fn parse(text: &str) -> Vec<Wish> {
    text.lines()
        .filter_map(item)
        .map(|text| Wish { text })
        .collect()
}

pub(crate) fn has_text(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim);
    lines.any(|line| !line.is_empty() && !line.starts_with('#') && !line.starts_with("<!--"))
}

fn item(line: &str) -> Option<String> {
    let line = line.trim();
    let text = ["- ", "* ", "+ "]
        .iter()
        .find_map(|bullet| line.strip_prefix(bullet))?;
    let text = one_line(text);
    (!text.is_empty()).then_some(text)
}

/// Adds a wish as the newest. Returns whether the file changed. An existing one moves to the end.
pub(crate) fn add(path: &Path, wish: &str) -> Result<bool, WishError> {
    let wish = checked(wish)?;
    edit(path, |text| with(text, &wish))
}

pub(crate) fn checked(wish: &str) -> Result<String, WishError> {
    let wish = one_line(wish);
    if wish.is_empty() {
        return Err(WishError::Empty);
    }
    let length = wish.chars().count();
    if length > MAX_CHARS {
        return Err(WishError::TooLong { length });
    }
    Ok(wish)
}

pub(crate) fn remove(path: &Path, wish: &str) -> Result<bool, WishError> {
    edit(path, |text| without(text, &one_line(wish)))
}

/// Returns the text with one more wish after the last list item, so that text below a list stays below it.
fn with(text: &str, wish: &str) -> String {
    let text = without(text, wish);
    let mut at = None;
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        end += line.len();
        if item(line).is_some() {
            at = Some(end);
        }
    }
    let (before, after) = text.split_at(at.unwrap_or(text.len()));
    let before = if text.is_empty() { HEADING } else { before };
    let gap = if before.ends_with('\n') { "" } else { "\n" };
    format!("{before}{gap}- {wish}\n{after}")
}

fn without(text: &str, wish: &str) -> String {
    let keep = |line: &&str| item(line).as_deref() != Some(wish);
    text.split_inclusive('\n').filter(keep).collect()
}

/// Replaces the file by its edited text in one rename, so that a reader sees either the old or the new one completely.
fn edit(path: &Path, change: impl FnOnce(&str) -> String) -> Result<bool, WishError> {
    let read = if_there(read_text(path, MAX_FILE)).map_err(failed(path))?;
    let old = read.unwrap_or_default();
    let new = change(&old);
    if new == old {
        return Ok(false);
    }
    write_text(path, &new).map_err(failed(path))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn texts(text: &str) -> Vec<String> {
        parse(text).into_iter().map(|wish| wish.text).collect()
    }

    #[test]
    fn reads_list_items_and_leaves_people_their_text() {
        let text =
            "# Mine\n\nWhat I like:\n- Be  brief. \n  * In French\n-not a wish\n+ x\n-\n1. no\n";
        assert_eq!(texts(text), ["Be brief.", "In French", "x"]);
    }

    #[test]
    fn editing_keeps_every_other_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("main/WISHES.md");
        assert!(add(&path, "Be brief.").unwrap());
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            "# Wishes\n\n- Be brief.\n"
        );
        fs::write(&path, "My notes\n- Be brief.\n* In French\nthe end").unwrap();
        assert!(add(&path, " No\nlists. ").unwrap());
        assert!(add(&path, "Be brief.").unwrap());
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(
            text,
            "My notes\n* In French\n- No lists.\n- Be brief.\nthe end"
        );
        assert!(!add(&path, "Be brief.").unwrap());
        assert!(remove(&path, "In French").unwrap());
        assert!(!remove(&path, "In French").unwrap());
        assert_eq!(
            texts(&fs::read_to_string(&path).unwrap()),
            ["No lists.", "Be brief."]
        );
    }

    #[test]
    fn a_wish_that_cannot_be_one_is_refused_in_words() {
        let path = Path::new("nowhere/WISHES.md");
        assert!(matches!(add(path, " \n ").unwrap_err(), WishError::Empty));
        let long = "x".repeat(301);
        let error = add(path, &long).unwrap_err().to_string();
        assert_eq!(error, "a wish may have 300 characters, this one has 301");
    }
}
