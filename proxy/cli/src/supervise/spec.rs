//! Describes how to start the trainer.

use std::path::PathBuf;

/// The program and its arguments.
#[derive(Debug, Clone)]
pub(crate) struct TrainerSpec {
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// The key that callers must send; only this proxy knows it, and each run has a new one.
    pub key: String,
    /// Additional environment variables: keys, which do not belong among arguments.
    pub env: Vec<(&'static str, String)>,
    /// The engine's threads; with 0, the engine uses one for each physical core.
    pub n_threads: usize,
    /// Names of environment variables that it must not inherit.
    pub cleared: Vec<String>,
}
