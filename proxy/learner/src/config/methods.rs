//! `rl.method`: what a step is made of.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::words::Words;
use crate::methods::{ALL, METHOD_NAMES, Method, TrainingSignal};

/// `rl.method`: which methods make up a step, in the order in which their examples go to the training server.
#[derive(Debug, Clone, JsonSchema)]
#[schemars(extend("format" = "words", "enum" = METHOD_NAMES))]
pub struct Methods(#[schemars(with = "String")] Vec<&'static dyn Method>);

// === impl Methods ===

impl Methods {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static dyn Method> {
        self.0.iter().copied()
    }

    /// The method that learns from this, if one does.
    pub(crate) fn of(&self, signal: TrainingSignal) -> Option<&'static dyn Method> {
        self.iter().find(|it| it.signals().contains(&signal))
    }

    /// Whether one of them learns from this.
    pub(crate) fn has(&self, signal: TrainingSignal) -> bool {
        self.of(signal).is_some()
    }

    /// Whether verdicts push each id by an advantage of its own, which an external teacher may add to.
    pub fn has_advantages(&self) -> bool {
        let verdict = self.of(TrainingSignal::Verdict);
        verdict.is_some_and(|it| !it.signals().contains(&TrainingSignal::Hint))
    }

    fn words(&self) -> Words {
        Words(self.iter().map(|it| it.name().to_owned()).collect())
    }

    /// # Errors
    /// What does not go together, or is not known, in words.
    fn named(words: &[String]) -> Result<Self, String> {
        for word in words {
            if !ALL.iter().any(|it| is_called(*it, word)) {
                let of_verdicts = names(TrainingSignal::Verdict);
                return Err(format!(
                    "{word:?} is not known: context_distillation (or redo), opd, and one of {of_verdicts}, joined by +"
                ));
            }
        }
        let named = |it: &&dyn Method| words.iter().any(|word| is_called(*it, word));
        let methods = Self(ALL.into_iter().filter(named).collect());
        if methods.0.is_empty() {
            return Err("is empty: give at least one method".to_owned());
        }
        methods.clash().map_or(Ok(methods), Err)
    }

    /// Two methods that learn from the same signal, in words.
    fn clash(&self) -> Option<String> {
        for signal in [
            TrainingSignal::Verdict,
            TrainingSignal::Hint,
            TrainingSignal::Target,
        ] {
            let mut both = self.iter().filter(|it| it.signals().contains(&signal));
            if let (Some(one), Some(other)) = (both.next(), both.next()) {
                let (one, other, allowed) = (one.name(), other.name(), names(signal));
                return Some(match signal {
                    TrainingSignal::Verdict => format!(
                        "{one} and {other} both say what a verdict does: give one of {allowed}"
                    ),
                    TrainingSignal::Hint | TrainingSignal::Target => {
                        format!("{one} has {other} in it: give one of them")
                    }
                });
            }
        }
        None
    }
}

fn is_called(method: &dyn Method, word: &str) -> bool {
    method.name() == word || method.alias() == Some(word)
}

/// The names of all methods that learn from this.
fn names(signal: TrainingSignal) -> String {
    let all = ALL.iter().filter(|it| it.signals().contains(&signal));
    let names: Vec<&str> = all.map(|it| it.name()).collect();
    names.join(", ")
}

impl PartialEq for Methods {
    fn eq(&self, other: &Self) -> bool {
        self.words() == other.words()
    }
}

impl Default for Methods {
    /// Context distillation alone, which learns soonest of all that was measured (tests/bench/learn/README.md).
    fn default() -> Self {
        let methods = ALL.into_iter();
        Self(
            methods
                .filter(|it| it.signals() == [TrainingSignal::Target])
                .collect(),
        )
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
        Self::named(&words).map_err(|why| de::Error::custom(format!("rl.method {why}")))
    }
}
