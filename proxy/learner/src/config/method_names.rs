//! `rl.method`: the names of methods, joined by `+`, and which of them go together.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::methods::{ALIASES, ALL, Method, TrainingSignal, allowed_names};

/// Words joined by `+`, or a list of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema)]
#[schemars(extend("format" = "words"))]
pub struct Words(#[schemars(with = "String")] pub Vec<String>);

// === impl Words ===

impl Serialize for Words {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.join("+"))
    }
}

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum TextOrList {
            Text(String),
            List(Vec<String>),
        }
        let words = match TextOrList::deserialize(deserializer)? {
            TextOrList::Text(text) => text.split('+').map(|word| word.trim().to_owned()).collect(),
            TextOrList::List(words) => words,
        };
        Ok(Self(words))
    }
}

/// `rl.method`: which methods make up a step, in the order in which their examples go to the training server.
#[derive(Debug, Clone, JsonSchema)]
#[schemars(extend("format" = "words", "enum" = allowed_names()))]
pub struct Methods(#[schemars(with = "String")] Vec<&'static dyn Method>);

// === impl Methods ===

impl Methods {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static dyn Method> {
        self.0.iter().copied()
    }

    pub(crate) fn learning_from(&self, signal: TrainingSignal) -> Option<&'static dyn Method> {
        self.iter().find(|m| m.signals().contains(&signal))
    }

    pub(crate) fn has(&self, signal: TrainingSignal) -> bool {
        self.learning_from(signal).is_some()
    }

    /// Whether verdicts push each id by an advantage of its own, which an external teacher may add to.
    pub fn has_advantages(&self) -> bool {
        let verdict = self.learning_from(TrainingSignal::Verdict);
        verdict.is_some_and(|verdict| !verdict.signals().contains(&TrainingSignal::Hint))
    }

    fn words(&self) -> Words {
        Words(self.iter().map(|method| method.name().to_owned()).collect())
    }

    /// # Errors
    /// What does not go together, or is not known, in words.
    fn named(words: &[String]) -> Result<Self, String> {
        for word in words {
            if !ALL.iter().any(|method| is_called(*method, word)) {
                let of_verdicts = names(TrainingSignal::Verdict);
                return Err(format!(
                    "{word:?} is not known: context_distillation (or redo), opd, and one of {of_verdicts}, joined by +"
                ));
            }
        }
        let named = |method: &&dyn Method| words.iter().any(|word| is_called(*method, word));
        let methods = Self(ALL.into_iter().filter(named).collect());
        if methods.0.is_empty() {
            return Err("is empty: give at least one method".to_owned());
        }
        methods.clash().map_or(Ok(methods), Err)
    }

    fn clash(&self) -> Option<String> {
        for signal in [
            TrainingSignal::Verdict,
            TrainingSignal::Hint,
            TrainingSignal::Target,
        ] {
            let mut both = self.iter().filter(|m| m.signals().contains(&signal));
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
    method.name() == word || ALIASES.contains(&(word, method.name()))
}

fn names(signal: TrainingSignal) -> String {
    let all = ALL.iter().filter(|m| m.signals().contains(&signal));
    let names: Vec<&str> = all.map(|method| method.name()).collect();
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
                .filter(|method| method.signals() == [TrainingSignal::Target])
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
