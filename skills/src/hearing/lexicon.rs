//! Looks for a language's words in a sentence.

use regex::Regex;

use super::cue::{Cue, Cues};
use crate::patterns::pattern;

/// Where the words of a cue may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// At the beginning of a clause, behind what such a clause may begin with.
    Begins,
    /// Anywhere in the sentence.
    Within,
}

/// How a language is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Script {
    /// With spaces between words: a word is found as a whole.
    Words,
    Characters,
}

/// The words of each cue, compiled.
#[derive(Debug)]
pub(super) struct Lexicon {
    words: Vec<(Cue, Place, Regex)>,
}

// === impl Lexicon ===

impl Lexicon {
    /// `leads` and the words of a cue are patterns, with slashes or line breaks between them.
    pub(super) fn new(script: Script, leads: &str, words: &[(Cue, Place, &str)]) -> Self {
        let spaced = match script {
            Script::Words => "+",
            Script::Characters => "*",
        };
        let leads = listed(leads).collect::<Vec<_>>().join("|");
        let leads = format!(r"^(?:(?:{leads})[\s,:.!，！：-]{spaced})*");
        let compile = |(cue, place, words): &(Cue, Place, &str)| {
            let words: Vec<String> = listed(words).map(|word| script.bounded(word)).collect();
            let words = words.join("|");
            let begin = match place {
                Place::Begins => &*leads,
                Place::Within => "",
            };
            (*cue, *place, pattern(&format!("{begin}(?:{words})")))
        };
        Self {
            words: words.iter().map(compile).collect(),
        }
    }

    /// The cues that a sentence has in its words.
    pub(super) fn cues(&self, sentence: &str, clauses: &[&str]) -> Cues {
        let mut cues = Cues::default();
        for (cue, place, words) in &self.words {
            let is_there = match place {
                Place::Begins => clauses.iter().any(|clause| words.is_match(clause)),
                Place::Within => words.is_match(sentence),
            };
            if is_there {
                cues.insert(*cue);
            }
        }
        cues
    }
}

// === impl Script ===

impl Script {
    /// A word's pattern, so that it is found as a whole word.
    fn bounded(self, word: &str) -> String {
        if self == Self::Characters {
            return word.to_owned();
        }
        let begins = word.starts_with(|c: char| c.is_alphanumeric() || c == '(');
        let is_open = ["$", r"\b", r"\)", "*", "+"]
            .iter()
            .any(|end| word.ends_with(end));
        let (begin, end) = (
            if begins { r"\b" } else { "" },
            if is_open { "" } else { r"\b" },
        );
        format!("{begin}{word}{end}")
    }
}

fn listed(words: &str) -> impl Iterator<Item = &str> {
    let words = words.lines().flat_map(|line| line.split(" / "));
    words.map(str::trim).filter(|word| !word.is_empty())
}
