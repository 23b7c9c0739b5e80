//! The base model that ids, adapters and checkpoints belong to.

use std::fmt;

use metaclaw_trainer_api::wire::Health;
use metaclaw_turns::Tokens;
use serde::{Deserialize, Serialize};

/// A base model is identified by its content if that is known, otherwise by its name.
///
/// A name is a file's name, so the file may be renamed, or its content may change.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct BaseModel {
    /// The base model as the trainer names it with what it samples.
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
    /// Returns the model that sampled these ids.
    pub(crate) fn of(tokens: &Tokens) -> Self {
        Self {
            name: tokens.base.clone(),
            fingerprint: tokens.base_fingerprint.clone(),
        }
    }

    /// Returns the model that a training server has loaded.
    pub(crate) fn served(health: &Health) -> Self {
        Self {
            name: health.model.clone(),
            fingerprint: health.base_fingerprint.clone(),
        }
    }

    /// Returns whether both are the same, as far as is known.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (&self.fingerprint, &other.fingerprint) {
            (Some(own), Some(theirs)) => own == theirs,
            (None, _) | (_, None) => self.name == other.name,
        }
    }

    /// Returns whether a trainer that reports its base's fingerprint can have this base.
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
        // It was written by an older version, or reported by another server.
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
