//! What a step is made of: judged turns with what the teacher came to about them. Nothing here asks anybody.
//!
//! Read `types` (what is known of one turn), `datum` (what a training server gets of it), then `batch` (the samples of one
//! step, of chats or of rollouts). `exclude_reason` has why a turn is left out for good. `crate::batch` chooses among them, and `crate::training` says when.

mod batch;
pub(crate) mod datum;
mod exclude_reason;
#[cfg(test)]
pub(crate) mod testing;
mod types;

pub use self::{batch::AdvantageForm, types::POLICY_UPSTREAM};
pub(crate) use self::{
    batch::{
        Batch, GroupOutcomes, MOST_ROLLOUTS, RolloutGroup, RolloutStep, StepAdvantage,
        StepAdvantages, first_groups, rollout_batch, step_advantages,
    },
    exclude_reason::ExcludeReason,
    types::{
        AnchorReply, Baselines, Form, HintedPrompts, Hints, LogprobQuery, MAX_ADVANTAGE, MEMORY,
        MIN_TARGET_WORDS, Push, Sample, Target, TargetReply, Targets, Taught, Teaching, all_hints,
        baseline, hint, is_owners_answer, is_tool_turn, is_usable, is_whole_target, sampled_fairly,
        score,
    },
};
