//! `metaclaw eval`: adapters beside the base model, measured.
//!
//! Where a proxy runs it is asked, since the log and the policy server are its own; where none does, the files are opened
//! and the policy server is started for as long as this takes.

use std::{process::ExitCode, time::Duration};

use clap::Args;
use metaclaw_chat::{AgentId, TurnId};
use metaclaw_learner::{EvalTurns, EvalWanted};

use super::{
    calling::{agent, caller},
    context::Context,
};
use crate::out;

mod text;

/// Arguments of `eval`.
#[derive(Debug, Args)]
pub(crate) struct EvalArgs {
    /// Names of adapters, as `metaclaw adapters list` shows them. Without any, the one that serves the agent.
    #[arg(value_name = "ADAPTER")]
    adapters: Vec<String>,
    /// The agent whose wishes and turns are used. Without it, the agent that spoke last.
    #[arg(long)]
    agent: Option<AgentId>,
    /// A wish, instead of the agent's wishes. May be repeated.
    #[arg(long = "wish", value_name = "TEXT")]
    wishes: Vec<String>,
    /// Turns to ask again, for example 12-3,15-0. Without it, the held-out turns, else the last ones.
    #[arg(
        long,
        value_name = "TURN",
        value_delimiter = ',',
        conflicts_with = "last"
    )]
    turns: Vec<TurnId>,
    /// How many of the last questions that began a session are asked again. 0 asks none.
    #[arg(long, value_name = "N", value_parser = number)]
    last: Option<usize>,
    /// The number of the set of everyday questions, from 0. The gate takes another set at each step.
    #[arg(long, value_name = "N", default_value_t = 0)]
    set: usize,
    /// How many replies to everyday questions, and how many to turns, are printed side by side.
    #[arg(long, value_name = "N", default_value_t = 0)]
    replies: usize,
    /// Seconds to wait for the result.
    #[arg(long, default_value_t = 1_800)]
    timeout: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Turns that are asked again unasked: as many as take about as long as the probes.
const LAST: usize = 8;

fn number(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 0..=100) => Ok(n),
        _ => Err("a number from 0 to 100".to_owned()),
    }
}

// === impl EvalArgs ===

impl EvalArgs {
    /// Does it.
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let agent = agent(context, self.agent.as_ref()).await?;
        let wanted = EvalWanted {
            agent,
            turns: self.turns(),
            adapters: self.adapters,
            wishes: self.wishes,
            set: self.set,
            n_replies: self.replies,
        };
        let caller = caller(context, "eval").await?;
        if !caller.is_process() {
            out::aside("metaclaw does not run here: its policy server is started for this");
        }
        let deadline = Duration::from_secs(self.timeout);
        let report = caller.call_within(wanted, deadline).await;
        caller.close().await;
        let report = report?;
        out::answer(&report, self.json, text::text)?;
        Ok(ExitCode::SUCCESS)
    }

    fn turns(&self) -> EvalTurns {
        match self.last {
            Some(n) => EvalTurns::Last(n),
            None if self.turns.is_empty() => EvalTurns::HeldOutOrLast(LAST),
            None => EvalTurns::These(self.turns.clone()),
        }
    }
}
