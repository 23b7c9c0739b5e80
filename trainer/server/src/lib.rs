//! The training server: the training API over the engine.
//!
//! One process with one model that serves and learns. `process` is its life, `app` the routes and
//! their layers, `host` the engine in the API's terms; a handler reads, checks, asks the host, answers.

mod app;
mod args;
mod auth;
mod bodies;
mod chat;
mod connections;
mod error;
mod fields;
mod host;
mod json;
mod listing;
mod lock;
mod models;
mod origin;
mod process;
mod queue;
mod sample;
mod sampled;
mod sampling;
mod state;
mod tinker;
mod tokenize;
mod train;

pub use self::process::main;

#[cfg(test)]
mod tests;
