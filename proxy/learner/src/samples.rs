//! From judged turns to the batch of a step: what each is good for, which wait together, what the trainer is asked.

mod advantage;
mod baselines;
mod batch;
mod collect;
mod datum;
mod decision;
pub(crate) mod reason;
mod target;
mod turns;
mod waiting;

pub use self::turns::POLICY_UPSTREAM;
pub(crate) use self::{
    baselines::Baselines,
    batch::{Batch, Group, MOST_AT_ONCE, NoGroups, Sequence},
    collect::{Found, Seen, Teaching, baselines, collect, look, used},
    target::{Form, Target, Targets, Taught},
    turns::{MIN_TARGET_WORDS, hint, is_owners_answer, is_whole_target, score},
    waiting::{Redo, Samples},
};
