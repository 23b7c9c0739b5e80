//! From judged turns to the batch of a step: how each turn can be used, which turns wait together, and the groups that
//! the trainer gets.

mod choose;
mod collect;
mod decision;
mod groups;
mod held_out;
mod rollouts;
mod stats;
mod support;
#[cfg(test)]
pub(crate) mod testing;
mod waiting;

pub(crate) use self::{
    choose::MOST_AT_ONCE,
    collect::{FoundSamples, Reused, SeenTurns, assemble, collect, look, used},
    groups::{NoGroups, groups},
    rollouts::{FoundGroups, RolloutTurns, complete_groups},
    stats::stats,
    waiting::Samples,
};

#[cfg(test)]
pub(crate) use self::{
    choose::{Choosing, choose},
    support::Support,
};
#[cfg(test)]
mod tests;
