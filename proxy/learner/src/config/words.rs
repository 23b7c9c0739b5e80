//! Several words in one value.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

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
