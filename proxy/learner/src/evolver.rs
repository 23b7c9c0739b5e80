//! Who is asked for skills, and when.

use std::{fmt, sync::Arc, time::Duration};

use crate::judge::Ask;

/// Whether a question may be asked now: the budget's word. The window is asked beside it.
pub type MayStart = Arc<dyn Fn() -> bool + Send + Sync>;

/// Who writes skills, and when.
#[derive(Clone)]
pub struct Evolver {
    pub model: Arc<dyn Ask>,
    /// So many main turns of an agent lie between two questions; at least 1.
    pub every_n_turns: u64,
    /// Asked before each question.
    pub may_start: MayStart,
    /// The pause between two looks at the counts.
    pub look_every: Duration,
}

// === impl Evolver ===

impl fmt::Debug for Evolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Evolver")
            .field("model", &self.model)
            .field("every_n_turns", &self.every_n_turns)
            .finish_non_exhaustive()
    }
}
