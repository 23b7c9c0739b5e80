//! The client of Tinker's API, for the cloud's server, SkyRL's and that of `metaclaw-trainer`.
//!
//! [`TinkerBackend`] is a [`crate::TrainingBackend`]. A run is a model of the server only as long as its session
//! exists; a caller that gets `run_not_found` loads its checkpoint again, which makes a new model. What Tinker has no
//! call for ([`LocalText`]) is done in the process that uses the client.

mod auth;
mod backend;
mod bodies;
mod checkpoints;
mod config;
mod futures;
mod held;
mod http;
mod losses;
mod manifests;
mod models;
mod names;
mod places;
mod random;
mod runs;
mod sampler;
mod samplers;
mod score;
mod serving;
mod session;
mod text;
mod training;
mod usage;
mod words;

pub use self::{
    backend::TinkerBackend,
    config::{Dialect, HEARTBEAT, PATIENCE, TinkerConfig},
    serving::TinkerSampler,
    text::LocalText,
    usage::{TinkerTokens, TinkerUsage},
};

#[cfg(test)]
mod tests;
