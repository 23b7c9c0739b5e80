//! The error type of the benchmark.

/// An error in words.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;
