//! Finds memories that say the same, and memories that a newer one makes out of date.

use std::{cell::OnceCell, collections::BTreeSet, sync::LazyLock};

use regex::Regex;

use super::{
    Memory, MemoryState,
    facts::{Corrected, Stance, gives_value},
};
use crate::words::{is_cjk, pattern, terms};

/// The Jaccard index of their words from which two memories of one kind say the same, as in the Python original, if only
/// one of them has words that the other lacks: "I don't want tea in the evening" and "I don't want milk in the evening" are
/// two memories, however many words they share.
const SAME: f32 = 0.8;
/// The longest subject of a statement, in words. A longer text before the verb is no subject.
const MAX_SUBJECT: usize = 6;

static VERB: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:(?:am|are) using|(?:is|are|was|were|am)(?: called| named)?)\b|(?i)\b(?:prefers?|lives? in|moved(?: back)? to|works? (?:at|for)|uses?)\b|是|叫|住在|搬[到去回来]|喜欢|偏好|使用|用",
    )
});

/// Somebody who lives or works somewhere, before the verb: "I", "my sister", "now we", and not "option C won't".
static PERSON: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)(?:^(?:[^,]*\b)?(i|we|he|she|they)|^my (\w+))(?:['’]ve| have| has)?(?: (?:now|just|currently|still|also|finally|recently|already|since))*\s*$|(?:(我)们?家?|(我的?\p{Han}{1,4}?))(?:现在|目前|如今|已经|刚刚?|又|今年|去年|也|还|就|一直)*\s*$",
    )
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Relation {
    Same,
    OutOfDate,
    None,
}

/// Returns whether two texts have the same words in the same order, regardless of case and of punctuation around words.
/// "C++" is another word than "C", and "1.6" another than "16".
pub(super) fn is_repetition(one: &str, other: &str) -> bool {
    spelled(one).eq(spelled(other))
}

fn spelled(text: &str) -> impl Iterator<Item = String> {
    let is_mark = |c: char| !c.is_alphanumeric() && !matches!(c, '+' | '#');
    let words = text
        .split_whitespace()
        .map(move |word| word.trim_matches(is_mark).to_lowercase());
    words.filter(|word| !word.is_empty())
}

/// A memory whose text was read, so that it can be compared with many others.
pub(super) struct ReadMemory<'m> {
    memory: &'m Memory,
    spelled: Vec<String>,
    words: BTreeSet<String>,
    subject: Option<Vec<String>>,
    /// What it says no longer holds, once that was searched.
    corrected: OnceCell<Option<Corrected>>,
    stances: OnceCell<Vec<Stance>>,
}

// === impl ReadMemory ===

impl<'m> ReadMemory<'m> {
    pub(super) fn new(memory: &'m Memory) -> Self {
        #[cfg(test)]
        tests::N_READ.with(|n_read| n_read.set(n_read.get() + 1));
        Self {
            memory,
            spelled: spelled(&memory.content).collect(),
            words: terms(&memory.content).into_iter().collect(),
            subject: subject(&memory.content),
            corrected: OnceCell::new(),
            stances: OnceCell::new(),
        }
    }

    pub(super) fn relation(&self, new: &Self) -> Relation {
        if self.spelled == new.spelled {
            return Relation::Same;
        }
        if self.memory.is_pinned() {
            return Relation::None;
        }
        let read = || Corrected::read(&new.memory.content);
        let is_it =
            |said: &Corrected| said.takes_back(&self.memory.content) && self.is_about(&said.what);
        if new.corrected.get_or_init(read).as_ref().is_some_and(is_it) {
            return Relation::OutOfDate;
        }
        let contradicts = |new: &Stance| self.stances().iter().any(|old| old.contradicts(new));
        let has_new_value = self.subject.is_some() && self.subject == new.subject;
        if has_new_value || new.stances().iter().any(contradicts) {
            return Relation::OutOfDate;
        }
        if self.memory.kind != new.memory.kind {
            return Relation::None;
        }
        let common = self.words.intersection(&new.words).count();
        let all = (self.words.len() + new.words.len() - common).max(1);
        let adds = |one: &Self, other: &Self| {
            let mut words = one.words.difference(&other.words);
            words.any(|word| !is_number(word))
        };
        // "We are 8 people" and "We are 9 people" have almost the same words, and do not say the same.
        if (common as f32) / (all as f32) < SAME || (adds(self, new) && adds(new, self)) {
            Relation::None
        } else if self.numbers().eq(new.numbers()) {
            Relation::Same
        } else {
            Relation::OutOfDate
        }
    }

