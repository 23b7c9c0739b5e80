//! The parts of a run, and its result.

use std::path::PathBuf;

use metaclaw_chat::Secret;
use serde::Serialize;

use crate::{
    file::RolloutFile,
    host::RunHost,
    proxy::ProxyAddress,
    report::{EpisodeFunnel, Measurement},
    task::RolloutTask,
};

/// The parts of a run.
#[derive(Debug)]
pub struct RunSetup<'a> {
    pub file: &'a RolloutFile,
    pub host: &'a dyn RunHost,
    /// The folder of all runs.
    pub folder: PathBuf,
    /// The name of the run; none for the file's.
    pub name: Option<String>,
    /// Whether it only measures.
    pub eval: Option<EvalSetup>,
    /// This program, which runs tracks.
    pub metaclaw: PathBuf,
    pub proxy: ProxyAddress,
    /// A client for servers of this machine, such as the proxy.
    pub local_http: reqwest::Client,
    /// A client for other servers.
    pub http: reqwest::Client,
    /// The key of environments on other machines.
    pub environment_key: Option<Secret>,
    /// Prints one line.
    pub print: fn(&str),
}

/// A measurement without training.
#[derive(Debug, Clone, Default)]
pub struct EvalSetup {
    /// The adapter that answers; without one, that which serves the agent.
    pub adapter: Option<String>,
    /// How often each task is tried; without a number, `group_size` times.
    pub tries: Option<u32>,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TaskRunSummary {
    pub run: String,
    pub n_steps: u64,
    pub funnel: EpisodeFunnel,
    pub measurements: Vec<Measurement>,
}

/// The tasks of a run.
#[derive(Debug, Clone, Default)]
pub struct RunTasks {
    /// What is trained on; empty if a run only measures.
    pub train: Vec<RolloutTask>,
    pub held_out: Vec<RolloutTask>,
}

// === impl RunTasks ===

impl RunTasks {
    /// What a measurement without training is made on: the held-out tasks, else those of training.
    pub(super) fn measured(&self) -> &[RolloutTask] {
        if self.held_out.is_empty() {
            &self.train
        } else {
            &self.held_out
        }
    }
}
