//! Chat completions over a [`Sampler`](metaclaw_trainer_terms::Sampler) of token ids; no libtorch.
//!
//! A [`Front`] renders a conversation into ids, asks a sampler, reads text and thinking out of the ids that come, and
//! keeps what was sampled for `GET /v1/sampled/{id}`. The training server puts [`routes`] among its own; another
//! process serves them by itself with [`serve`], in front of a model elsewhere. What every route of either needs
//! (errors, bodies, the key) is here as well.

pub mod answers;
pub mod auth;
pub mod bodies;
mod chat;
pub mod connections;
pub mod error;
pub mod fields;
mod front;
pub mod json;
mod model;
mod models;
mod queue;
mod reader;
mod routes;
mod sampled;
mod sampling;
mod tokenize;

pub use self::{
    front::{BASE, DEFAULT, Front, Limits},
    model::{Model, ModelSource},
    queue::{Place, Queue},
    routes::{read_text, router, routes, serve},
    sampling::SamplingBody,
};

#[cfg(test)]
mod tests;
