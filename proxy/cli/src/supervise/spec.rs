//! How to start the trainer.

use std::path::PathBuf;

/// The program, and what it is given.
#[derive(Debug, Clone)]
pub(crate) struct TrainerSpec {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// The key that callers must show; ours alone, made anew for each run.
    pub key: String,
    /// Variables beside it: keys, which do not belong among arguments.
    pub env: Vec<(&'static str, String)>,
    /// Threads of the engine; 0 leaves it to the engine, which takes one a physical core.
    pub n_threads: usize,
    /// Names of variables that it must not inherit.
    pub cleared: Vec<String>,
}
