//! `metaclaw replay`: weights trained again from the log, with other settings, into a lineage of their own.
//!
//! Where a proxy runs it does that beside its own training, since the log and the policy server are its own; where none does, the
//! files are opened and the policy server is started for as long as this takes.

use anyhow::bail;
use clap::Args;
use jiff::Zoned;
use metaclaw_chat::{AgentId, Span, now_ms, whole_ms};
use metaclaw_control::{caller::by_line, replays::ReplayAsked};
use metaclaw_learner::ReplayEvent;
use metaclaw_settings::key_and_value;
use metaclaw_trainer_api::AdapterName;

use super::{
    calling::{agent, caller},
    context::Context,
};
use crate::out;

mod text;

/// Arguments of `replay`.
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// A setting that is to hold for it, as in `rl.learning_rate=1e-4`; may be given several times. Keys of rl.* and gate.*.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_and_value)]
    set: Vec<(String, String)>,
    /// The agent whose turns are trained on; without one, the agent that spoke last.
    #[arg(long)]
    agent: Option<AgentId>,
    /// Only sessions that were spoken in since then, as in "2 h" or "3 d".
    #[arg(long)]
    since: Option<Span>,
    /// So many steps at most.
    #[arg(long, value_name = "N")]
    steps: Option<usize>,
    /// The seed of the first weights; without one, another one each time.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// What it is called: its checkpoints say so, and its numbers lie in a folder of this name. Without one, by the time.
    #[arg(long)]
    name: Option<AdapterName>,
    /// As JSON, one event a line.
    #[arg(long)]
    json: bool,
}

// === impl ReplayArgs ===

impl ReplayArgs {
    /// Does it.
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let json = self.json;
        let asked = self.asked(context).await?;
        let mut last = None;
        let each = by_line(|line| {
            let event: ReplayEvent = serde_json::from_slice(line)?;
            tell(&event, json)?;
            last = Some(event);
            Ok(())
        });
        let caller = caller(context, "replay").await?;
        if !caller.is_process() {
            out::aside("metaclaw does not run here: its policy server is started for this");
        }
        let replayed = caller.stream(asked, |note| out::aside(note), each).await;
        caller.close().await;
        replayed?;
        match last {
            Some(ReplayEvent::Ended(_)) => Ok(()),
            Some(ReplayEvent::Failed { why }) => bail!("{why}"),
            Some(ReplayEvent::Began { .. } | ReplayEvent::Read { .. } | ReplayEvent::Step(_))
            | None => bail!("metaclaw ended before the replay did: what was made is there"),
        }
    }

    async fn asked(self, context: &Context) -> anyhow::Result<ReplayAsked> {
        let name = match self.name {
            Some(name) => name,
            None => Zoned::now()
                .strftime("replay-%Y%m%d-%H%M%S")
                .to_string()
                .parse()?,
        };
        Ok(ReplayAsked {
            name,
            agent: agent(context, self.agent.as_ref()).await?,
            since_ms: self.since.map(|it| now_ms().saturating_sub(whole_ms(it.0))),
            steps: self.steps,
            seed: self.seed,
            set: self.set,
        })
    }
}

fn tell(event: &ReplayEvent, json: bool) -> std::io::Result<()> {
    if json {
        return out::line(serde_json::to_string(event)?);
    }
    text::text(event).map_or(Ok(()), out::line)
}
