//! The training server: the training API over the engine.
//!
//! One process with one model that serves and learns. `process` is its life, `app` the routes and
//! their layers, `host` the engine in the API's terms; a handler reads, checks, asks the host, answers. The chat routes
//! are `metaclaw_trainer_chat`'s, over the engine as a sampler (`serving`).

mod app;
mod args;
mod bodies;
mod fields;
mod host;
mod json;
mod listing;
mod lock;
mod models;
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
