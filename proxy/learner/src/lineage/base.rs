//! Which base model ids, adapters and checkpoints are of.

use std::fmt;

use metaclaw_turns::Tokens;
use serde::{Deserialize, Serialize};

/// A base model: by its content where that is known, else by its name.
///
/// A name is that of a file, which may be renamed, or stay while its content changes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct BaseModel {
    /// As the trainer names it beside what it samples.
    #[serde(rename = "base")]
    name: String,
    #[serde(
        rename = "base_fingerprint",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    fingerprint: Option<String>,
}

// === impl BaseModel ===

impl BaseModel {
    /// What sampled these ids.
    pub(crate) fn of(tokens: &Tokens) -> Self {
        Self {
            name: tokens.base.clone(),
            fingerprint: tokens.base_fingerprint.clone(),
        }
    }

    /// Whether both are the same, as far as can be told.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (&self.fingerprint, &other.fingerprint) {
            (Some(own), Some(theirs)) => own == theirs,
            (None, _) | (_, None) => self.name == other.name,
        }
    }

    /// Whether a trainer that tells its base's fingerprint can have this one.
    pub(crate) fn may_be(&self, fingerprint: Option<&str>) -> bool {
        let own = self.fingerprint.as_deref();
        own.is_none() || fingerprint.is_none() || own == fingerprint
    }
}

impl fmt::Display for BaseModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
impl BaseModel {
    pub(crate) fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            fingerprint: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_counts_before_names() {
        let base = |name: &str, fingerprint: Option<&str>| BaseModel {
            name: name.to_owned(),
            fingerprint: fingerprint.map(str::to_owned),
        };
        let own = base("a", Some("1"));
        assert!(own.is(&base("b", Some("1"))), "renamed");
        assert!(!own.is(&base("a", Some("2"))), "another file");
        // Written by an older version, or told by a fork's server.
        assert!(own.is(&base("a", None)) && !own.is(&base("b", None)));
        assert!(own.may_be(None) && own.may_be(Some("1")) && !own.may_be(Some("2")));
        assert!(base("a", None).may_be(Some("2")));
    }

    #[test]
    fn manifests_of_before_read_back() {
        let read: BaseModel = serde_json::from_str(r#"{"base":"a"}"#).unwrap();
        assert!(read.is(&BaseModel::named("a")));
    }
}
