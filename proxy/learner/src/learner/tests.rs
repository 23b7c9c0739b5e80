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
use metaclaw_skills::{Library, SkillsConfig, WishesConfig};
use metaclaw_trainer_api::AdapterName;
use metaclaw_turns::{StateKind, StepOutcome, TurnLog, TurnsConfig};

use super::*;
use crate::{
    config::LearnerConfig,
    external_teacher::ExternalTeacher,
    judge::Judge,
    metrics::Recorder,
    testing::{Failure, Poison, Said, World, append, corrected_talk, said},
};

mod data_set;
mod dry_run;
mod external_teacher;
mod faults;
mod gate;
mod gate_reference;
mod in_turn;
mod kills;
mod left_out;
mod measuring;
mod methods;
mod occasions;
mod preference;
mod records;
mod replaying;
mod reuse;
mod rig;
mod rollouts;
mod server_away;
mod steps;
mod support;
mod teacher_away;
mod teaching;
mod unscored;
mod untold;
mod wedges;

use self::rig::{Rig, again, assert_each_trained_once, config, folder};
