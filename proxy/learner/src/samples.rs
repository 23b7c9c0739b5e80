//! From judged turns to the batch of a step: what each is good for, which wait together, what the trainer is asked.

mod advantage;
mod baselines;
mod batch;
mod collect;
mod datum;
mod decision;
pub(crate) mod reason;
mod turns;
mod waiting;

pub use self::turns::POLICY_UPSTREAM;
pub(crate) use self::{
    baselines::Baselines,
    batch::{Batch, Group, MOST_AT_ONCE, NoSequence, Sequence},
    collect::{Seen, baselines, collect, look},
};
