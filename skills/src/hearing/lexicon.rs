//! Searches a sentence for a language's words.

use regex::Regex;

use super::cue::{Cue, Cues};
use crate::patterns::pattern;

/// The possible place of a cue's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// At the beginning of a clause, after introductory words.
    Begins,
    /// Anywhere in the sentence.
    Within,
}

/// How a language is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Script {
    /// With spaces between words, so a word is searched as a whole.
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
    /// `leads` and the words of a cue are patterns, separated by slashes or line breaks.
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

    /// Returns the cues whose words a sentence contains.
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
    /// Makes a word's pattern match only whole words.
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
