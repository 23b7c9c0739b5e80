//! Why a run has no figures.

/// What went wrong, in words.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;
