//! Names of adapters, checkpoints and training runs.

use std::{str::FromStr, sync::Arc};

/// The longest adapter or checkpoint name, in bytes: with a suffix it still fits in a file name.
const MAX_NAME: usize = 96;
const RUN_DIGITS: usize = 8;

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is not an allowed adapter or checkpoint name.
    #[error(
        "{kind} name {value:?} is not allowed: 1 to 96 of a-z A-Z 0-9 _ - . @, beginning with a letter, a digit or _"
    )]
    Name {
        /// `adapter` or `checkpoint`.
        kind: &'static str,
        value: String,
    },
    /// It is not a run id.
    #[error("session_id {value:?} is not allowed: 8 of 0-9 a-f, as lora/create returned it")]
    Run { value: String },
}

/// The name of saved adapter weights: a directory below `adapters/`, and a value of `model` in requests.
///
/// It has 1 to 96 of `a-z A-Z 0-9 _ - . @`, and begins with a letter, a digit or `_`; so it contains no path separator
/// and is never `.` or `..`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AdapterName(Arc<str>);

/// The name of a checkpoint (adapter, optimiser, step): a directory below `checkpoints/`.
///
/// The allowed characters are those of [`AdapterName`].
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CheckpointName(Arc<str>);

/// One training run on a server: 8 hex digits in lower case; the REST API calls it `session_id`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(Arc<str>);

fn is_component(value: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'@');
    let starts = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    value.len() <= MAX_NAME && value.bytes().next().is_some_and(starts) && value.bytes().all(legal)
}

fn component(kind: &'static str, value: &str) -> Result<Arc<str>, NameError> {
    if is_component(value) {
        return Ok(Arc::from(value));
    }
    let value = value.to_owned();
    Err(NameError::Name { kind, value })
}

// === impl AdapterName ===

impl FromStr for AdapterName {
    type Err = NameError;

    fn from_str(value: &str) -> Result<Self, NameError> {
        component("adapter", value).map(Self)
    }
}

impl From<&CheckpointName> for AdapterName {
    /// Returns the adapter that belongs to a checkpoint, which may have the same name.
    fn from(checkpoint: &CheckpointName) -> Self {
        Self(Arc::clone(&checkpoint.0))
    }
}

// === impl CheckpointName ===

impl FromStr for CheckpointName {
    type Err = NameError;

    fn from_str(value: &str) -> Result<Self, NameError> {
        component("checkpoint", value).map(Self)
    }
}

/// If both are of one step, they are stored under one name.
impl From<&AdapterName> for CheckpointName {
    fn from(name: &AdapterName) -> Self {
        Self(Arc::clone(&name.0))
    }
}

// === impl RunId ===

impl From<u32> for RunId {
    fn from(number: u32) -> Self {
        Self(format!("{number:08x}").into())
    }
}

impl FromStr for RunId {
    type Err = NameError;

    fn from_str(value: &str) -> Result<Self, NameError> {
        let hex = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        if value.len() == RUN_DIGITS && value.bytes().all(hex) {
            Ok(Self(Arc::from(value)))
        } else {
            let value = value.to_owned();
            Err(NameError::Run { value })
        }
    }
}

crate::text_names!(AdapterName, CheckpointName, RunId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_never_leave_its_folder() {
        let long = "a".repeat(97);
        let outside = "../x ../up a/b a/ a/. /etc . .. .hidden -x @x a\\b a\0";
        for bad in outside.split(' ').chain(["", "a b", &long]) {
            assert!(bad.parse::<AdapterName>().is_err(), "{bad:?}");
            assert!(bad.parse::<CheckpointName>().is_err(), "{bad:?}");
        }
        for good in ["main@12", "_default.l1@3", "a", &"a".repeat(96)] {
            assert_eq!(good.parse::<AdapterName>().unwrap().as_str(), good);
        }
    }

    #[test]
    fn a_run_id_is_eight_hex_digits() {
        assert_eq!("0000001f".parse::<RunId>(), Ok(RunId::from(31)));
        for bad in ["", "0000001F", "1f", "0000001f0", "../00000"] {
            assert!(bad.parse::<RunId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_bad_name_is_refused_when_deserialised() {
        let error = serde_json::from_str::<AdapterName>("\"../x\"").unwrap_err();
        insta::assert_snapshot!(error, @r#"adapter name "../x" is not allowed: 1 to 96 of a-z A-Z 0-9 _ - . @, beginning with a letter, a digit or _"#);
    }
}
