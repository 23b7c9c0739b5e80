//! What a skill's keywords find: words, phrases, and parts of the text.
//!
//! People seldom say what a skill is called. They name what they see: an error, a file, a tool, a situation. A word
//! stands for itself; of a phrase all words must stand close together; what has Chinese characters or symbols in it
//! is looked for as it stands.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use aho_corasick::AhoCorasick;

use crate::words::{is_cjk, stems};

/// So many other words may stand between those of a phrase.
const SLACK: usize = 3;
/// A phrase, and a part of several characters, says more than a word.
const PHRASE: f32 = 1.6;
/// Characters from which a part says as much as a phrase.
const LONG_PART: usize = 4;

/// The keywords of all skills.
pub(super) struct Keywords {
    /// Which skills have a word.
    words: BTreeMap<String, BTreeSet<usize>>,
    /// The phrases that have a word as their rarest.
    phrases: BTreeMap<String, Vec<Phrase>>,
    /// All parts at once; none where there are none.
    parts: Option<AhoCorasick>,
    /// Of each part: which skills have it, and what it says.
    of_part: Vec<(BTreeSet<usize>, f32)>,
}

struct Phrase {
    words: Vec<String>,
    skill: usize,
}

// === impl Keywords ===

impl Keywords {
    /// Reads the keywords of skills, given with their numbers.
    pub(super) fn build<'k>(keywords: impl Iterator<Item = (usize, &'k [String])>) -> Self {
        let mut words = BTreeMap::<String, BTreeSet<usize>>::new();
        let mut phrases = Vec::new();
        let mut parts = BTreeMap::<String, BTreeSet<usize>>::new();
        for (skill, keywords) in keywords {
            for keyword in keywords {
                let keyword = keyword.to_lowercase();
                if is_part(&keyword) {
                    parts.entry(keyword).or_default().insert(skill);
                    continue;
                }
                match <[String; 1]>::try_from(stems(&keyword)) {
                    Ok([word]) => {
                        words.entry(word).or_default().insert(skill);
                    }
                    Err(words) => phrases.push(Phrase { words, skill }),
                }
            }
        }
        let mut by_word = BTreeMap::<String, Vec<Phrase>>::new();
        for phrase in phrases.into_iter().filter(|it| !it.words.is_empty()) {
            let longest = phrase.words.iter().max_by_key(|word| word.len());
            let longest = longest.cloned().unwrap_or_default();
            by_word.entry(longest).or_default().push(phrase);
        }
        let automaton = AhoCorasick::new(parts.keys()).ok();
        let weight = |part: &str| {
            let is_long = part.chars().count() >= LONG_PART;
            if is_long { PHRASE } else { 1.0 }
        };
        Self {
            words,
            phrases: by_word,
            parts: automaton.filter(|_| !parts.is_empty()),
            of_part: parts
                .into_iter()
                .map(|(part, skills)| (skills, weight(&part)))
                .collect(),
        }
    }

    /// How well each skill that is found fits, by the keywords that stand in a text: each counts once, and the more
    /// skills have it, the less.
    pub(super) fn search(&self, text: &str, n_skills: usize) -> BTreeMap<usize, f32> {
        let text = text.to_lowercase();
        let said = stems(&text);
        let mut scores = BTreeMap::<usize, f32>::new();
        let mut count = |skills: &BTreeSet<usize>, weight: f32| {
            let rarity = (1.0 + n_skills as f32 / skills.len() as f32).ln();
            for skill in skills {
                *scores.entry(*skill).or_default() += weight * rarity;
            }
        };
        let different: BTreeSet<&str> = said.iter().map(String::as_str).collect();
        for word in &different {
            if let Some(skills) = self.words.get(*word) {
                count(skills, 1.0);
            }
            for phrase in self.phrases.get(*word).into_iter().flatten() {
                if stands(&phrase.words, &said) {
                    count(&BTreeSet::from([phrase.skill]), PHRASE);
                }
            }
        }
        let found = self
            .parts
            .iter()
            .flat_map(|parts| parts.find_overlapping_iter(&text));
        let found: BTreeSet<usize> = found.map(|it| it.pattern().as_usize()).collect();
        for part in found {
            let (skills, weight) = &self.of_part[part];
            count(skills, *weight);
        }
        scores
    }
}

impl fmt::Debug for Keywords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keywords").finish_non_exhaustive()
    }
}

/// Whether it is looked for as it stands: it has Chinese characters, or symbols that are no word's.
fn is_part(keyword: &str) -> bool {
    let is_word =
        |c: char| c.is_alphanumeric() && !is_cjk(c) || matches!(c, ' ' | '-' | '\'' | '’');
    !keyword.chars().all(is_word)
}

/// Whether all words of a phrase stand within a short distance, in any order.
fn stands(phrase: &[String], said: &[String]) -> bool {
    let reach = phrase.len() + SLACK;
    (0..said.len()).any(|from| {
        let window = &said[from..said.len().min(from + reach)];
        phrase.contains(&said[from]) && phrase.iter().all(|word| window.contains(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<usize> {
        let keywords: [Vec<String>; 3] = [
            vec!["debug".into(), "stack trace".into(), "报错".into()],
            vec!["=if(".into(), "how many".into()],
            vec!["schedule".into()],
        ];
        let numbered = keywords.iter().enumerate();
        let index = Keywords::build(numbered.map(|(number, it)| (number, it.as_slice())));
        index.search(text, 3).into_keys().collect()
    }

    #[test]
    fn words_phrases_and_parts_are_found_and_nothing_else() {
        assert_eq!(found("I am debugging this"), [0]);
        assert_eq!(found("here is the trace of the whole stack"), [0]);
        assert_eq!(
            found("the stack is deep, and I lost every trace"),
            Vec::<usize>::new()
        );
        assert_eq!(found("程序报错了"), [0]);
        assert_eq!(found("=IF(B2>1,2)"), [1]);
        assert_eq!(found("how very many are there"), [1]);
        assert_eq!(found("many ask how"), [1]);
        assert_eq!(found("it was scheduled"), [2]);
        assert_eq!(found("what if"), Vec::<usize>::new());
    }
}
