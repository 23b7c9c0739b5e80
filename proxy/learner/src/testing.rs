//! A training server in memory that fails where a test tells it to, and conversations to learn from.
//!
//! Its weights are the list of what it was trained on, so that a test can read from a checkpoint what is in it, and how
//! often.

pub(crate) mod crash;
pub(crate) mod progress;
mod talk;
mod world;

pub(crate) use self::{
    talk::{
        Said, append, append_by, append_for, append_rollout, corrected_talk, judged_turn, new_turn,
        said, sampled, turn_with,
    },
    world::{Answers, Damage, END, Failure, Habit, Poison, World},
};
