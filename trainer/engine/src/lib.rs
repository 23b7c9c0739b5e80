//! Model, LoRA, losses, optimiser, sampling on libtorch; no HTTP.

pub mod cache;
pub mod family;
pub mod layer;
pub mod lora;
pub mod model;
pub mod rng;
pub mod rope;
pub mod testing;
pub mod weights;
