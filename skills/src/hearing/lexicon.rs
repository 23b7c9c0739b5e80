//! Searches a sentence for a language's words, which tables in `data` list; one table has those that tell whose words a
//! sentence has.

use std::sync::LazyLock;

use regex::Regex;

use super::cue::{Cue, Cues, Facet};
use crate::words::{Table, named, pattern};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Script {
    /// With spaces between words, so a word is searched as a whole.
    Words,
    Characters,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// At the beginning of a clause, after introductory words.
    Begins,
    /// Anywhere in the sentence.
    Within,
}

#[derive(Debug)]
pub(super) struct Lexicon {
    words: Vec<(Cue, Place, Regex)>,
    /// Subjects of complaints, the wish that each implies, and the words.
    pub(super) complaints: Vec<(Facet, &'static str, Regex)>,
    pub(super) takes_back: Regex,
    /// A sentence that only says that the previous one should apply permanently.
    pub(super) holds: Regex,
    /// A sentence of thanks, assent or greeting.
    pub(super) small_talk: Regex,
    /// The beginning of a question or a task of the moment.
    pub(super) passing: Regex,
}

/// The lists of a table that are neither cues nor complaints.
const SENTENCES: [&str; 8] = [
    "leads",
    "opening",
    "^takes_back",
    "takes_back",
    "standing",
    "holds",
    "small_talk",
    "passing",
];

// === impl Lexicon ===

impl Lexicon {
    /// Reads a table. `data/english.tsv` explains its lines.
    pub(super) fn read(script: Script, table: &'static str) -> Self {
        let table = Table::read(table);
        let any = |kind: &str| table.list(kind).join("|");
        let spaced = match script {
            Script::Words => "+",
            Script::Characters => "*",
        };
        let leads = format!(r"^(?:(?:{})[\s,:.!，！：-]{spaced})*", any("leads"));
        let [opening, begins, within] = ["opening", "^takes_back", "takes_back"].map(any);
        let bounded = |words: &[&str]| {
            let words = words.iter().map(|word| script.bounded(word));
            words.collect::<Vec<_>>().join("|")
        };
        let small_talk = bounded(table.list("small_talk"));
        let passing = bounded(table.list("passing"));
        let mut lexicon = Self {
            words: Vec::new(),
            complaints: Vec::new(),
            takes_back: pattern(&format!("^(?:{opening})*(?:{begins})|{within}")),
            holds: pattern(&any("holds").replace("{standing}", &any("standing"))),
            small_talk: pattern(&format!(r"^\W*(?:(?:{small_talk})\W*)+$")),
            passing: pattern(&format!("{leads}(?:{passing})")),
        };
        for (kind, words) in &table.0 {
            if let Some(complaint) = kind.strip_prefix("complaint\t") {
                let (facet, wish) = complaint.split_once('\t').unwrap_or_default();
                let words = pattern(&words.join("|"));
                lexicon.complaints.push((named(facet), wish, words));
            } else if !SENTENCES.contains(kind) {
                let (cue, place, begin) = match kind.strip_prefix('^') {
                    Some(cue) => (cue, Place::Begins, &*leads),
                    None => (*kind, Place::Within, ""),
                };
                let words = pattern(&format!("{begin}(?:{})", bounded(words)));
                lexicon.words.push((named(cue), place, words));
            }
        }
        lexicon
    }

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

/// Words that tell whose words a sentence has. The table explains its lists.
pub(super) static VOICES: LazyLock<Table> =
    LazyLock::new(|| Table::read(include_str!("../../data/voices.tsv")));

pub(super) fn voice(kind: &str) -> Regex {
    pattern(&format!("(?i){}", VOICES.list(kind).join("|")))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const TABLES: [(&str, &str); 5] = [
        ("english", include_str!("../../data/english.tsv")),
        ("chinese", include_str!("../../data/chinese.tsv")),
        ("facets", include_str!("../../data/facets.tsv")),
        ("words", include_str!("../../data/words.tsv")),
        ("voices", include_str!("../../data/voices.tsv")),
    ];

    const WORD_KINDS: [&str; 8] = [
        "silent", "frame", "around", "not", "limits", "general", "narrow", "opener",
    ];
    const VOICE_KINDS: [&str; 8] = [
        "inline",
        "hands_over",
        "for_work",
        "own_wish",
        "announces_own",
        "reported",
        "pasted",
        "task",
    ];

    fn is_read(table: &str, line: &str) -> bool {
        let Some((kind, words)) = line.rsplit_once('\t') else {
            return false;
        };
        let is_facet = |name: &str| serde_json::from_value::<Facet>(name.into()).is_ok();
        let is_cue = |name: &str| serde_json::from_value::<Cue>(name.into()).is_ok();
        let is_kind = match (table, kind.strip_prefix("complaint\t")) {
            ("words", _) => WORD_KINDS.contains(&kind),
            ("voices", _) => VOICE_KINDS.contains(&kind),
            ("facets", _) => is_facet(kind),
            (_, Some(complaint)) => {
                let complaint = complaint.split_once('\t');
                complaint.is_some_and(|(facet, wish)| is_facet(facet) && !wish.is_empty())
            }
            (_, None) => {
                SENTENCES.contains(&kind) || is_cue(kind.strip_prefix('^').unwrap_or(kind))
            }
        };
        let is_word = |word: &str| {
            let is_pattern = Regex::new(&word.replace("{standing}", "x")).is_ok();
            is_pattern && !word.is_empty() && word.trim() == word
        };
        is_kind && words.split(" / ").all(is_word)
    }

    #[test]
    fn every_line_of_the_tables_is_read() {
        for (table, text) in TABLES {
            let is_list = |line: &&str| !line.is_empty() && !line.starts_with('#');
            for line in text.lines().filter(is_list) {
                assert!(is_read(table, line), "{table}: {line:?}");
            }
            // A list whose lines stand apart would be read in part.
            let kinds = Table::read(text).0.into_iter().map(|(kind, _)| kind);
            let mut seen = HashSet::new();
            for kind in kinds {
                assert!(seen.insert(kind), "{table}: {kind} is there twice");
            }
        }
    }

    #[test]
    fn a_bad_line_of_a_table_is_found() {
        for (table, line) in [
            ("english", "leads and / but"),
            ("english", "no_cue\tand / but"),
            ("english", "^^order\tanswer"),
            ("english", "you\tyou / "),
            ("english", "you\tyou /  your"),
            ("english", "you\t(you"),
            ("english", "complaint\tno_subject\tBe brief.\ttoo long"),
            ("english", "complaint\tlength\ttoo long"),
            ("chinese", "\t你"),
            ("facets", "order first\tfirst"),
            ("words", "loud\ta / b"),
            ("voices", "repeated\tsaid"),
        ] {
            assert!(!is_read(table, line), "{table}: {line:?}");
        }
    }
}
