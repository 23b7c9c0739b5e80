//! Skills written from what went wrong: a prompt for the evolver model, its answer read, proposals that wait for the
//! owner's look.
//!
//! What a model writes about a conversation has the words of everyone in it: the owner's, a tool's, a web page's. A skill
//! is system text. So every proposal is examined (`draft`), and unless `skills.review` is off and nothing in it can be
//! anybody's but the owner's, it waits in `proposals.json` until the owner has said yes (`review`).

mod answer;
mod draft;
mod failure;
mod history;
mod merge;
mod prompt;
mod proposal;
mod review;
mod settle;

pub use self::{
    failure::{Failure, Step, Teller, Trajectory},
    history::{HistoryEntry, HistorySkill, read_history},
    proposal::{Progress, Proposal, ProposalState, Reason, Source},
    review::{EvolutionRun, EvolveError, Evolved},
};

#[cfg(test)]
mod tests;
