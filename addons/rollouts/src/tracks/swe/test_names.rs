//! Names of tests: a list, or a text that contains a list in JSON, as SWE-bench has it.

use serde::{Deserialize, Deserializer, de::Error as _};

#[derive(Deserialize)]
#[serde(untagged)]
enum TestNames {
    List(Vec<String>),
    Text(String),
}

pub(super) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    match TestNames::deserialize(from)? {
        TestNames::List(names) => Ok(names),
        TestNames::Text(text) => serde_json::from_str(&text).map_err(|error| {
            D::Error::custom(format!("{text:?} is no list of tests in JSON: {error}"))
        }),
    }
}
