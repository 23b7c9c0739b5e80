//! Finds memories that say the same, and memories that a newer one makes out of date.

use std::{collections::BTreeSet, sync::LazyLock};

use metaclaw_skills::terms;
use regex::Regex;

use crate::memory::{Memory, MemoryState};

/// The Jaccard index of their words from which two memories of one kind say the same, as in the Python original.
const SAME: f32 = 0.8;
/// The longest subject of a statement, in words. A longer text before the verb is no subject.
const MAX_SUBJECT: usize = 6;

/// A verb between the subject of a fact and its predicate.
static VERB: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(?:(?:am|are) using|(?:is|are|was|were|am)(?: called| named)?)\b|(?i)\b(?:prefer|prefers|live in|lives in|work at|work for|works at|works for|use|uses)\b|是|叫|住在|喜欢|偏好|使用|用").ok()
});

/// A subject that has one value at a time, as a birthday has. A dog can be brown and old.
static ONE_VALUE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(?:favou?rite|preferred|default)\b|\b(?:name|birthday|e-?mail|phone|number|address|time ?zone|language|title|role|editor|shell|browser|deadline|version|port|url)\s*$|最喜欢|首选|默认|(?:名字|生日|邮箱|电话|地址|时区|语言|职位|编辑器|浏览器|截止日期|版本|端口)\s*$").ok()
});

/// What a consolidation changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Consolidated {
    /// Memories that say the same as a newer one.
    pub merged: usize,
    /// Memories that a newer one makes out of date.
    pub superseded: usize,
    /// Memories that were deleted because they waited too long for the owner's review.
    pub dropped: usize,
}

/// How a memory relates to a newer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    Same,
    OutOfDate,
    None,
}

/// Returns whether two texts have the same words in the same order, regardless of case and of punctuation around words.
/// "C++" is another word than "C", and "1.6" another than "16".
pub(crate) fn is_repetition(one: &str, other: &str) -> bool {
    spelled(one).eq(spelled(other))
}

fn spelled(text: &str) -> impl Iterator<Item = String> {
    let is_mark = |c: char| !c.is_alphanumeric() && !matches!(c, '+' | '#');
    let words = text
        .split_whitespace()
        .map(move |word| word.trim_matches(is_mark).to_lowercase());
    words.filter(|word| !word.is_empty())
}

/// Compares an older memory with a newer one of the same agent and scope.
pub(crate) fn relation(old: &Memory, new: &Memory) -> Relation {
    if is_repetition(&old.content, &new.content) {
        return Relation::Same;
    }
    if old.kind != new.kind || old.is_pinned() {
        return Relation::None;
    }
    let (of_old, of_new) = (words(&old.content), words(&new.content));
    let common = of_old.intersection(&of_new).count() as f32;
    let all = of_old.union(&of_new).count().max(1) as f32;
    if is_statement_of_the_same(&old.content, &new.content) {
        return Relation::OutOfDate;
    }
    // "We are 8 people" and "We are 9 people" have almost the same words, and do not say the same.
    let numbers = |words: &BTreeSet<String>| {
        let numbers = words
            .iter()
            .filter(|it| it.contains(|c: char| c.is_ascii_digit()));
        numbers.cloned().collect::<BTreeSet<String>>()
    };
    if common / all < SAME {
        Relation::None
    } else if numbers(&of_old) == numbers(&of_new) {
        Relation::Same
    } else {
        Relation::OutOfDate
    }
}

/// Applies [`relation`] to all pairs of active memories of one scope. A memory that is replaced names the newer one.
pub(crate) fn consolidate(memories: &mut [Memory]) -> Consolidated {
    let mut done = Consolidated::default();
    let mut order: Vec<usize> = (0..memories.len())
        .filter(|at| memories[*at].is_active())
        .collect();
    order.sort_by_key(|at| (memories[*at].updated_ms, memories[*at].memory_id.clone()));
    for (place, old) in order.iter().enumerate() {
        let newer = order[place + 1..].iter().rev().find_map(|new| {
            let (old, new) = (&memories[*old], &memories[*new]);
            let related = if old.scope_id == new.scope_id {
                relation(old, new)
            } else {
                Relation::None
            };
            (related != Relation::None).then(|| (related, new.memory_id.clone()))
        });
        if let Some((related, superseded_by)) = newer {
            memories[*old].state = MemoryState::Superseded { superseded_by };
            done.merged += usize::from(related == Relation::Same);
            done.superseded += usize::from(related == Relation::OutOfDate);
        }
    }
    done
}

