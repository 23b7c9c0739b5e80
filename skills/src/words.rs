//! Splits text into words for searches, estimates its cost in tokens, and reads the lists of words in `data`, which are tables
//! so that people who write no Rust can correct them.
//!
//! A line of a table is a kind, a tab, and words or patterns between " / ". Lines that begin with `#` explain. A test
//! compiles each pattern.

use std::{collections::HashSet, fmt::Write as _, sync::LazyLock};

use regex::{Regex, RegexSet};
use serde::{
    Deserialize,
    de::{IntoDeserializer, value},
};
use unicode_segmentation::UnicodeSegmentation;

pub(crate) static WORD_LISTS: LazyLock<Table> =
    LazyLock::new(|| Table::read(include_str!("../data/words.tsv")));
/// Words that say nothing about a request's subject.
static SILENT: LazyLock<HashSet<&str>> =
    LazyLock::new(|| WORD_LISTS.list("silent").iter().copied().collect());

/// Returns the words of a text, in lower case and in order: Unicode words, and pairs of characters in scripts without
/// spaces (Chinese, Japanese, Korean). Words without meaning for the subject are left out.
pub fn terms(text: &str) -> Vec<String> {
    terms_where(text, |word| !SILENT.contains(word))
}

/// Returns all words, because "how", "my" and "please" distinguish a question from a remark.
pub(crate) fn all_terms(text: &str) -> Vec<String> {
    terms_where(text, |_| true)
}

fn terms_where(text: &str, says: impl Fn(&str) -> bool) -> Vec<String> {
    let lower = text.to_lowercase();
    let mut terms = Vec::new();
    let mut rest = lower.as_str();
    while let Some(first) = rest.chars().next() {
        let wide = is_cjk(first);
        let end = rest.find(|c| is_cjk(c) != wide).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        if wide {
            bigrams(run, &mut terms);
        } else {
            let said = run.unicode_words().filter(|word| says(word));
            terms.extend(said.map(stem));
        }
        rest = after;
    }
    terms
}

/// Adds pairs of neighbours. A single character is added alone.
fn bigrams(run: &str, terms: &mut Vec<String>) {
    let chars: Vec<char> = run.chars().collect();
    if let [one] = chars.as_slice() {
        terms.push(one.to_string());
    }
    terms.extend(chars.windows(2).map(|pair| pair.iter().collect::<String>()));
}

/// Returns all words of a text in scripts with spaces, in order, without their endings.
pub(crate) fn stems(text: &str) -> Vec<String> {
    let words = text.split(is_cjk).flat_map(str::unicode_words);
    words.map(|word| stem(&word.to_lowercase())).collect()
}

/// Removes the ending for number or tense: "emails" finds "email", "debugging" finds "debug", "scheduled" finds
/// "schedule". Short words, and those that would lose too much, are not changed.
fn stem(word: &str) -> String {
    let word = word.replace(['\'', '’'], "");
    if !word.is_ascii() || word.len() <= 3 {
        return word;
    }
    let ending = |end: &str| {
        word.strip_suffix(end)
            .filter(|stem| stem.len() >= 3 && has_vowel(stem))
    };
    let stem = if let Some(stem) = word.strip_suffix("ies").filter(|stem| stem.len() >= 2) {
        return format!("{stem}y");
    } else if let Some(stem) = ending("ing").or_else(|| ending("ed")) {
        if has_lost_e(stem) {
            return format!("{stem}e");
        }
        undoubled(stem)
    } else if word.ends_with("ss") || word.ends_with("us") || word.ends_with("is") {
        &word
    } else {
        word.strip_suffix('s').unwrap_or(&word)
    };
    // "scheduled" and "schedule" become equal without the e. "note" keeps it, because it would become "not".
    let stem = stem
        .strip_suffix('e')
        .filter(|stem| stem.len() >= 4)
        .unwrap_or(stem);
    stem.to_owned()
}

/// "noted" without its ending is "not", and was "note": without an e, the consonant would have been doubled, as in
/// "planned".
fn has_lost_e(stem: &str) -> bool {
    let is_vowel = |c: u8| b"aeiouy".contains(&c);
    match stem.as_bytes() {
        &[first, middle, last] => {
            !is_vowel(first) && is_vowel(middle) && !is_vowel(last) && !matches!(last, b'w' | b'x')
        }
        _ => false,
    }
}

fn has_vowel(text: &str) -> bool {
    text.contains(['a', 'e', 'i', 'o', 'u', 'y'])
}

/// "debugg" becomes "debug", and "fall" stays.
fn undoubled(stem: &str) -> &str {
    let mut last = stem.bytes().rev();
    let (end, before) = (last.next(), last.next());
    let is_doubled = end == before && end.is_some_and(|c| !matches!(c, b'l' | b's' | b'z'));
    if is_doubled {
        &stem[..stem.len() - 1]
    } else {
        stem
    }
}

