//! Model, LoRA, losses, optimiser, sampling on libtorch; no HTTP.

pub mod lora;
pub mod rng;
