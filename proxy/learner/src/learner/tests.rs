//! Tests of the whole loop, with a log on disk and a training server in memory.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::join_all;
use metaclaw_reward::Rules;
use metaclaw_schedule::{Obstacle, Window};
use metaclaw_skills::Library;
use metaclaw_trainer_api::AdapterName;
use metaclaw_turns::{StateKind, StepOutcome, TurnLog, TurnsConfig};
use serde_json::{Value, json};

use super::*;
use crate::{
    config::LearnerConfig,
    external_teacher::ExternalTeacher,
    judge::Judge,
    metrics::Recorder,
    testing::{Failure, Poison, Said, World, append, corrected_talk, said},
};

mod blamed;
mod data_set;
mod faults;
mod gate;
mod measured;
mod records;
mod retired;
mod rig;
mod rollouts;
mod steps;
mod teaching;
mod timing;
mod unused;

use self::rig::{Rig, again, assert_each_trained_once, begin, config, folder, library, usual};
