//! What is on disk of Tinker's clients: the names of their paths, and what a checkpoint says of its model.
//!
//! Adapters and checkpoints stand in the server's one folder for each, beside those of the REST API, so a path becomes
//! a flat name: `tinker://s1f:train:0/weights/step-1` is `checkpoints/s1f.train.0.step-1`, and of kind
//! `sampler_weights` it is `adapters/s1f.train.0.step-1`. Weights for one sampler alone are `adapters/s1f.sample.2`.

use metaclaw_engine::lora::LoraTargets;
use metaclaw_trainer_api::{
    AdapterName, CheckpointName,
    tinker::{
        ModelId, RequestId, SamplerId, TinkerPath, TinkerSessionId, WeightsKind, json::LoraConfig,
    },
    wire::CreateRequest,
};
use metaclaw_trainer_terms::ErrorCode;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::{ApiError, Result};

const DIGITS: usize = 16;

/// The part of a checkpoint's manifest by which a later session recognises it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredManifest {
    pub(crate) tinker: Origin,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Origin {
    pub(crate) base_model: String,
    #[serde(flatten)]
    pub(crate) about: About,
    pub(crate) user_metadata: Option<Map<String, Value>>,
    pub(crate) model_metadata: Option<Map<String, Value>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct About {
    pub(crate) rank: u32,
    pub(crate) train_attn: bool,
    pub(crate) train_mlp: bool,
    #[serde(default)]
    pub(crate) train_unembed: bool,
}

/// What a model is, once it is known. Loading a checkpoint changes it.
#[derive(Debug, Default)]
pub(crate) struct KnownAbout(Mutex<Option<About>>);

// === impl About ===

impl From<&LoraConfig> for About {
    fn from(lora: &LoraConfig) -> Self {
        Self {
            rank: lora.rank,
            train_attn: lora.train_attn,
            train_mlp: lora.train_mlp,
            train_unembed: lora.train_unembed,
        }
    }
}

impl About {
    pub(crate) fn targets(self) -> LoraTargets {
        LoraTargets::groups(self.train_attn, self.train_mlp, self.train_unembed)
    }

    pub(crate) fn run(self, seed: Option<u64>) -> CreateRequest {
        let names = self.targets().names().into_iter();
        CreateRequest {
            rank: self.rank,
            seed,
            targets: Some(names.map(str::to_owned).collect()),
            ..CreateRequest::default()
        }
    }
}

// === impl KnownAbout ===

impl KnownAbout {
    pub(crate) fn get(&self) -> Option<About> {
        *self.0.lock()
    }

    pub(crate) fn set(&self, about: About) {
        *self.0.lock() = Some(about);
    }
}

pub(crate) fn new_session() -> Result<TinkerSessionId> {
    let id = format!("s{:016x}", rand::random::<u64>());
    id.parse()
        .map_err(|error| ApiError::internal(format!("session id: {error}")))
}

pub(crate) fn session_of(request: &RequestId) -> Option<TinkerSessionId> {
    let first = request.as_str().split(':').next()?;
    first.parse().ok().filter(|_| is_session(first))
}

fn is_session(text: &str) -> bool {
    let digits = text.strip_prefix('s').unwrap_or_default();
    let hex = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    digits.len() == DIGITS && digits.bytes().all(hex)
}

/// The flat name of a path of this server's.
///
/// # Errors
/// 404 for one of another server; 400 for a name that is too long.
pub(crate) fn flat(path: &TinkerPath) -> Result<CheckpointName> {
    let parts = path.run.parts();
    let Some((session, n)) = parts.filter(|(session, _)| is_session(session.as_str())) else {
        let text = format!("{path} is no path of this server: its runs are called sHEX:train:N");
        return Err(ApiError::not_found(ErrorCode::CheckpointNotFound, text));
    };
    let name = format!("{session}.train.{n}.{}", path.name);
    name.parse().map_err(|_| {
        let text = format!("path {} is too long: at most 60 characters", path.name);
        ApiError::field("path", text)
    })
}

pub(crate) fn path(flat: &str, kind: WeightsKind) -> Option<TinkerPath> {
    let mut parts = flat.splitn(4, '.');
    let session = parts.next().filter(|session| is_session(session))?;
    parts.next().filter(|word| *word == "train")?;
    let n = parts.next()?.parse().ok()?;
    let name = parts.next()?.parse().ok()?;
    let run = ModelId::of(&session.parse().ok()?, n).ok()?;
    Some(TinkerPath { run, kind, name })
}

/// The adapter of a sampler's own weights.
///
/// # Errors
/// 404 for an id of another server.
pub(crate) fn ephemeral(sampler: &SamplerId) -> Result<AdapterName> {
    let parts = sampler.parts();
    let own = parts.filter(|(session, _)| is_session(session.as_str()));
    let name = own.and_then(|(session, n)| format!("{session}.sample.{n}").parse().ok());
    name.ok_or_else(|| {
        ApiError::not_found(ErrorCode::SamplerNotFound, format!("no sampler {sampler}"))
    })
}

pub(crate) fn is_ephemeral(adapter: &AdapterName) -> bool {
    let mut parts = adapter.as_str().splitn(3, '.');
    parts.next().is_some_and(is_session) && parts.next() == Some("sample")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_and_its_name_on_disk_are_two_forms_of_one() {
        let text = "tinker://s0123456789abcdef:train:3/weights/step.1";
        let parsed: TinkerPath = text.parse().unwrap();
        let name = flat(&parsed).unwrap();
        assert_eq!(name.as_str(), "s0123456789abcdef.train.3.step.1");
        assert_eq!(path(name.as_str(), WeightsKind::Training), Some(parsed));
        for other in ["main@12", "s0123456789abcdef.sample.3", "s0123.train.3.x"] {
            assert_eq!(path(other, WeightsKind::Training), None, "{other}");
        }
        let foreign: TinkerPath = "tinker://model_1/weights/a".parse().unwrap();
        assert!(flat(&foreign).is_err());
        assert!(is_ephemeral(&"s0123456789abcdef.sample.3".parse().unwrap()));
        assert!(!is_ephemeral(&name.as_str().parse().unwrap()));
    }
}
