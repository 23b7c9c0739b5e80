//! From judged turns to the batch of a step. Read `decision` (how each turn can be used), `collect` (what the log has),
//! `choose` (which samples a step takes), then `groups` (what the trainer gets).

mod choose;
mod collect;
mod decision;
mod groups;
#[cfg(test)]
pub(crate) mod testing;

pub(crate) use self::{
    choose::{MOST_AT_ONCE, Samples},
    collect::{
        FoundGroups, FoundSamples, Reused, RolloutTurns, SeenTurns, assemble, collect,
        complete_groups, look, used,
    },
    groups::{NoGroups, groups, stats},
};

#[cfg(test)]
pub(crate) use self::{
    choose::{Choosing, choose},
    decision::Support,
};
#[cfg(test)]
mod tests;
