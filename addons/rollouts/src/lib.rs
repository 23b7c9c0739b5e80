//! Runs an agent on tasks, many times, and reports to the proxy what each run earned.
//!
//! The agent is any program that talks to an address. An episode is one run of it on one task. The proxy, which sees
//! every token, records the episode's turns and learns from them; this crate starts and ends the programs.
//!
//! ```text
//! run -> episode -> pool -> program
//!                -> reward -> host
//!                -> proxy
//! ```

mod address;
mod episode;
mod file;
mod host;
mod http;
mod pool;
mod processes;
mod program;
mod proxy;
mod report;
mod reward;
mod run;
pub mod sandbox;
mod task;
pub mod tracks;

pub use self::{
    address::{HttpAddress, HttpAddressError},
    episode::TaskRunError,
    file::{
        EpisodeProgram, FunctionSource, JudgeSource, RewardSource, RolloutFile, RolloutFileError,
        VerifiersProgram,
    },
    host::{EpisodeTurn, RunHost, TrainedStep},
    pool::serve::{EnvironmentServer, KEY_VARIABLE, ServeError},
    proxy::{ProxyAddress, ProxyError},
    report::{EpisodeFunnel, Measurement, PassAtK},
    run::{
        EvalSetup, RunSetup, RunTasks, ServeSetup, TaskRunSummary, dry_run, run, serve,
        verifiers_tasks,
    },
    task::{RolloutTask, TaskError, tasks},
};
