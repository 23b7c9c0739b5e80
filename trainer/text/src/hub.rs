//! Where a model's files are on this machine: a folder, or the cache that `huggingface_hub` keeps.
//!
//! The cache has one folder a model, `models--OWNER--NAME`, in which `refs/REVISION` names a commit and
//! `snapshots/COMMIT` holds that commit's files. [`Hub::fetch`] adds what is missing there of a model's text files,
//! [`Hub::fetch_model`] its weights as well.

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
