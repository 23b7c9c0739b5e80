//! What is known for a turn beside the turn itself.

use super::{hints::Hints, target::Targets};

/// What the teacher came to about an agent's turns, and whether it is to answer all of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Teaching<'a> {
    pub(crate) targets: &'a Targets,
    /// The prompts that the teacher reads in place of the turns' own.
    pub(crate) hints: &'a Hints,
    /// Whether wishes are in force that are to come into the weights.
    pub(crate) consolidates: bool,
}
