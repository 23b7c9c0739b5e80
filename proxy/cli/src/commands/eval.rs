//! `metaclaw eval`: adapters beside the base model, measured.
//!
//! Where a proxy runs it is asked, since the log and the policy server are its own; where none does, the files are opened
//! and the policy server is started for as long as this takes.

use std::time::Duration;

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
    /// Adapters by name, as `metaclaw adapters list` shows them; without one, the one that the agent is served with.
    #[arg(value_name = "ADAPTER")]
    adapters: Vec<String>,
    /// The agent whose wishes and turns they are; without one, the agent that spoke last.
    #[arg(long)]
    agent: Option<AgentId>,
    /// What is wished, in place of the wishes that stand; may be given several times.
    #[arg(long = "wish", value_name = "TEXT")]
    wishes: Vec<String>,
    /// These turns are asked again, as in 12-3; without them those that are held out, else the last ones.
    #[arg(
        long,
        value_name = "TURN",
        value_delimiter = ',',
        conflicts_with = "last"
    )]
    turns: Vec<TurnId>,
    /// So many of the last questions that sessions began with, each asked again; 0 for none.
    #[arg(long, value_name = "N", value_parser = number)]
    last: Option<usize>,
    /// Which set of everyday questions, from 0: the gate takes another one at each step.
    #[arg(long, value_name = "N", default_value_t = 0)]
    set: usize,
    /// So many replies of each kind, side by side.
    #[arg(long, value_name = "N", default_value_t = 0)]
    replies: usize,
    /// Seconds to wait for it.
    #[arg(long, default_value_t = 1_800)]
    timeout: u64,
    /// As JSON.
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
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
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
        Ok(out::answer(&report, self.json, text::text)?)
    }

    fn turns(&self) -> EvalTurns {
        match self.last {
            Some(n) => EvalTurns::Last(n),
            None if self.turns.is_empty() => EvalTurns::HeldOutOrLast(LAST),
            None => EvalTurns::These(self.turns.clone()),
        }
    }
}
