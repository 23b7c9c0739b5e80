//! The client of Tinker's API, for the cloud's server, SkyRL's and that of `metaclaw-trainer`.
//!
//! [`TinkerBackend`] is a [`crate::TrainingBackend`]. A run is a model of the server only as long as its session
//! exists; a caller that gets `run_not_found` loads its checkpoint again, which makes a new model. What Tinker has no
//! call for ([`LocalText`]) is done in the process that uses the client.
//!
//! To read it, begin with `http` (one exchange) and `futures` (a promise and its result); `session` and `models` put
//! calls in order, `training`, `samplers`, `score` and `checkpoints` are the calls, and `places` is what SkyRL needs.

mod backend;
mod bodies;
mod checkpoints;
mod config;
mod futures;
mod http;
mod manifests;
mod models;
mod places;
mod samplers;
mod score;
mod serving;
mod session;
mod training;
mod words;

use std::sync::atomic::{AtomicBool, Ordering};

pub use self::{
    backend::TinkerBackend,
    config::{Dialect, HEARTBEAT, LocalText, PATIENCE, TinkerConfig},
    serving::TinkerSampler,
    training::{TinkerTokens, TinkerUsage},
};

#[derive(Debug)]
struct Flag(AtomicBool);

// === impl Flag ===

impl Flag {
    fn new(value: bool) -> Self {
        Self(AtomicBool::new(value))
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, value: bool) {
        self.0.store(value, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
