//! `metaclaw adapters`: the weights that were learned, and which of them serve.

use std::{io, path::Path, process::ExitCode};

use anyhow::ensure;
use clap::{Args, Subcommand};
use metaclaw_chat::AgentId;
use metaclaw_learner::GateConfig;
use metaclaw_trainer_api::AdapterName;

use super::{
    context::Context,
    source::{TurnSource, running},
};
use crate::{
    adapters, assemble,
    control::{AdapterChoice, AdapterView},
    out,
};

/// Stands for the model without an adapter: no adapter can be called so, as each has its agent's name in front.
const BASE: &str = "base";

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
    /// Serve with another one, at once: the way back from weights that went too far. The next training starts
    /// from there.
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

async fn list(context: &Context, json: bool) -> anyhow::Result<()> {
    let adapters: Vec<AdapterView> = if let Some(client) = running(&context.home).await? {
        client.ask("adapters", &()).await?
    } else {
        on_disk(&folder(context)?)?
    };
    if json {
        return Ok(out::json(&adapters)?);
    }
    let row = |it: &AdapterView| {
        let held = it.n_leases.to_string();
        vec![it.name.clone(), it.agents.join(", "), held]
    };
    let rows: Vec<Vec<String>> = adapters.iter().map(row).collect();
    Ok(out::line(out::table(
        &["adapter", "serves", "held by"],
        &rows,
    ))?)
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
        return Ok(client.ask("use_adapter", choice).await?);
    }
    if let Some(name) = &choice.adapter {
        let _: AdapterName = name.parse()?;
        let there = on_disk(&folder(context)?)?;
        ensure!(
            there.iter().any(|it| it.name == *name),
            "there is no adapter {name} here: `metaclaw adapters list` shows those there are"
        );
    }
    let gate: GateConfig = context.settings(None, Vec::new())?.section("gate")?;
    let log = TurnSource::open(context, "adapters use").await?;
    let chosen = match &log {
        TurnSource::Files { log, .. } => adapters::choose(log, choice, gate.enabled).await,
        // It was started meanwhile.
        TurnSource::Running(client) => Ok(client.ask("use_adapter", choice).await?),
    };
    log.close().await?;
    chosen
}

/// Where the local trainer keeps adapters.
fn folder(context: &Context) -> anyhow::Result<std::path::PathBuf> {
    let loaded = context.settings(None, Vec::new())?;
    let folder = assemble::checkpoint_dir(&loaded.config, &context.home);
    Ok(folder.join("adapters"))
}

/// The adapters in a folder; who is served with them only the running process knows.
fn on_disk(folder: &Path) -> io::Result<Vec<AdapterView>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        // Half-written ones have no configuration yet.
        if entry.path().join("adapter_config.json").is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    let view = |name| AdapterView {
        name,
        agents: Vec::new(),
        n_leases: 0,
    };
    Ok(names.into_iter().map(view).collect())
}
