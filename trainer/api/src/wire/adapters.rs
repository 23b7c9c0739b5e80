//! Adapters and checkpoints that a server keeps: which there are, in memory and on disk, and what may go.

use serde::{Deserialize, Serialize};

use super::ok;
use crate::{AdapterName, CheckpointName, RunId};

/// `GET /v1/adapters`. Ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdaptersReply {
    /// Every adapter on disk, by name.
    pub adapters: Vec<AdapterInfo>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterInfo {
    pub name: AdapterName,
    /// Whether it is in memory now.
    pub loaded: bool,
    /// Optimiser steps in it; 0 where it does not say.
    #[serde(default)]
    pub step: u64,
    /// SHA-256 of what it holds (rank, alpha, every parameter by name), in hexadecimal digits; the same content has
    /// the same, whatever it is called. Null in what others wrote, until it is loaded.
    #[serde(default)]
    pub sha256: Option<String>,
    /// Bytes of memory that it takes while it is loaded.
    #[serde(default)]
    pub bytes: Option<u64>,
}

/// `POST /v1/load_lora_adapter`, vLLM's: into memory before the first request asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadAdapterRequest {
    pub lora_name: AdapterName,
    /// What weights/save returned as `adapter_path`, if anything; no other path is opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora_path: Option<String>,
}

/// Answer to [`LoadAdapterRequest`]; a second request for one that is loaded has the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadAdapterReply {
    /// `ok`.
    #[serde(default = "ok")]
    pub status: String,
    /// As [`AdapterInfo::step`].
    pub step: u64,
    /// As [`AdapterInfo::sha256`].
    pub sha256: String,
    /// As [`AdapterInfo::bytes`].
    pub bytes: u64,
}

/// `POST /v1/unload_lora_adapter`, vLLM's: out of memory once the replies that use it have ended; the files stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnloadAdapterRequest {
    pub lora_name: AdapterName,
}

/// Answer to [`UnloadAdapterRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnloadReply {
    /// Whether it had been in memory.
    pub unloaded: bool,
}

/// `DELETE /v1/adapters/{name}` and `DELETE /v1/checkpoints/{name}`: its files. Ours.
///
/// 409 while it is in use: by a reply, by requests that name no model, by an open run that stands there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteReply {
    /// `ok`.
    #[serde(default = "ok")]
    pub status: String,
}

/// `POST /v1/checkpoints/prune`: deletes what nobody needs any more. Ours.
///
/// Of each line of checkpoints (a run's, and those of runs that went on from one of them) the last ones stay, as many
/// as the server was told by `--keep`; besides them what is named here, and whatever is in use. A checkpoint goes with
/// the adapter of its name. Nothing is ever deleted but by this call and by `DELETE`: who does not ask loses nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PruneRequest {
    /// What serves, and what a step may go back to.
    #[serde(default)]
    pub keep: Vec<CheckpointName>,
}

/// Answer to [`PruneRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PruneReply {
    /// What was deleted, oldest first.
    pub deleted: Vec<CheckpointName>,
}

/// `POST /v1/lora/close`: gives a run's memory back; its checkpoints stay. Ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloseRunRequest {
    pub session_id: RunId,
}

/// Answer to [`CloseRunRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloseRunReply {
    /// `ok`.
    #[serde(default = "ok")]
    pub status: String,
}
