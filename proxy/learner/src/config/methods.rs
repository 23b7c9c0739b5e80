//! `rl.method`: what a step is made of.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::words::Words;

/// `rl.method`: which methods make up a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Methods {
    /// cross_entropy on the teacher's reply, after the turn's own prompt.
    pub redo: bool,
    /// The turn's own ids, pushed by the verdict.
    pub binary_rl: bool,
    /// Methods that are known and not built yet.
    pub later: Vec<String>,
}

/// Methods that have a name and no code yet.
const LATER: [&str; 4] = ["opd", "hybrid", "grpo", "metaclaw"];

// === impl Methods ===

impl Methods {
    fn words(&self) -> Words {
        let built = [(self.redo, "redo"), (self.binary_rl, "binary_rl")];
        let built = built
            .into_iter()
            .filter(|(on, _)| *on)
            .map(|(_, name)| name.to_owned());
        Words(built.chain(self.later.iter().cloned()).collect())
    }
}

impl Default for Methods {
    fn default() -> Self {
        Self {
            redo: true,
            binary_rl: true,
            later: Vec::new(),
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
        let mut methods = Self {
            redo: false,
            binary_rl: false,
            later: Vec::new(),
        };
        for word in Words::deserialize(deserializer)?.0 {
            match word.as_str() {
                "redo" => methods.redo = true,
                "binary_rl" => methods.binary_rl = true,
                later if LATER.contains(&later) => methods.later.push(word),
                _ => {
                    return Err(de::Error::custom(format!(
                        "rl.method {word:?} is not known: redo, binary_rl, {} joined by +",
                        LATER.join(", ")
                    )));
                }
            }
        }
        if !methods.redo && !methods.binary_rl {
            return Err(de::Error::custom(format!(
                "rl.method {methods} is not built yet: give redo, binary_rl or both"
            )));
        }
        Ok(methods)
    }
}
