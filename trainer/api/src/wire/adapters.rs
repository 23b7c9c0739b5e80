//! Adapters and checkpoints in memory and on disk: lists and deletion.

use serde::{Deserialize, Serialize};

use super::defaults::ok;
use crate::{AdapterName, CheckpointName, RunId};

/// `GET /v1/adapters`. Not in the fork's API.
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
    /// The number of optimiser steps in it; 0 if it does not say.
    #[serde(default)]
    pub step: u64,
    /// SHA-256 of its content (rank, alpha, every parameter by name), in hexadecimal digits; the same content has the
    /// same hash under any name. Null for files of other programs, until the adapter is loaded.
    pub sha256: Option<String>,
    /// Bytes of memory that it takes while it is loaded.
    pub bytes: Option<u64>,
}

/// `POST /v1/load_lora_adapter`, as in vLLM: loads it into memory before the first request needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadAdapterRequest {
    pub lora_name: AdapterName,
    /// The `adapter_path` that weights/save returned, if given; no other path is opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lora_path: Option<String>,
}

/// Answer to [`LoadAdapterRequest`]; a second request for a loaded adapter gets the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadAdapterReply {
    /// `ok`.
    #[serde(default = "ok")]
    pub status: String,
    /// The same as [`AdapterInfo::step`].
    pub step: u64,
    /// The same as [`AdapterInfo::sha256`].
    pub sha256: String,
    /// The same as [`AdapterInfo::bytes`].
    pub bytes: u64,
}

/// `POST /v1/unload_lora_adapter`, as in vLLM: frees its memory once the replies that use it have ended; the files
/// stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnloadAdapterRequest {
    pub lora_name: AdapterName,
}

/// Answer to [`UnloadAdapterRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnloadReply {
    /// Whether it was in memory.
    pub unloaded: bool,
}

/// `DELETE /v1/adapters/{name}` and `DELETE /v1/checkpoints/{name}`: delete its files. Not in the fork's API.
///
/// 409 while it is in use: by a reply, as the default of requests without a model, or by an open run that is at this
/// checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteReply {
    /// `ok`.
    #[serde(default = "ok")]
    pub status: String,
}

/// `POST /v1/checkpoints/prune`: deletes unneeded files. Not in the fork's API.
///
/// Of each line of checkpoints (a run's, and those of runs that continued from one of them), the last ones stay, as
/// many as `--keep` says; the checkpoints named here and those in use stay too. A checkpoint is deleted together with
/// the adapter of its name. Only this call and `DELETE` delete anything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PruneRequest {
    /// The checkpoints that serve, and those that a step may start from.
    #[serde(default)]
    pub keep: Vec<CheckpointName>,
}

/// Answer to [`PruneRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PruneReply {
    /// The deleted names, oldest first.
    pub deleted: Vec<CheckpointName>,
}

/// `POST /v1/lora/close`: frees a run's memory; its checkpoints stay. Not in the fork's API.
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
