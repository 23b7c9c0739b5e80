//! `metaclaw adapters`: the weights that were learned, and which of them serve.

use std::{process::ExitCode, time::Duration};

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use metaclaw_chat::{AgentId, now_ms};
use metaclaw_trainer_api::AdapterName;
use metaclaw_turns::TurnLog;

use super::{
    context::Context,
    source::{TurnSource, running},
};
use crate::{
    adapters::{self, AdapterDetail},
    assemble,
    control::{AdapterChoice, AdapterView},
    out,
};

mod diff;
mod show;

use self::diff::Difference;

/// Stands for the model without an adapter: no adapter can be called so, as each has its agent's name in front.
const BASE: &str = "base";

/// Until an adapter that was not tested yet is.
const TESTED: Duration = Duration::from_secs(900);

/// Arguments of `adapters`.
#[derive(Debug, Args)]
pub(crate) struct AdaptersArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Each adapter, and which agents are served with it.
    List {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// One adapter: what it was trained from, with which settings, on which turns, and what was measured.
    Show {
        /// Its name, as `list` shows it.
        name: String,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// In what two differ: settings, numbers, turns.
    Diff {
        /// The one.
        one: String,
        /// The other.
        other: String,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Serve with what the adapter that serves was trained from, at once. The next training starts from there.
    Rollback {
        /// The agent; without one, the only one that is served with an adapter.
        agent: Option<AgentId>,
    },
    /// Serve with another one, at once: the way back from weights that went too far. The next training starts
    /// from there.
    #[command(visible_alias = "promote")]
    Use {
        /// Its name, as `list` shows it; or base, for the model without any.
        name: String,
        /// The agent; without one, the one that it was trained for, and for base all.
        #[arg(long)]
        agent: Option<AgentId>,
    },
}

// === impl AdaptersArgs ===

impl AdaptersArgs {
    /// Does it.
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        match self.what {
            What::List { json } => list(context, json).await?,
            What::Show { name, json } => {
                let adapter = one(&details(context).await?, &name)?;
                if json {
                    out::json(&adapter)?;
                } else {
                    out::line(show::text(&adapter))?;
                }
            }
            What::Diff {
                one: name,
                other,
                json,
            } => {
                let all = details(context).await?;
                let difference = Difference::of(&one(&all, &name)?, &one(&all, &other)?);
                if json {
                    out::json(&difference)?;
                } else {
                    out::line(difference.text())?;
                }
            }
            What::Rollback { agent } => {
                let choice = roll_back(context, agent).await?;
                if let Some(agent) = &choice.agent {
                    out::line(told(agent, choice.adapter.as_deref()))?;
                }
            }
            What::Use { name, agent } => {
                let adapter = (name != BASE).then_some(name);
                let choice = AdapterChoice { agent, adapter };
                for agent in choose(context, &choice).await? {
                    out::line(told(&agent, choice.adapter.as_deref()))?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// All adapters, from the running process or the files.
async fn details(context: &Context) -> anyhow::Result<Vec<AdapterDetail>> {
    match running(&context.home).await? {
        Some(client) => Ok(client.ask("adapters", &()).await?),
        None => Ok(adapters::on_disk(&folder(context)?)?),
    }
}

/// The one of this name.
fn one(all: &[AdapterDetail], name: &str) -> anyhow::Result<AdapterDetail> {
    let found = all.iter().find(|it| it.view.name == name).cloned();
    found.with_context(|| {
        format!("there is no adapter {name}: `metaclaw adapters list` shows those there are")
    })
}

async fn list(context: &Context, json: bool) -> anyhow::Result<()> {
    let adapters = details(context).await?;
    let adapters: Vec<AdapterView> = adapters.into_iter().map(|it| it.view).collect();
    if json {
        return Ok(out::json(&adapters)?);
    }
    let row = |it: &AdapterView| {
        let ago = |ms: u64| out::span(now_ms().saturating_sub(ms));
        vec![
            it.name.clone(),
            it.agents.join(", "),
            it.n_leases.to_string(),
            it.step.map(|n| n.to_string()).unwrap_or_default(),
            it.created_ms.map(ago).unwrap_or_default(),
            it.parent.clone().unwrap_or_default(),
        ]
    };
    let rows: Vec<Vec<String>> = adapters.iter().map(row).collect();
    let head = ["adapter", "serves", "held by", "steps", "ago", "from"];
    Ok(out::line(out::table(&head, &rows))?)
}

/// Makes what served before serve; for whom, and what that is.
async fn roll_back(context: &Context, agent: Option<AgentId>) -> anyhow::Result<AdapterChoice> {
    if let Some(client) = running(&context.home).await? {
        return Ok(client.ask("roll_back", &agent).await?);
    }
    let source = TurnSource::open(context, "adapters rollback").await?;
    let done = match &source {
        TurnSource::Files { log, .. } => {
            let choice = adapters::before(log, agent).await;
            match choice {
                Ok(choice) => {
                    is_there(context, choice.adapter.as_deref())?;
                    let chosen = adapters::choose(log, &choice, is_gated(context)?).await;
                    chosen.map(|_| choice)
                }
                Err(error) => Err(error),
            }
        }
        // It was started meanwhile.
        TurnSource::Running(client) => Ok(client.ask("roll_back", &agent).await?),
    };
    source.close().await?;
    done
}

/// Refuses an adapter that is not on the disk.
fn is_there(context: &Context, adapter: Option<&str>) -> anyhow::Result<()> {
    let Some(name) = adapter else { return Ok(()) };
    let _: AdapterName = name.parse()?;
    let there = adapters::on_disk(&folder(context)?)?;
    ensure!(
        there.iter().any(|it| it.view.name == *name),
        "there is no adapter {name} here: `metaclaw adapters list` shows those there are"
    );
    Ok(())
}

/// What was done for one agent.
fn told(agent: &AgentId, adapter: Option<&str>) -> String {
    let adapter = adapter.unwrap_or("the base model");
    format!(
        "{agent} is served with {adapter} from its next request on; its next training starts from there (`mode: skills_only` in the settings ends training)"
    )
}

/// Makes another adapter serve; the agents that it is for.
async fn choose(context: &Context, choice: &AdapterChoice) -> anyhow::Result<Vec<AgentId>> {
    if let Some(client) = running(&context.home).await? {
        return Ok(client.order("use_adapter", choice, TESTED).await?);
    }
    is_there(context, choice.adapter.as_deref())?;
    let is_gated = is_gated(context)?;
    let log = TurnSource::open(context, "adapters use").await?;
    let chosen = match &log {
        TurnSource::Files { log, .. } => {
            match untested(context, log, choice.adapter.as_deref().filter(|_| is_gated)).await {
                Ok(()) => adapters::choose(log, choice, is_gated).await,
                Err(error) => Err(error),
            }
        }
        // It was started meanwhile.
        TurnSource::Running(client) => Ok(client.order("use_adapter", choice, TESTED).await?),
    };
    log.close().await?;
    chosen
}

/// Refuses what no step of the log made, as a replay's: the gate tests it, which takes the policy server.
async fn untested(context: &Context, log: &TurnLog, adapter: Option<&str>) -> anyhow::Result<()> {
    let Some(name) = adapter else { return Ok(()) };
    if adapters::is_of_step(log, name).await? {
        return Ok(());
    }
    let known = one(&adapters::on_disk(&folder(context)?)?, name)?;
    ensure!(
        known.manifest.is_none(),
        "{name} is of no step of the log, and the gate tests it before it serves: `metaclaw start` first"
    );
    Ok(())
}

/// Whether adapters are tested before they serve.
fn is_gated(context: &Context) -> anyhow::Result<bool> {
    let gate = context.settings(None, Vec::new())?.config.learner.gate;
    Ok(gate.enabled)
}

/// Where the local trainer keeps adapters and checkpoints.
fn folder(context: &Context) -> anyhow::Result<std::path::PathBuf> {
    let loaded = context.settings(None, Vec::new())?;
    Ok(assemble::checkpoint_dir(&loaded.config, &context.home))
}
