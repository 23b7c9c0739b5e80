//! Writes skills from failed turns: makes the evolver model's prompt, reads its answer, and stores proposals that wait
//! for the owner's review.
//!
//! Text that a model writes about a conversation may contain the words of everyone in it: the owner's, a tool's, a web
//! page's. A skill becomes part of the system prompt. Therefore every proposal is checked (`draft`). It waits in
//! `proposals.json` until the owner accepts it (`review`), unless `skills.review` is off and it can contain only the
//! owner's words. With `gate.lessons` it has to pass a trial first (`trial`).

mod draft;
mod figures;
mod history;
mod prompt;
mod proposal;
mod review;
mod trial;

pub use self::{
    figures::{MIN_TRIED, TRIAL_DRAWS, TrialFigures, TrialVerdict, TriedRequest},
    history::{HistoryEntry, HistorySkill, read_history},
    prompt::{Failure, Teller, Trajectory, TrajectoryStep},
    proposal::{Progress, Proposal, ProposalState, Reason, SharedOrigin, Source},
    review::{EvolutionRun, EvolveError, Evolved},
    trial::SkillTrial,
};

pub(crate) use self::{draft::SkillDraft, prompt::WrittenSkill, proposal::ProposalStore};

#[cfg(test)]
mod tests;
