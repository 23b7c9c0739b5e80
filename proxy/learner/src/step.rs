//! One step: planned, taken from the log, made by the trainer, promoted, written down.
//!
//! [`make`](making::make) turns a plan into a candidate adapter, whatever fails on the way, or says who is at fault;
//! [`promote`](promotion::promote) decides whether a candidate serves. [`StepTransaction`] holds the two stores together.

mod again;
mod agent;
mod attempt;
mod calls;
mod candidate;
mod context;
mod dry_run;
mod error;
mod gating;
mod gradients;
mod making;
mod named;
mod pairs;
mod passes;
mod placing;
mod plan;
mod planning;
mod promotion;
mod rate;
mod recovery;
mod rest;
mod run;
mod runner;
mod transaction;
mod trials;
mod watch;
mod watched;
mod wished;

pub(crate) use self::{
    again::again,
    agent::AgentState,
    context::TrainingContext,
    dry_run::{dry_run, turn_preview},
    named::tested,
    recovery::{recover, serve_again},
    transaction::{Ended, StepTransaction},
    watch::{taken_back, watch},
};
