//! `metaclaw replay`: weights trained again from the log, with other settings, into a lineage of their own.
//!
//! Where a proxy runs it does that beside its own training, since the log and the policy server are its own; where none does, the
//! files are opened and the policy server is started for as long as this takes.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use jiff::Zoned;
use metaclaw_chat::{AgentId, Span, now_ms};
use metaclaw_settings::key_and_value;
use metaclaw_trainer_api::AdapterName;
use serde_json::Value;

use super::{
    context::Context,
    offline,
    source::{agent, running},
};
use crate::{out, replays::ReplayAsked};

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
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let json = self.json;
        let asked = self.asked(context).await?;
        let mut last = None;
        let mut each = |event: Value| {
            tell(&event, json)?;
            last = Some(event);
            Ok(())
        };
        if let Some(client) = running(&context.home).await? {
            let line = |line: &[u8]| each(serde_json::from_slice(line)?);
            client.lines("replay", &asked, line).await?;
        } else {
            out::aside("metaclaw does not run here: its policy server is started for this");
            let offline = offline::open(context, "replay").await?;
            let told = |event| {
                // An output that nobody reads does not end it: what is made stays.
                serde_json::to_value(&event)
                    .map(|event| each(event).ok())
                    .ok();
            };
            let replayed = offline.replays.run(&offline.learner, asked, told).await;
            offline.close().await;
            replayed?;
        }
        match last {
            Some(event) if event["is"] == "ended" => Ok(ExitCode::SUCCESS),
            Some(event) if event["is"] == "failed" => {
                bail!("{}", event["why"].as_str().unwrap_or("it failed"))
            }
            Some(_) | None => bail!("metaclaw ended before the replay did: what was made is there"),
        }
    }

    async fn asked(self, context: &Context) -> anyhow::Result<ReplayAsked> {
        let ago_ms = |span: Span| u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX);
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
            since_ms: self.since.map(|span| now_ms().saturating_sub(ago_ms(span))),
            steps: self.steps,
            seed: self.seed,
            set: self.set,
        })
    }
}

fn tell(event: &Value, json: bool) -> std::io::Result<()> {
    if json {
        return out::line(event.to_string());
    }
    text::text(event).map_or(Ok(()), out::line)
}
