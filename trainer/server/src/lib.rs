//! The training server: the training API, carried out by the engine.
//!
//! One process with one model serves and trains. `process` is its lifecycle, `app` the routes and their layers, `host`
//! the engine with the types of the API; a handler reads, checks, asks the host, answers. The chat routes are in
//! `metaclaw_trainer_chat`, with the engine as a sampler (`serving`).

mod app;
mod args;
mod blocking;
mod fields;
mod host;
mod json;
mod lock;
mod origin;
mod process;
mod sample;
mod serving;
mod state;
mod tinker;
mod train;
mod vllm;

use metaclaw_trainer_chat::{auth, connections, error};

pub use self::process::main;

#[cfg(test)]
mod tests;
