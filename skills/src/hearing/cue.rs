//! The cues for and against a wish in a sentence, their weights, and the thresholds.
//!
//! The weights are those of a logistic regression over the labelled messages in `testdata` (sets 1 to 4 and half of set
//! 5), rounded. Three were set by hand, because there are few examples: a name, a forbidden habit, and a manner that
//! should be constant. Nothing outweighs an inquiry or a taste. A cue that casts doubt counts for more than its weight:
//! with one doubt a sentence is at most proposed, with two it is ignored.
//!
//! The subject of a wish. Of two wishes about the same subject, the newer one applies.

use std::sync::LazyLock;

use regex::RegexSet;
use serde::{Deserialize, Serialize};

use crate::words::{Table, named, pattern_set};

/// Points from which a wish is in force at once.
const IN_FORCE: i32 = 17;
/// Points from which a wish is proposed.
const PROPOSED: i32 = 13;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Cue {
    /// "From now on", "as a rule".
    Lasting,
    /// "Always", "never", "every time", which also occur in sentences about buttons.
    Constant,
    /// A recurring case: "whenever you quote".
    Case,
    /// A remark besides the task: "one more thing".
    Aside,
    /// "I'd rather", "I can't stand".
    Preference,
    /// The assistant's words or products: "your answers", "all code you write".
    YourWork,
    /// Recommendations: the assistant's work if the sentence is about more than one, else the task.
    Advice,
    /// It addresses the assistant.
    You,
    /// "To me", "for me".
    ToMe,
    /// The owner wants to be asked first.
    Consent,
    /// The sound and look of answers.
    Manner,
    /// Unwanted habits of assistants: emojis, apologies, disclaimers.
    Habit,
    /// The owner's name or form of address.
    Name,
    Convention,
    /// "Don't", "stop", "no more".
    Forbids,
    /// A clause begins with an order.
    Order,
    /// The subject of the task: "this letter", "the button".
    AtHand,
    /// A role, a game.
    Role,
    /// A rule for somebody or something else: "guests must".
    Third,
    /// Other people, animals, programs.
    Others,
    /// A short time: "for now", "for this email".
    Once,
    /// A text to translate, print or write.
    TextWork,
    Correction,
    Praise,
    /// A thing that is built or cooked: a field, a script, a dough.
    Thing,
    Question,
    /// It asks or wonders whether something should be so, and does not ask for it.
    Inquiry,
    /// An order that is put even more softly: "do you think you could". Not each is one.
    Soft,
    /// A taste in things, and no manner of answers: "no cheese for me".
    Taste,
    /// An order in the form of a question: "could you".
    Polite,
    /// A question about what the assistant remembers.
    Recalls,
    /// The sentence begins with a recurring case, and the order refers to it.
    CaseFirst,
    Irony,
    /// It orders a text or an action.
    Task,
    /// Another sentence of the message orders one.
    TaskBeside,
    /// A colon, after which somebody else's text may follow.
    Colon,
}

/// The weights of cues, read from `data/cues.tsv`.
struct Weights {
    /// The points of a cue, alone or beside another one.
    points: Vec<(Cue, Option<Cue>, i32)>,
    doubts: Vec<Cue>,
    lasts: Vec<Cue>,
    asks: Vec<Cue>,
}

static WEIGHTS: LazyLock<Weights> = LazyLock::new(|| {
    let table = Table::read(include_str!("../../data/cues.tsv"));
    let list = |kind| table.list(kind).iter().copied().map(named).collect();
    let mut points = Vec::new();
    for (kind, cues) in &table.0 {
        let (number, with) = kind.split_once(" with ").unzip();
        let with = with.map(named);
        if let Ok(number) = number.unwrap_or(*kind).parse() {
            points.extend(cues.iter().map(|cue| (named(cue), with, number)));
        }
    }
    Weights {
        points,
        doubts: list("doubts"),
        lasts: list("lasts"),
        asks: list("asks"),
    }
});

/// How certain it is that a sentence is a wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certainty {
    /// It says how the assistant should behave from now on, so the wish is in force at once.
    Certain,
    /// It may say that, so the wish is proposed, and in force once its owner accepts it.
    Likely,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cues(u64);

// === impl Cues ===

impl Cues {
    pub(super) fn insert(&mut self, cue: Cue) {
        self.0 |= 1 << cue as u64;
    }

