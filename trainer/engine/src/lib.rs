//! Model, LoRA, losses, optimiser, sampling on libtorch; no HTTP.
//!
//! [`engine::Engine`] is the entry point: a handle to the one thread that owns all tensors. Below it, from the ground
//! up: `aten` (what libtorch's bindings lack), [`device`] and [`placement`] (which layer is where), [`model_config`]
//! (config.json), [`weights`] (mapped files, GGUF), [`layer`], [`delta`] (gated delta nets), [`by_layer`] (what layers differ in) and [`model`] (the
//! forward pass), [`matrix`] and [`linear`] (what it multiplies with), [`kv`], [`attention`] and [`batch`] (many
//! sequences in one pass), [`sampler`] and [`generate`] (replies), [`lora`], [`loss`], [`train`], [`optim`], [`run`] and
//! [`runs`] (training), [`adapter`] and [`checkpoint`] (what is kept).
//!
//! Base weights are read-only memory, so no operation may change them in place. Every fallible call of libtorch is an
//! `f_*` one. A panic in spite of this ends one request (`engine/core.rs`).

pub mod adapter;
mod aten;
pub mod attention;
pub mod batch;
pub mod by_layer;
pub mod checkpoint;
pub mod datum;
pub mod delta;
pub mod device;
mod digest;
pub mod engine;
mod few_rows;
pub mod folder;
pub mod free_memory;
pub mod generate;
mod guard;
pub mod head;
pub mod kv;
pub mod layer;
pub mod linear;
pub mod lora;
pub mod loss;
pub mod matrix;
pub mod model;
pub mod model_config;
pub mod optim;
pub mod pack;
pub mod placement;
pub mod precision;
pub mod rng;
pub mod rope;
pub mod run;
pub mod runs;
pub mod sampler;
pub mod tensors;
pub mod testing;
#[cfg(test)]
mod tests;
mod torch;
pub mod train;
pub mod weights;