    fn stances(&self) -> &[Stance] {
        let read = || Stance::read(&self.memory.content);
        self.stances.get_or_init(read)
    }

    /// Returns whether it says little else: "I like tea" is about tea, and "My tea shop is in Leeds" is not.
    fn is_about(&self, subject: &str) -> bool {
        let content = &self.memory.content;
        if subject.contains(is_cjk) {
            let n_letters = content.chars().filter(|c| c.is_alphanumeric()).count();
            return content.contains(subject) && 3 * subject.chars().count() >= n_letters;
        }
        let of_subject = terms(subject);
        let n_words = self.words.iter().filter(|word| *word != "im").count();
        let is_there = |word| self.words.contains(word);
        2 * of_subject.len() > n_words && of_subject.iter().all(is_there)
    }

    fn numbers(&self) -> impl Iterator<Item = &String> {
        self.words.iter().filter(|word| is_number(word))
    }
}

fn is_number(word: &str) -> bool {
    word.contains(|c: char| c.is_ascii_digit())
}

/// Compares all pairs of active memories of one scope. A memory that is replaced names the newer one.
pub(super) fn consolidate(memories: &mut [Memory]) -> Consolidated {
    let mut done = Consolidated::default();
    let mut read: Vec<(usize, ReadMemory<'_>)> = memories
        .iter()
        .enumerate()
        .filter(|(_, memory)| memory.is_active())
        .map(|(at, memory)| (at, ReadMemory::new(memory)))
        .collect();
    read.sort_by_key(|(_, one)| (one.memory.updated_ms, &one.memory.memory_id));
    let mut replaced = Vec::new();
    for (place, (at, old)) in read.iter().enumerate() {
        let mut newest_first = read[place + 1..].iter().rev().map(|(_, new)| new);
        let newer = newest_first.find_map(|new| match old.relation(new) {
            _ if old.memory.scope_id != new.memory.scope_id => None,
            Relation::None => None,
            relation => Some((relation, new.memory.memory_id.clone())),
        });
        if let Some((relation, superseded_by)) = newer {
            replaced.push((*at, superseded_by));
            done.merged += usize::from(relation == Relation::Same);
            done.superseded += usize::from(relation == Relation::OutOfDate);
        }
    }
    for (at, superseded_by) in replaced {
        memories[at].state = MemoryState::Superseded { superseded_by };
    }
    done
}

/// Returns what a statement is about: "editor" and "is" for "my editor is vim", "i" and "home" for "I live in Rome".
///
/// It returns `None` for a statement that may hold beside others with the same subject: "I am ..", "my dog is ..",
/// "our shop uses ..", "my team prefers ..", "my phone is on silent".
fn subject(text: &str) -> Option<Vec<String>> {
    let found = VERB.find(text).filter(|_| gives_value(text))?;
    let owned = text[..found.start()].to_lowercase();
    let verb = found.as_str().to_lowercase();
    let place = match verb.get(..4).unwrap_or_default() {
        "live" | "move" => Some("home"),
        "work" => Some("work"),
        _ => verb.starts_with(['住', '搬']).then_some("home"),
    };
    if let Some(place) = place {
        let person = PERSON.captures(&owned)?.iter().skip(1).flatten().next()?;
        return Some(vec![person.as_str().to_owned(), place.to_owned()]);
    }
    let is_of_owner = ["my ", "our ", "the ", "我的", "我们的"]
        .iter()
        .any(|beginning| owned.starts_with(beginning));
    let mut words = terms(&owned);
    let is_subject = is_of_owner && !words.is_empty() && words.len() <= MAX_SUBJECT;
    // "was" and "is" say something about the same property, and "is called" about another one.
    words.push(match verb.as_str() {
        "叫" | "是" => verb,
        "is" | "are" | "was" | "were" | "am" => "is".to_owned(),
        named if named.ends_with("called") || named.ends_with("named") => "is called".to_owned(),
        _ => return None,
    });
    is_subject.then_some(words)
}

#[cfg(test)]
mod tests {
    use metaclaw_chat::AgentId;

    use super::*;
    use crate::{
        journal::Origin,
        memory::{MemoryKind, MemoryScope},
    };

    std::thread_local! {
        pub(super) static N_READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    #[test]
    fn a_statement_replaces_only_one_about_the_same_property() {
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
            let is_same = subject(old).is_some() && subject(old) == subject(new);
            assert_eq!(is_same, expected, "{old} {new}");
        }
    }

    fn relation(old: &str, new: &str) -> Relation {
        let memory = |content: &str| Memory {
            memory_id: content.to_owned(),
            scope_id: MemoryScope::default(),
            kind: MemoryKind::Semantic,
            content: content.to_owned(),
            said: None,
            importance: 0.5,
            confidence: 0.5,
            origin: Origin::by_hand(&AgentId::default_agent(), None, 1),
            updated_ms: 1,
            state: MemoryState::Active,
        };
        let (old, new) = (memory(old), memory(new));
        ReadMemory::new(&old).relation(&ReadMemory::new(&new))
    }

    #[test]
    fn a_correction_replaces_what_it_corrects() {
        for (old, new, expected) in [
            (
                "I like green tea.",
                "I used to like green tea, but now I don't want it anymore.",
                Relation::OutOfDate,
            ),
            (
                "I don't want sliding doors.",
                "I used to dislike sliding doors.",
                Relation::OutOfDate,
            ),
            ("I'm a vegan.", "I'm no longer vegan.", Relation::OutOfDate),
            (
                "I love oat milk.",
                "I don't like oat milk any more.",
                Relation::OutOfDate,
            ),
            (
                "我喜欢绿茶。",
                "我以前喜欢绿茶，现在不想喝了。",
                Relation::OutOfDate,
            ),
            ("我吃素。", "我不再吃素了。", Relation::OutOfDate),
            (
                "I hate raw oysters.",
                "I used to hate raw oysters, but not now.",
                Relation::OutOfDate,
            ),
            (
                "I work for Siemens.",
                "I work for Bosch.",
                Relation::OutOfDate,
            ),
            (
                "I always drink two cups of green tea before work in the morning.",
                "I always drink two cups of green tea before work in the morning, please.",
                Relation::Same,
            ),
            (
                "We are 8 people in the team that builds large ships in Leeds, Hull, York and Whitby.",
                "We are 9 people in the team that builds large ships in Leeds, Hull, York and Whitby.",
                Relation::OutOfDate,
            ),
        ] {
            assert_eq!(relation(old, new), expected, "{old} {new}");
        }
    }

    #[test]
    fn a_memory_stays_beside_one_that_only_sounds_like_its_correction() {
        for (old, new) in [
            (
                "I'm allergic to tree nuts.",
                "I don't eat tree nuts any more.",
            ),
            (
                "I avoid peanut butter.",
                "I used to eat peanut butter, and my throat swelled up.",
            ),
            ("我对花生过敏", "我以前吃花生，结果住院了"),
            (
                "My tea shop is in Leeds.",
                "I used to like tea, but not now.",
            ),
            ("I'm allergic to sugar.", "I used to like sweet tea."),
            ("I like green tea.", "I like black tea."),
            (
                "Option C won't work for me because I don't want tilt-drum mechanism.",
                "Option C won't work for me because I don't want smartphone app interface.",
            ),
            (
                "I don't want any tea in the evening before I go to bed at home.",
                "I don't want any milk in the evening before I go to bed at home.",
            ),
        ] {
            assert_eq!(relation(old, new), Relation::None, "{old} {new}");
        }
    }

    #[test]
    fn the_opposite_or_another_value_replaces_and_an_idiom_does_not() {
        for line in include_str!("../../testdata/related.tsv").lines() {
            let [expected, old, new] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{line}");
            };
            let replaces = relation(old, new) == Relation::OutOfDate;
            assert_eq!(replaces, expected == "replaces", "{old} {new}");
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

    #[test]
    fn each_text_is_read_once_however_many_memories_there_are() {
        let memory = |n: u64| Memory {
            memory_id: n.to_string(),
            scope_id: MemoryScope::default(),
            kind: MemoryKind::Semantic,
            content: format!("Shelf {n} holds book {}.", 1_000 + n),
            said: None,
            importance: 0.5,
            confidence: 0.5,
            origin: Origin::by_hand(&AgentId::default_agent(), None, n),
            updated_ms: n,
            state: MemoryState::Active,
        };
        let mut memories: Vec<Memory> = (0..200).map(memory).collect();
        memories[7].content = memories[190].content.to_uppercase();
        N_READ.with(|n_read| n_read.set(0));
        let done = consolidate(&mut memories);
        assert_eq!((done.merged, done.superseded), (1, 0));
        assert_eq!(N_READ.with(std::cell::Cell::get), 200);
        let superseded_by = "190".to_owned();
        let replaced = MemoryState::Superseded { superseded_by };
        assert_eq!(memories[7].state, replaced);
    }
}
