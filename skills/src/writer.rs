//! The name of a home in a shared folder, which is also the name of its folder there.

use std::{
    fmt,
    hash::{BuildHasher as _, RandomState},
    str::FromStr,
    sync::Arc,
};

use metaclaw_chat::excerpt;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The longest name, in bytes.
const MAX_WRITER: usize = 64;
/// The part of the machine's name in it, in bytes.
const MAX_MACHINE: usize = 40;

/// One home among those that share skills: `laptop-3f2a9c01`.
///
/// It has 1 to 64 characters of `a-z 0-9 -`, and begins with a letter or a digit. So it contains no path separator.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriterId(Arc<str>);

/// A text is not the name of a home.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{value:?} is no name of a home: 1 to {MAX_WRITER} of a-z 0-9 -, beginning with a letter or a digit"
)]
pub struct WriterIdError {
    /// The beginning of the text.
    pub value: String,
}

// === impl WriterId ===

impl WriterId {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Makes a new name from a machine's name and a random number.
    pub(crate) fn of_machine(machine: &str) -> Self {
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let machine: String = machine.chars().filter(|c| legal(*c)).collect();
        let machine = machine.to_ascii_lowercase();
        let machine = machine.trim_matches('-');
        let machine = machine.get(..MAX_MACHINE).unwrap_or(machine);
        let machine = if machine.is_empty() { "home" } else { machine };
        // The standard library seeds this hasher from the operating system's random numbers.
        let random = RandomState::new().hash_one(machine) >> 32;
        Self(Arc::from(format!("{machine}-{random:08x}")))
    }
}

impl FromStr for WriterId {
    type Err = WriterIdError;

    fn from_str(value: &str) -> Result<Self, WriterIdError> {
        let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let legal = |c: char| is_letter(c) || c == '-';
        if value.starts_with(is_letter) && value.len() <= MAX_WRITER && value.chars().all(legal) {
            Ok(Self(Arc::from(value)))
        } else {
            Err(WriterIdError {
                value: excerpt(value).into_owned(),
            })
        }
    }
}

impl fmt::Display for WriterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for WriterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl Serialize for WriterId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for WriterId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_name_is_valid_and_of_its_own() {
        for machine in ["Anna's Laptop", "", "--", "工作", &"x".repeat(100)] {
            let (one, other) = (WriterId::of_machine(machine), WriterId::of_machine(machine));
            assert_ne!(one, other);
            assert_eq!(one.as_str().parse(), Ok(one));
        }
        for wrong in ["", "-a", "..", "a/b", "A", ".git", "a b", &"x".repeat(65)] {
            assert!(wrong.parse::<WriterId>().is_err(), "{wrong}");
        }
    }
}
