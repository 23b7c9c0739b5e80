//! The evolver: which model writes skills, and when.

use std::{sync::Arc, time::Duration};

use crate::judge::Ask;

/// Returns whether the budget allows a request now. The training window is checked separately.
pub type MayStart = Arc<dyn Fn() -> bool + Send + Sync>;

/// The model that writes skills, and the times of its requests.
#[derive(derive_more::Debug, Clone)]
#[debug("Evolver({model:?}, {every_n_turns})")]
pub struct Evolver {
    pub model: Arc<dyn Ask>,
    /// The policy model, which answers in trials the requests that it had answered; the others are answered by `model`.
    pub policy: Option<Arc<dyn Ask>>,
    /// The number of an agent's main turns between two requests, at least 1.
    pub every_n_turns: u64,
    /// Called before each request.
    pub may_start: MayStart,
    /// The pause between two checks of the counts.
    pub look_every: Duration,
}
