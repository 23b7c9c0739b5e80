//! Chat completions for any [`Sampler`](metaclaw_trainer_terms::Sampler) of token ids, without libtorch.
//!
//! A [`Front`] renders a conversation into ids, sends them to a sampler, converts the sampled ids into text and
//! thinking, and keeps the sampled record for `GET /v1/sampled/{id}`. The training server adds [`routes`] to its own.
//! Another process serves only these with [`serve`], for a model on another machine. Errors, bodies and the key, which
//! all routes of both need, are here too.

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
    queue::{Place, RequestQueue},
    routes::{read_text, router, routes, serve},
    sampling::SamplingBody,
};

#[cfg(test)]
mod tests;
