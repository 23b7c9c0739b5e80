//! Batches of made-up samples, for tests.

use std::sync::Arc;

use metaclaw_turns::Turn;

use super::choose::{Choosing, Samples};
use crate::{
    config::RlConfig,
    sample::{Baselines, Sample, testing::own},
};

pub(crate) fn of(answered: Vec<Sample>, verdicts: Vec<Arc<Turn>>) -> Samples {
    Samples {
        answered,
        own: verdicts.into_iter().map(own).collect(),
        ..Samples::default()
    }
}

pub(crate) fn by(config: &RlConfig, limit: usize) -> Choosing<'_> {
    Choosing {
        config,
        baselines: Baselines::default(),
        external_teacher: false,
        limit,
    }
}

pub(crate) fn config(json: serde_json::Value) -> RlConfig {
    serde_json::from_value(json).unwrap()
}
