//! What the training task remembers of one agent between two looks at the log.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    lineage::{Head, Shape},
    step::Desk,
};

/// The first rest after a refusal; each further one in a row doubles it.
const FIRST_REST: Duration = Duration::from_secs(60);
/// The longest rest.
const LONGEST_REST: Duration = Duration::from_secs(3_600);

/// One agent's side of training. All of it can be had again from the log and the checkpoints.
#[derive(Debug, Default)]
pub(crate) struct AgentState {
    /// Its training run.
    pub(crate) desk: Desk,
    /// What its next step continues, and the shape that this was worked out for.
    pub(crate) head: Option<(Head, Shape)>,
    rest: Option<Rest>,
}

/// No step is tried before `until`.
#[derive(Debug, Clone, Copy)]
struct Rest {
    until: Instant,
    length: Duration,
}

// === impl AgentState ===

impl AgentState {
    /// The training server refused a step: try again, but not at once.
    pub(crate) fn refused(&mut self) -> Duration {
        let length = self
            .rest
            .map_or(FIRST_REST, |rest| (rest.length * 2).min(LONGEST_REST));
        self.rest = Some(Rest {
            until: Instant::now() + length,
            length,
        });
        // What was known may be what was wrong.
        self.head = None;
        self.desk = Desk::default();
        length
    }

    /// A step was made.
    pub(crate) fn stepped(&mut self, head: Head, shape: Shape) {
        self.head = Some((head, shape));
        self.rest = None;
    }

    /// Whether a step may be tried.
    pub(crate) fn is_rested(&self) -> bool {
        self.rest.is_none_or(|rest| Instant::now() >= rest.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_refusal_in_a_row_doubles_the_rest() {
        let mut state = AgentState::default();
        assert!(state.is_rested());
        assert_eq!(state.refused(), FIRST_REST);
        assert!(!state.is_rested());
        tokio::time::advance(FIRST_REST).await;
        assert!(state.is_rested());
        assert_eq!(state.refused(), 2 * FIRST_REST);
        for _ in 0..10 {
            state.refused();
        }
        assert_eq!(state.refused(), LONGEST_REST);
    }
}