/// Returns whether both texts have the form "my X is Y" with the same X and the same verb, and X has one value at a time.
fn is_statement_of_the_same(old: &str, new: &str) -> bool {
    let (Some(old), Some(new)) = (subject(old), subject(new)) else {
        return false;
    };
    old == new
}

/// Returns the subject of a statement, with its verb: of "my editor is vim" it is "editor", "is".
///
/// It returns `None` for a statement that may hold beside others with the same subject: "I am ..", "my dog is ..",
/// "our shop uses ..", "my team prefers ..".
fn subject(text: &str) -> Option<Vec<String>> {
    let verb = VERB.as_ref()?.find(text)?;
    let owned = text[..verb.start()].to_lowercase();
    let verb = verb.as_str().to_lowercase();
    let is_of_owner = ["my ", "our ", "the ", "我的", "我们的"]
        .iter()
        .any(|it| owned.starts_with(it));
    let lives = ["live in", "lives in", "work at", "work for", "住在"];
    let mut words = terms(&owned);
    if lives.contains(&verb.as_str()) && !owned.contains(',') {
        words.push(verb);
        return Some(words);
    }
    let is_subject = is_of_owner && !words.is_empty() && words.len() <= MAX_SUBJECT;
    let has_one_value = ONE_VALUE.as_ref()?.is_match(&owned);
    // "was" and "is" say something about the same property, and "is called" about another one.
    words.push(match verb.as_str() {
        "叫" => verb,
        "是" if has_one_value => verb,
        "is" | "are" | "was" | "were" | "am" if has_one_value => "is".to_owned(),
        named if named.ends_with("called") || named.ends_with("named") => "is called".to_owned(),
        _ => return None,
    });
    is_subject.then_some(words)
}

fn words(text: &str) -> BTreeSet<String> {
    terms(text).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_replaces_only_one_about_the_same_property() {
        assert!(VERB.is_some() && ONE_VALUE.is_some());
        for (old, new, expected) in [
            ("My editor was vim.", "My editor is helix now.", true),
            ("I live in Rome.", "I live in Paris.", true),
            ("我的编辑器是 vim。", "我的编辑器是 helix。", true),
            ("My birthday is in May.", "My birthday is in June.", true),
            (
                "My favourite tea is oolong.",
                "My favourite tea is sencha.",
                true,
            ),
            ("My dog is called Rex.", "My dog is called Max.", true),
            ("My dog is called Rex.", "My dog is brown.", false),
            ("My dog is brown.", "My dog is old.", false),
            ("The backend is in Rust.", "The backend is slow.", false),
            ("我的狗是棕色的。", "我的狗是老狗。", false),
            ("My dog's name is Rex.", "My dog is brown.", false),
            (
                "Our backend uses Rust.",
                "Our backend uses Postgres.",
                false,
            ),
            (
                "Our backend is in Rust.",
                "Our backend uses Postgres.",
                false,
            ),
            ("We use Rust.", "We use Postgres.", false),
        ] {
            assert_eq!(is_statement_of_the_same(old, new), expected, "{old} {new}");
        }
    }

    #[test]
    fn a_repetition_has_the_same_words() {
        for (one, other, expected) in [
            ("I like tea.", "i like TEA", true),
            ("“I like tea”", "I like tea!", true),
            ("我住在上海。", "我住在上海", true),
            ("I like C.", "I like C++.", false),
            ("We use Python 1.6", "We use Python 16", false),
        ] {
            assert_eq!(is_repetition(one, other), expected, "{one} {other}");
        }
    }
}
