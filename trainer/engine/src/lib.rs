//! Model, LoRA, losses, optimiser, sampling on libtorch; no HTTP.

pub mod adapter;
pub mod cache;
pub mod checkpoint;
pub mod datum;
pub mod engine;
pub mod family;
pub mod folder;
pub mod generate;
#[cfg(test)]
mod golden;
pub mod head;
pub mod layer;
pub mod lora;
pub mod loss;
pub mod memory;
pub mod model;
pub mod optim;
pub mod pack;
mod prefix;
pub mod rng;
pub mod rope;
pub mod run;
pub mod sampler;
pub mod template;
pub mod tensors;
pub mod testing;
pub mod tokenizer;
pub mod train;
pub mod weights;
