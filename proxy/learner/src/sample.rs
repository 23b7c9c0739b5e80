//! What a step is made of: judged turns with what the teacher came to about them. Nothing here asks anybody.

mod baselines;
mod batch;
pub(crate) mod datum;
mod exclude_reason;
mod hints;
mod logprob_query;
mod target;
#[cfg(test)]
pub(crate) mod testing;
mod turns;
mod types;

pub use self::turns::POLICY_UPSTREAM;
pub(crate) use self::{
    baselines::{Baselines, MEMORY, baseline},
    batch::Batch,
    exclude_reason::ExcludeReason,
    hints::{HintedPrompts, Hints},
    logprob_query::LogprobQuery,
    target::{Form, Target, TargetReply, Targets, Taught},
    turns::{
        MIN_TARGET_WORDS, all_hints, hint, is_owners_answer, is_tool_turn, is_usable,
        is_whole_target, sampled_fairly, score,
    },
    types::{AnchorReply, MAX_ADVANTAGE, Push, Sample, Teaching},
};
