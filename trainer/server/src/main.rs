//! The training server: the training API over the engine.

fn main() {}
