//! Model, LoRA, losses, optimiser, sampling on libtorch; no HTTP.
