//! `rl.method`: what a step is made of.

use std::fmt;

use metaclaw_chat::Score;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::words::Words;

/// `rl.method`: which methods make up a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Methods {
    /// cross_entropy on the teacher's reply, after the turn's own prompt.
    pub redo: bool,
    /// The turn's own ids and those that were likely beside them, towards what a teacher finds that was told the hint.
    pub opd: bool,
    /// What verdicts do to the turn's own ids.
    pub verdict: Option<VerdictMethod>,
}

/// How a turn's own ids are pushed by its verdict: one of several, since each is the whole of what a verdict says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerdictMethod {
    /// By how much better than usual it was.
    BinaryRl,
    /// OpenClaw-RL's: by the verdict itself, and towards a hinted teacher as opd is.
    Hybrid,
    /// By how much better than other replies to the same prompt it was.
    Grpo,
    /// The Python original's: by how much better than the others of its batch it was.
    Metaclaw,
}

// === impl VerdictMethod ===

impl VerdictMethod {
    const ALL: [Self; 4] = [Self::BinaryRl, Self::Hybrid, Self::Grpo, Self::Metaclaw];

    /// As in `rl.method`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BinaryRl => "binary_rl",
            Self::Hybrid => "hybrid",
            Self::Grpo => "grpo",
            Self::Metaclaw => "metaclaw",
        }
    }

    /// Whether what it makes of a verdict depends on the others in its batch.
    pub(crate) fn counts_others(self) -> bool {
        matches!(self, Self::Grpo | Self::Metaclaw)
    }

    /// Whether it has a use for a turn with this verdict.
    pub(crate) fn takes(self, score: Option<Score>) -> bool {
        match score {
            Some(Score::Good | Score::Bad) => true,
            // It counts in the mean, and may be the only one of its session.
            Some(Score::Unclear) => self == Self::Metaclaw,
            None => false,
        }
    }
}

// === impl Methods ===

impl Methods {
    /// Whether a turn's own ids are held against a teacher that was told what would have been better.
    pub(crate) fn distils(self) -> bool {
        self.opd || self.is_openclaw()
    }

    /// Whether verdicts push each id by an advantage of its own, which others may add to.
    pub fn has_advantages(self) -> bool {
        self.verdict.is_some() && !self.is_openclaw()
    }

    /// Whether that is done in OpenClaw-RL's own form.
    pub(crate) fn is_openclaw(self) -> bool {
        self.verdict == Some(VerdictMethod::Hybrid)
    }

    fn words(self) -> Words {
        let built = [(self.redo, "redo"), (self.opd, "opd")];
        let built = built.into_iter().filter(|(on, _)| *on);
        let verdict = self.verdict.map(VerdictMethod::as_str);
        let names = built.map(|(_, name)| name).chain(verdict);
        Words(names.map(str::to_owned).collect())
    }

    /// # Errors
    /// What does not go together, or is not known, in words.
    fn of(words: &[String]) -> Result<Self, String> {
        let mut methods = Self {
            redo: false,
            opd: false,
            verdict: None,
        };
        for word in words {
            let verdict = VerdictMethod::ALL
                .into_iter()
                .find(|it| it.as_str() == word);
            match (word.as_str(), verdict, methods.verdict) {
                ("redo", ..) => methods.redo = true,
                ("opd", ..) => methods.opd = true,
                (_, Some(one), Some(other)) if one != other => {
                    return Err(format!(
                        "{} and {} both say what a verdict does: give one of binary_rl, hybrid, grpo, metaclaw",
                        other.as_str(),
                        one.as_str()
                    ));
                }
                (_, Some(one), _) => methods.verdict = Some(one),
                (_, None, _) => {
                    return Err(format!(
                        "{word:?} is not known: redo, opd, and one of binary_rl, hybrid, grpo, metaclaw, joined by +"
                    ));
                }
            }
        }
        if methods.opd && methods.is_openclaw() {
            return Err("hybrid has opd in it: give one of them".to_owned());
        }
        if methods.words().0.is_empty() {
            return Err("is empty: give at least one method".to_owned());
        }
        Ok(methods)
    }
}

impl Default for Methods {
    /// redo alone, which learns soonest of all that was measured (tests/bench/learn/README.md).
    fn default() -> Self {
        Self {
            redo: true,
            opd: false,
            verdict: None,
        }
    }
}

impl fmt::Display for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words().0.join("+"))
    }
}

impl Serialize for Methods {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.words().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Methods {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let words = Words::deserialize(deserializer)?.0;
        Self::of(&words).map_err(|why| de::Error::custom(format!("rl.method {why}")))
    }
}
