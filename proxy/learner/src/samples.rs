//! From judged turns to the batch of a step: what each is good for, which wait together, what the trainer is asked.

mod advantage;
mod anchor;
mod asked;
mod baselines;
mod batch;
mod collect;
mod datum;
mod decision;
mod distil;
mod exclude_reason;
mod group;
mod held_out;
mod hints;
mod pushed;
mod target;
#[cfg(test)]
pub(crate) mod testing;
mod turns;
mod verdicts;
mod waiting;
mod work;

pub use self::turns::POLICY_UPSTREAM;
pub(crate) use self::{
    anchor::{Anchor, Reply},
    asked::Asked,
    baselines::Baselines,
    batch::{Batch, MOST_AT_ONCE},
    collect::{Found, Seen, Teaching, baselines, collect, look, used},
    distil::{Distil, Student, Surrogate, TOP_K},
    exclude_reason::ExcludeReason,
    group::{Group, NoGroups, Sequence},
    hints::Hints,
    pushed::Choosing,
    target::{Form, Target, TargetReply, Targets, Taught},
    turns::{
        MIN_TARGET_WORDS, all_hints, hint, is_owners_answer, is_tool_turn, is_whole_target, score,
    },
    waiting::{Redo, Samples},
    work::Work,
};
