//! A training server in memory that fails where it is told to, and conversations to learn from.
//!
//! Its weights are the list of what was trained on, so that a test can read from a checkpoint what is
//! in it, and how often.

mod talk;
mod world;

pub(crate) use self::{
    talk::{append, append_for, corrected_talk, new_turn, said, turn_with},
    world::{Damage, Failure, Habit, Poison, World},
};