/// Estimates how many tokens a text has: a quarter per ASCII character, one per Chinese, Japanese or Korean one, a half
/// per any other.
pub fn estimate_tokens(text: &str) -> usize {
    let quarters = text.chars().map(|c| match c {
        c if c.is_ascii() => 1,
        c if is_cjk(c) => 4,
        _ => 2,
    });
    quarters.sum::<usize>().div_ceil(4)
}

pub(crate) fn is_cjk(c: char) -> bool {
    matches!(u32::from(c),
        0x3040..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xAC00..=0xD7AF | 0xF900..=0xFAFF | 0x20000..=0x323AF)
}

/// The lists of a table by kind, in its order. Lines of one kind that follow each other are one list.
#[derive(Debug)]
pub(crate) struct Table(pub(crate) Vec<(&'static str, Vec<&'static str>)>);

// === impl Table ===

impl Table {
    pub(crate) fn read(text: &'static str) -> Self {
        let mut lists: Vec<(&str, Vec<&str>)> = Vec::new();
        let is_list = |line: &&str| !line.is_empty() && !line.starts_with('#');
        for line in text.lines().filter(is_list) {
            let (kind, words) = line.rsplit_once('\t').unwrap_or_default();
            match lists.last_mut() {
                Some((last, list)) if *last == kind => list.extend(words.split(" / ")),
                _ => lists.push((kind, words.split(" / ").collect())),
            }
        }
        Self(lists)
    }

    /// Returns a list, or an empty one if the table has none of this kind.
    pub(crate) fn list(&self, kind: &str) -> &[&'static str] {
        let found = self.0.iter().find(|(it, _)| *it == kind);
        found.map_or(&[][..], |(_, words)| words)
    }
}

#[expect(
    clippy::expect_used,
    reason = "all names are in our own tables, and tests read each one: no input reaches it"
)]
pub(crate) fn named<T: Deserialize<'static>>(name: &'static str) -> T {
    let name: value::StrDeserializer<'static, value::Error> = name.into_deserializer();
    T::deserialize(name).expect("a name of ours")
}

#[expect(
    clippy::expect_used,
    reason = "all patterns are in the code or in tables, and tests compile each one: no input reaches it"
)]
pub(crate) fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern of ours")
}

/// Compiles several patterns that are searched at once.
#[expect(
    clippy::expect_used,
    reason = "they stand in the code or in a table, and tests compile every one: no input reaches them"
)]
pub(crate) fn pattern_set<'p>(texts: impl IntoIterator<Item = &'p str>) -> RegexSet {
    RegexSet::new(texts).expect("patterns of ours")
}

pub(crate) fn numbered<'s>(sentences: impl Iterator<Item = &'s str>) -> String {
    let mut numbered = String::new();
    for (n, sentence) in (1..).zip(sentences) {
        let _ = writeln!(numbered, "{n}. {sentence}");
    }
    numbered
}

pub(crate) fn after_thinking(answer: &str) -> &str {
    let thought = answer.rsplit_once("</think>");
    thought.map_or(answer, |(_, answer)| answer)
}

pub(crate) fn is_none(line: &str) -> bool {
    let line = line.trim_matches(|c: char| !c.is_alphabetic());
    line.eq_ignore_ascii_case("none")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_lower_case_singular_and_say_something() {
        assert_eq!(
            terms("Use when the user writes Emails, in C++!"),
            ["writ", "email", "c"]
        );
        assert_eq!(terms("class"), ["class"]);
        let same = |one: &str, other: &str| assert_eq!(stems(one), stems(other), "{one}, {other}");
        same("debugging queries", "debug query");
        same("it was Scheduled", "it was schedule");
        same("don't", "dont");
        same("noted codes, filing", "note code file");
        assert_eq!(stems("red king sing"), ["red", "king", "sing"]);
        assert_eq!(stems("notes not sites sit"), ["note", "not", "site", "sit"]);
        assert_eq!(stems("fixing planned"), ["fix", "plan"]);
    }

    #[test]
    fn scripts_without_spaces_become_pairs() {
        assert_eq!(terms("分析data数据集"), ["分析", "data", "数据", "据集"]);
        assert_eq!(terms("好"), ["好"]);
    }

    #[test]
    fn estimates_are_near_what_tokenizers_count() {
        assert_eq!(estimate_tokens(""), 0);
        assert_eq!(estimate_tokens("Answer in one short sentence."), 8);
        assert_eq!(estimate_tokens("请用一句话回答"), 7);
    }
}
