//! A training server in memory that fails where a test tells it to, and conversations to learn from.
//!
//! Its weights are the list of what it was trained on, so that a test can read from a checkpoint what is in it, and how
//! often.

use std::sync::Arc;

use metaclaw_reward::Rules;
use metaclaw_schedule::{Schedule, SchedulerConfig};
use metaclaw_turns::TurnLog;

use crate::{config::LearnerConfig, judge::Judge, metrics::Recorder, shared::Parts};

pub(crate) mod crash;
pub(crate) mod progress;
mod running;
mod talk;
mod world;

pub(crate) use self::{
    running::Running,
    talk::{
        Said, append, append_by, append_for, append_rollout, corrected_talk, judged_turn, new_turn,
        said, sampled, turn_with,
    },
    world::{Answers, Damage, END, Failure, Habit, Poison, World},
};

pub(crate) fn parts(config: LearnerConfig, log: &TurnLog) -> Parts {
    Parts {
        config,
        log: log.clone(),
        backend: None,
        judge: Judge::Rules(Rules::default()),
        listener: None,
        external_teacher: None,
        advantages: None,
        schedule: Schedule::local(SchedulerConfig::default(), None),
        library: None,
        memory: None,
        is_off: Arc::new(|_| false),
        is_chatting: Arc::new(|| false),
        evolver: None,
        recorder: Recorder::default(),
        folder: None,
        on_swap: Arc::new(|_, _| ()),
    }
}
