//! The training server as steps and the gate use it: what it can do, and one training run for each agent.

mod run;
mod runner;

pub(crate) use self::{
    run::{RunHandle, StepFailure, StepStage, seen},
    runner::StepRunner,
};
