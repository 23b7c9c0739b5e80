//! Finds a model's files on this machine: in a folder, or in the cache of `huggingface_hub`.
//!
//! The cache has one folder for each model, `models--OWNER--NAME`. In it, `refs/REVISION` names a commit and
//! `snapshots/COMMIT` has that commit's files. [`Hub::fetch`] downloads a model's missing text files, and
//! [`Hub::fetch_model`] also its weights.

mod answer;
mod ask;
mod error;
mod fetch;
mod fetching;
mod place;
mod store;
mod weights;

pub use self::{
    error::HubError,
    fetch::Hub,
    fetching::Progress,
    place::{HubName, HubNameError, MAIN, cache_dir, cached},
    weights::whole,
};
