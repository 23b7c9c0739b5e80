//! What the server in memory knows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};

pub(crate) const JSON: &str = "application/json";
/// With the base model's: `max_lora_adapters`.
pub(crate) const N_SLOTS: usize = 4;

/// Status, type and body.
pub(crate) type Answer = (u16, &'static str, Vec<u8>);

pub(crate) fn answer(status: u16, body: &Value) -> Answer {
    (status, JSON, body.to_string().into_bytes())
}

pub(crate) fn refused(status: u16, why: &str) -> Answer {
    answer(status, &json!({"detail": why}))
}

/// Where a model is; slot 0 is the base model's.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) number: usize,
    /// The adapter that was loaded into it last.
    pub(crate) loaded: Option<String>,
}

/// What a call does instead of answering.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// Nothing is done, and this is answered.
    Answers(u16, &'static str),
    /// The connection ends before anything was done.
    Before,
    /// The connection ends after it was done.
    After,
    /// The result is that it failed.
    Fails(&'static str, &'static str),
}

// === impl Saved ===

impl Saved {
    /// SkyRL finds weights to sample from without their kind as well.
    pub(crate) fn is_at(&self, path: &str) -> bool {
        self.path == path || self.path.replace("/sampler_weights/", "/") == path
    }
}

/// What a server is like that is not the cloud.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Manner {
    /// As SkyRL 0.3.0 was seen to answer with JAX: see `skyrl.rs`.
    pub(crate) is_skyrl: bool,
    /// Samplers give no log-probabilities of prompts.
    pub(crate) is_blind: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Model {
    /// The first ids of the datums whose gradients were applied, in order.
    pub(crate) weights: Vec<u32>,
    pub(crate) gradient: Vec<u32>,
    pub(crate) next: i64,
    pub(crate) slot: Slot,
}

#[derive(Debug, Clone)]
pub(crate) struct Saved {
    pub(crate) path: String,
    pub(crate) weights: Vec<u32>,
    pub(crate) metadata: Value,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    pub(crate) manner: Manner,
    pub(crate) flags: Value,
    pub(crate) n: u64,
    pub(crate) sessions: BTreeSet<String>,
    pub(crate) models: BTreeMap<String, Model>,
    /// By id: the path of the weights, empty for the base model.
    pub(crate) samplers: BTreeMap<String, String>,
    pub(crate) saved: Vec<Saved>,
    /// Gradients that models without a slot left in it.
    pub(crate) left: [Vec<u32>; N_SLOTS],
    /// By which weights each sample was answered.
    pub(crate) answered: Vec<Vec<u32>>,
    pub(crate) results: BTreeMap<String, Outcome>,
    /// By model and number: what was answered.
    pub(crate) seen: BTreeMap<(String, i64), (Vec<u8>, String)>,
    pub(crate) faults: BTreeMap<String, VecDeque<Fault>>,
    /// The network is gone: connections end before anything is read.
    pub(crate) is_away: bool,
    /// Connections that ended so.
    pub(crate) n_dropped: usize,
    /// What was asked, by path, with bodies that are JSON.
    pub(crate) asked: Vec<(String, Value)>,
    pub(crate) heads: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    /// Of which SkyRL says so by status 400.
    Failed(String),
    Json(Value),
    Protobuf(Vec<u8>),
}

pub(crate) fn run_of(path: &str) -> &str {
    let rest = path.trim_start_matches("tinker://");
    rest.split('/').next().unwrap_or_default()
}
