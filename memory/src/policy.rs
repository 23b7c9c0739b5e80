//! How memories are chosen: by the settings, or by the Python original's `policy.json` if it exists.

use std::{collections::BTreeMap, io, path::Path};

use metaclaw_skills::read_text;
use serde::Deserialize;

use crate::{
    config::{MemoryConfig, RetrievalMode},
    error::MemoryError,
    memory::MemoryKind,
};

/// The largest policy file that is read, in bytes.
const MAX_FILE: u64 = 256 * 1024;

/// Limits and weights by which memories are chosen. The default weights are those of the Python original.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryPolicy {
    /// Whether a session also gets memories that share no word with its first message.
    pub adds_important: bool,
    pub max_units: usize,
    /// The token budget, by estimate.
    pub max_tokens: usize,
    pub keyword_weight: f32,
    pub importance_weight: f32,
    pub recency_weight: f32,
    /// The age at which a memory is no longer recent, in hours.
    pub recent_hours: f32,
    pub kind_weights: BTreeMap<MemoryKind, f32>,
}

/// The fields of the Python original's `policy.json` that have an effect here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PolicyFile {
    retrieval_mode: Option<String>,
    max_injected_units: Option<usize>,
    max_injected_tokens: Option<usize>,
    keyword_weight: Option<f32>,
    importance_weight: Option<f32>,
    recency_weight: Option<f32>,
    recent_bonus_hours: Option<f32>,
    type_boosts: BTreeMap<String, f32>,
}

// === impl MemoryPolicy ===

impl MemoryPolicy {
    /// Returns the policy of the settings.
    pub(crate) fn of(config: &MemoryConfig) -> Self {
        let kind_weights = [
            (MemoryKind::WorkingSummary, 1.2),
            (MemoryKind::ProjectState, 1.1),
            (MemoryKind::Preference, 1.0),
            (MemoryKind::Semantic, 1.0),
            (MemoryKind::ProceduralObservation, 0.9),
            (MemoryKind::Episodic, 0.8),
        ];
        Self {
            adds_important: config.retrieval_mode != RetrievalMode::Keyword,
            max_units: config.max_injected_units,
            max_tokens: config.max_injected_tokens,
            keyword_weight: 1.0,
            importance_weight: 0.5,
            recency_weight: 0.3,
            recent_hours: 72.0,
            kind_weights: kind_weights.into(),
        }
    }

    /// Returns this policy with the values that a file sets. Without the file, nothing changes.
    ///
    /// # Errors
    /// If the file cannot be read, or is no policy.
    pub(crate) fn with_file(mut self, path: &Path) -> Result<Self, MemoryError> {
        let failed = || MemoryError::file(path);
        let text = match read_text(path, MAX_FILE) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(self),
            Err(error) => return Err(failed()(error)),
        };
        let file: PolicyFile = serde_json::from_str(&text).map_err(|it| failed()(it.into()))?;
        if let Some(mode) = file.retrieval_mode {
            self.adds_important = mode != "keyword";
        }
        let weight =
            |given: Option<f32>, own: f32| given.filter(|it| it.is_finite()).unwrap_or(own);
        self.max_units = file.max_injected_units.unwrap_or(self.max_units).min(100);
        self.max_tokens = file
            .max_injected_tokens
            .unwrap_or(self.max_tokens)
            .min(20_000);
        self.keyword_weight = weight(file.keyword_weight, self.keyword_weight);
        self.importance_weight = weight(file.importance_weight, self.importance_weight);
        self.recency_weight = weight(file.recency_weight, self.recency_weight);
        self.recent_hours = weight(file.recent_bonus_hours, self.recent_hours).max(1.0);
        let boosts = file.type_boosts.into_iter().filter(|it| it.1.is_finite());
        let boosts = boosts.filter_map(|(name, boost)| Some((MemoryKind::named(&name)?, boost)));
        self.kind_weights.extend(boosts);
        Ok(self)
    }

    pub(crate) fn kind_weight(&self, kind: MemoryKind) -> f32 {
        self.kind_weights.get(&kind).copied().unwrap_or(1.0)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_originals_policy_file_takes_the_place_of_settings() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("policy.json");
        let own = MemoryPolicy::of(&MemoryConfig::default());
        assert_eq!(own.clone().with_file(&path).unwrap(), own);
        let file = r#"{"version":1,"retrieval_mode":"keyword","max_injected_units":10,"metadata_weight":0.6,
            "recent_bonus_hours":168,"type_boosts":{"semantic":1.3,"of_tomorrow":2.0}}"#;
        fs::write(&path, file).unwrap();
        let read = own.clone().with_file(&path).unwrap();
        assert!(!read.adds_important);
        assert_eq!((read.max_units, read.max_tokens), (10, own.max_tokens));
        assert!((read.kind_weight(MemoryKind::Semantic) - 1.3).abs() < 1e-6);
        fs::write(&path, "[").unwrap();
        assert!(own.with_file(&path).is_err());
    }
}
