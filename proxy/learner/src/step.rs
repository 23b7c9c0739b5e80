//! One step: planned, taken from the log, made by the trainer, promoted, written down.
//!
//! [`make`](retry::make) turns a plan into a candidate adapter, whatever fails on the way, or says who is at fault;
//! [`promote`](promotion::promote) decides whether a candidate serves. [`StepTransaction`] holds the two stores together.

mod agent;
mod attempt;
mod context;
mod dry_run;
mod error;
mod failure_policy;
mod gate_candidate;
mod gradients;
mod micro_batches;
mod plan;
mod planning;
mod promotion;
mod rate;
mod recovery;
mod regression_monitor;
mod rest;
mod restore;
mod retry;
mod reuse;
mod run;
mod runner;
mod step_stats;
mod test_adapter;
mod transaction;

pub(crate) use self::{
    agent::AgentState,
    context::TrainingContext,
    dry_run::{dry_run, turn_preview},
    recovery::{recover, serve_again},
    regression_monitor::{taken_back, watch},
    reuse::again,
    test_adapter::tested,
    transaction::{Ended, StepTransaction},
};
