//! Finds memories that say the same, and those that a newer one makes out of date.

use std::{collections::BTreeSet, sync::LazyLock};

use metaclaw_skills::terms;
use regex::Regex;

use crate::memory::{Memory, MemoryState};

/// Memories of the same kind with so many words in common say the same (Jaccard index), as in the Python original.
const SAME: f32 = 0.8;
/// The longest subject of a statement, in words. A longer one is rather a story.
const MAX_SUBJECT: usize = 6;

/// The verbs between the subject of a fact and its predicate.
static VERB: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(?:is|are|was|were|am)\b(?: now)?|(?i)'s\b|(?i)\b(?:prefer|prefers|live in|lives in|work at|work for|works at|works for|use|uses|am using|are using)\b|是|叫|住在|喜欢|偏好|使用|用").ok()
});

/// What was changed by a consolidation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Consolidated {
    /// Memories that say the same as a newer one.
    pub merged: usize,
    /// Memories that a newer one makes out of date.
    pub superseded: usize,
    /// Memories that waited too long for the owner's review.
    pub dropped: usize,
}

/// How a memory relates to a newer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    Same,
    OutOfDate,
    None,
}

/// Returns whether two texts have the same words, regardless of case and punctuation.
pub(crate) fn is_repetition(one: &str, other: &str) -> bool {
    let letters = |text: &str| {
        let letters = text.chars().filter(|c| c.is_alphanumeric());
        letters.flat_map(char::to_lowercase).collect::<String>()
    };
    letters(one) == letters(other)
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
    // "8 people" and "9 people" differ in what matters.
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

/// Applies [`relation`] to all pairs. Those that are replaced name the newer one. `pairs` compares only memories that
/// belong together.
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

/// Returns whether both texts have the form "my X is Y" with the same X.
fn is_statement_of_the_same(old: &str, new: &str) -> bool {
    let (Some(old), Some(new)) = (subject(old), subject(new)) else {
        return false;
    };
    old == new
}

/// Returns what a statement is about, with its verb: "my editor is vim" is about "my editor is". A subject that says
/// nothing but "I am" or "we use" is none: many such statements hold at once.
fn subject(text: &str) -> Option<Vec<String>> {
    let verb = VERB.as_ref()?.find(text)?;
    let owned = text[..verb.start()].to_lowercase();
    let is_of_owner = ["my ", "our ", "the ", "我的", "我们的"]
        .iter()
        .any(|it| owned.starts_with(it));
    let lives = ["live in", "lives in", "work at", "work for", "住在"];
    let is_single = lives.contains(&verb.as_str().to_lowercase().as_str()) && !owned.contains(',');
    let mut words = terms(&owned);
    if is_single {
        words.push(verb.as_str().to_lowercase());
        return Some(words);
    }
    (is_of_owner && !words.is_empty() && words.len() <= MAX_SUBJECT).then_some(words)
}

fn words(text: &str) -> BTreeSet<String> {
    terms(text).into_iter().collect()
}
