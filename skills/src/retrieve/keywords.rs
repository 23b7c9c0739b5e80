//! Searches a request for a skill's keywords: words, phrases, and parts of the text.
//!
//! People seldom say the name of a skill. They name what they see: an error, a file, a tool, a situation. A word must
//! occur by itself. All words of a phrase must occur close together. A keyword with Chinese characters or symbols must
//! occur exactly.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use aho_corasick::AhoCorasick;

use super::samples::CountedSamples;
use crate::words::{all_terms, is_cjk, stems};

/// The largest number of other words between those of a phrase.
const SLACK: usize = 3;

/// The keywords of all skills.
#[derive(Default)]
pub(super) struct Keywords {
    words: BTreeMap<String, Keyword>,
    /// The phrases by their longest word.
    phrases: BTreeMap<String, Vec<Phrase>>,
    /// All exact parts in one automaton, or `None` if there are none.
    parts: Option<AhoCorasick>,
    of_part: Vec<Keyword>,
}

#[derive(Debug, Clone, Default)]
struct Keyword {
    skills: BTreeSet<usize>,
    /// Its evidence in nats.
    says: f32,
}

struct Phrase {
    words: Vec<String>,
    keyword: Keyword,
}

// === impl Keywords ===

impl Keywords {
    /// Reads the keywords of skills, given with their numbers.
    pub(super) fn build<'k>(
        keywords: impl Iterator<Item = (usize, &'k str)>,
        samples: &CountedSamples,
    ) -> Self {
        let mut words = BTreeMap::<String, Keyword>::new();
        let mut phrases = BTreeMap::<Vec<String>, Keyword>::new();
        let mut parts = BTreeMap::<String, Keyword>::new();
        for (skill, keyword) in keywords {
            let keyword = keyword.to_lowercase();
            let stems = stems(&keyword);
            let found = if is_part(&keyword) {
                parts.entry(keyword).or_default()
            } else if let [word] = stems.as_slice() {
                words.entry(word.clone()).or_default()
            } else {
                phrases.entry(stems).or_default()
            };
            found.skills.insert(skill);
        }
        phrases.remove(&Vec::new());
        for (word, keyword) in &mut words {
            keyword.says = samples.selectivity([&**word].into_iter());
        }
        for (part, keyword) in &mut parts {
            let terms = all_terms(part);
            keyword.says = match terms.as_slice() {
                // Symbols alone occur in few requests.
                [] => samples.rarest(),
                terms => samples.selectivity(terms.iter().map(String::as_str)),
            };
        }
        let mut by_word = BTreeMap::<String, Vec<Phrase>>::new();
        for (words, mut keyword) in phrases {
            keyword.says = samples.selectivity(words.iter().map(String::as_str));
            let longest = words.iter().max_by_key(|word| word.len());
            let longest = longest.cloned().unwrap_or_default();
            let phrase = Phrase { words, keyword };
            by_word.entry(longest).or_default().push(phrase);
        }
        let automaton = AhoCorasick::new(parts.keys()).ok();
        Self {
            words,
            phrases: by_word,
            parts: automaton.filter(|_| !parts.is_empty()),
            of_part: parts.into_values().collect(),
        }
    }

    /// Returns the evidence of the keywords in a text for each skill, in nats. Each keyword counts once. A rarer
    /// keyword counts more, and one that several of these skills share counts less.
    pub(super) fn search(
        &self,
        text: &str,
        is_there: impl Fn(usize) -> bool,
    ) -> BTreeMap<usize, f32> {
        let text = text.to_lowercase();
        let said = stems(&text);
        let mut scores = BTreeMap::<usize, f32>::new();
        let mut count = |keyword: &Keyword| {
            let there = keyword.skills.iter().filter(|skill| is_there(**skill));
            let there: Vec<_> = there.collect();
            let shared = (there.len().max(1) as f32).ln();
            for skill in there {
                *scores.entry(*skill).or_default() += (keyword.says - shared).max(0.0);
            }
        };
        let different: BTreeSet<&str> = said.iter().map(String::as_str).collect();
        for word in &different {
            self.words.get(*word).into_iter().for_each(&mut count);
            for phrase in self.phrases.get(*word).into_iter().flatten() {
                if stands(&phrase.words, &said) {
                    count(&phrase.keyword);
                }
            }
        }
        let found = self
            .parts
            .iter()
            .flat_map(|parts| parts.find_overlapping_iter(&text));
        let found: BTreeSet<usize> = found.map(|it| it.pattern().as_usize()).collect();
        for part in found {
            count(&self.of_part[part]);
        }
        scores
    }
}

impl fmt::Debug for Keywords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keywords").finish_non_exhaustive()
    }
}

/// Returns whether it must occur exactly, because it has Chinese characters or symbols.
fn is_part(keyword: &str) -> bool {
    let is_word =
        |c: char| c.is_alphanumeric() && !is_cjk(c) || matches!(c, ' ' | '-' | '\'' | '’');
    !keyword.chars().all(is_word)
}

/// Returns whether all words of a phrase occur within a short distance, in any order.
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

    fn scores(text: &str, is_there: impl Fn(usize) -> bool) -> BTreeMap<usize, f32> {
        let keywords: [&[&str]; 3] = [
            &["debug", "stack trace", "报错"],
            &["=if(", "how many"],
            &["schedule", "debug"],
        ];
        let numbered = keywords.iter().enumerate();
        let samples = CountedSamples::build(
            ["I debug\nwhat a trace\nthe end"].into_iter(),
            std::iter::empty(),
        );
        let index = Keywords::build(
            numbered.flat_map(|(number, it)| it.iter().map(move |it| (number, *it))),
            &samples,
        );
        index.search(text, is_there)
    }

    fn found(text: &str) -> Vec<usize> {
        scores(text, |number| number < 2).into_keys().collect()
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
        assert_eq!(found("what if"), Vec::<usize>::new());
        assert_eq!(found("it was scheduled"), Vec::<usize>::new());
        let all = scores("it was scheduled", |_| true);
        assert!(all.into_keys().eq([2]));
    }

    #[test]
    fn what_is_rare_says_more_and_what_skills_share_less() {
        let alone = |text: &str| scores(text, |number| number == 0)[&0];
        assert!(alone("debug") < alone("报错"));
        let shared = scores("debug", |_| true);
        assert!(shared[&0] < alone("debug"), "{shared:?}");
        assert!(shared[&0].total_cmp(&shared[&2]).is_eq(), "{shared:?}");
    }
}
