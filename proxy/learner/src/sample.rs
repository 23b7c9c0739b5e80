//! What a step is made of: judged turns with what the teacher came to about them. Nothing here asks anybody.

mod baselines;
mod batch;
pub(crate) mod datum;
mod exclude_reason;
mod hints;
mod logprob_query;
mod rollouts;
mod target;
#[cfg(test)]
pub(crate) mod testing;
mod turns;
mod types;

pub(crate) use self::{
    baselines::{Baselines, MEMORY, baseline},
    batch::{Batch, GroupOutcomes},
    exclude_reason::ExcludeReason,
    hints::{HintedPrompts, Hints},
    logprob_query::LogprobQuery,
    rollouts::{
        MOST_ROLLOUTS, RolloutGroup, RolloutStep, StepAdvantage, StepAdvantages, first_groups,
        rollout_batch, step_advantages,
    },
    target::{Form, Target, TargetReply, Targets, Taught},
    turns::{
        MIN_TARGET_WORDS, all_hints, hint, is_owners_answer, is_tool_turn, is_usable,
        is_whole_target, sampled_fairly, score,
    },
    types::{AnchorReply, MAX_ADVANTAGE, Push, Sample, Teaching},
};
pub use self::{rollouts::AdvantageForm, turns::POLICY_UPSTREAM};
