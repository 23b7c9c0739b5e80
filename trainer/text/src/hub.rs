//! Finds a model's files on this machine: in a folder, or in the cache of `huggingface_hub`.
//!
//! The cache has one folder for each model, `models--OWNER--NAME`. In it, `refs/REVISION` names a commit and
//! `snapshots/COMMIT` has that commit's files. [`Hub::fetch`] downloads a model's missing text files, and
//! [`Hub::fetch_model`] also its weights.

mod error;
mod fetch;
mod place;
mod server;
mod store;

pub use self::{
    error::HubError,
    fetch::{Hub, Progress, whole},
    place::{HubName, HubNameError, MAIN, cache_dir, cached},
};
