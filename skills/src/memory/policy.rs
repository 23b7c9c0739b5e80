//! How memories are chosen: by the settings, or by the Python original's `policy.json` if it exists.

use std::{collections::BTreeMap, io, path::Path};

use serde::Deserialize;

use super::MemoryKind;
use metaclaw_chat::if_there;

use crate::{
    config::{MemoryConfig, RetrievalMode},
    file::read_text,
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
    /// Returns the policy of the settings, with the values that a file sets if there is one.
    ///
    /// # Errors
    /// If the file cannot be read, or is no policy.
    pub(super) fn read(config: &MemoryConfig, path: &Path) -> io::Result<Self> {
        let file = match if_there(read_text(path, MAX_FILE))? {
            Some(text) => serde_json::from_str(&text)?,
            None => PolicyFile::default(),
        };
        let weight =
            |given: Option<f32>, own: f32| given.filter(|weight| weight.is_finite()).unwrap_or(own);
        let keyword_only = match file.retrieval_mode {
            Some(mode) => mode == "keyword",
            None => config.retrieval_mode == RetrievalMode::Keyword,
        };
        let (max_units, max_tokens) = (file.max_injected_units, file.max_injected_tokens);
        let named = file.type_boosts.into_iter();
        let boosts = named.filter_map(|(name, boost)| Some((name.parse().ok()?, boost)));
        let mut kind_weights = BTreeMap::from([
            (MemoryKind::WorkingSummary, 1.2),
            (MemoryKind::ProjectState, 1.1),
            (MemoryKind::ProceduralObservation, 0.9),
            (MemoryKind::Episodic, 0.8),
        ]);
        kind_weights.extend(boosts.filter(|(_, boost): &(_, f32)| boost.is_finite()));
        Ok(Self {
            adds_important: !keyword_only,
            max_units: max_units.map_or(config.max_injected_units, |n| n.min(100)),
            max_tokens: max_tokens.map_or(config.max_injected_tokens, |n| n.min(20_000)),
            keyword_weight: weight(file.keyword_weight, 1.0),
            importance_weight: weight(file.importance_weight, 0.5),
            recency_weight: weight(file.recency_weight, 0.3),
            recent_hours: weight(file.recent_bonus_hours, 72.0).max(1.0),
            kind_weights,
        })
    }

    pub(super) fn kind_weight(&self, kind: MemoryKind) -> f32 {
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
        let read = || MemoryPolicy::read(&MemoryConfig::default(), &path);
        let own = read().unwrap();
        assert_eq!((own.max_units, own.max_tokens), (6, 800));
        let file = r#"{"version":1,"retrieval_mode":"keyword","max_injected_units":10,"metadata_weight":0.6,
            "recent_bonus_hours":168,"type_boosts":{"semantic":1.3,"of_tomorrow":2.0}}"#;
        fs::write(&path, file).unwrap();
        let replaced = read().unwrap();
        assert!(own.adds_important && !replaced.adds_important);
        assert_eq!(
            (replaced.max_units, replaced.max_tokens),
            (10, own.max_tokens)
        );
        assert!((replaced.kind_weight(MemoryKind::Semantic) - 1.3).abs() < 1e-6);
        fs::write(&path, "[").unwrap();
        assert!(read().is_err());
    }
}
