//! What is known for a turn besides the turn itself.

use super::{hints::Hints, target::Targets};

/// The teacher's results for an agent's turns, and whether it has to answer all of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Teaching<'a> {
    pub(crate) targets: &'a Targets,
    /// The prompts that the teacher reads instead of the turns' own.
    pub(crate) hints: &'a Hints,
    /// Whether there are wishes that have to be trained into the weights.
    pub(crate) consolidates: bool,
}