    pub(super) fn remove(&mut self, cue: Cue) {
        self.0 &= !(1 << cue as u64);
    }

    pub(super) fn has_any(self, cues: &[Cue]) -> bool {
        cues.iter().any(|cue| self.has(*cue))
    }

    pub(super) fn has(self, cue: Cue) -> bool {
        self.0 & (1 << cue as u64) != 0
    }

    /// Returns whether a question or a task with these cues may be about the manner of answers as well: "why do you list
    /// everything?"
    pub(super) fn hint_at_wish(self) -> bool {
        let is_common = |cue| matches!(cue, Cue::ToMe | Cue::Convention | Cue::Order);
        let mut points = WEIGHTS.points.iter();
        points.any(|(cue, with, n)| with.is_none() && *n > 0 && !is_common(*cue) && self.has(*cue))
    }

    /// Returns how certain the cues make it that the sentence is a wish, or `None` if it is none. `is_long` says that
    /// the message is longer than people usually type, so it may contain pasted text.
    pub(super) fn certainty(self, is_long: bool) -> Option<Certainty> {
        let doubts = WEIGHTS.doubts.iter();
        let n_doubts = doubts.filter(|doubt| self.has(**doubt)).count();
        let is_apart = self.has(Cue::Aside) && (self.has(Cue::Lasting) || self.has(Cue::Case));
        let enough_to_stand = self.points() >= IN_FORCE && self.has_any(&WEIGHTS.asks);
        let enough_to_propose = self.points() >= PROPOSED;
        match (n_doubts, is_long && !is_apart) {
            (0, false) if enough_to_stand => Some(Certainty::Certain),
            (0, false) if enough_to_propose => Some(Certainty::Likely),
            (1, false) if enough_to_propose && self.has_any(&WEIGHTS.lasts) => {
                Some(Certainty::Likely)
            }
            (0, true) if enough_to_stand => Some(Certainty::Likely),
            _ => None,
        }
    }

    fn points(self) -> i32 {
        let there = WEIGHTS
            .points
            .iter()
            .filter(|(cue, with, _)| self.has(*cue) && with.is_none_or(|with| self.has(with)));
        there.map(|(.., n)| n).sum()
    }
}

/// One subject of a wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Facet {
    /// The length of answers.
    Length,
    /// Their language.
    Language,
    /// Emoji and similar signs.
    Emoji,
    /// Lists and bullet points.
    Lists,
    Tables,
    /// Headings, bold type, or any Markdown.
    Markup,
    /// Formality and friendliness.
    Tone,
    /// Apologies, praise, disclaimers, introductions.
    Filler,
    /// The owner's name or form of address.
    Name,
    /// Metric or not, Celsius, currency.
    Units,
    /// The format of times and dates.
    Time,
    /// The simplicity of the words.
    Words,
    /// Whether the assistant asks the owner before it acts.
    Asking,
    Sources,
    /// The style and comments of code.
    Code,
    Examples,
    /// What comes first and what last.
    Order,
}

/// The subjects, and the words of each. If several match, the first one counts.
static FACETS: LazyLock<(Vec<Facet>, RegexSet)> = LazyLock::new(|| {
    let table = Table::read(include_str!("../../data/facets.tsv"));
    let patterns: Vec<String> = table.0.iter().map(|(_, words)| words.join("|")).collect();
    let facets = table.0.iter().map(|(facet, _)| named(facet)).collect();
    (facets, pattern_set(patterns.iter().map(String::as_str)))
});

// === impl Facet ===

impl Facet {
    /// Returns the subject of a sentence in lower case.
    pub(super) fn find(sentence: &str) -> Option<Self> {
        let (facets, patterns) = &*FACETS;
        let first = patterns.matches(sentence).iter().next()?;
        facets.get(first).copied()
    }

    /// Returns whether only one of two wishes about it can apply. For other subjects both can, such as "type hints" and
    /// "tabs" for code.
    pub fn is_exclusive(self) -> bool {
        matches!(
            self,
            Self::Length | Self::Language | Self::Name | Self::Emoji
        )
    }

    /// Returns the subject of a wish.
    pub fn of_wish(wish: &str) -> Option<Self> {
        Self::find(&wish.to_lowercase())
    }
}
