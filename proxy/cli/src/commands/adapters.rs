//! `metaclaw adapters`: the weights that were learned, and which of them serve.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use metaclaw_chat::{AgentId, now_ms};
use metaclaw_control::{
    adapters::{AdapterChoice, AdapterDetail, AdapterView},
    operations::weights::{ListAdapters, RollBack},
};

use super::{calling::call, context::Context};
use crate::out;

mod diff;
mod show;

use self::diff::Difference;

/// Stands for the model without an adapter: no adapter can be called so, as each has its agent's name in front.
const BASE: &str = "base";

/// Arguments of `adapters`.
#[derive(Debug, Args)]
pub(crate) struct AdaptersArgs {
    #[command(subcommand)]
    what: AdaptersCommand,
}

#[derive(Debug, Subcommand)]
enum AdaptersCommand {
    /// List the adapters, and the agents that each one serves.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show an adapter: its starting weights, settings, turns and measurements.
    Show {
        /// The adapter's name, as `list` shows it.
        name: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show in what two adapters differ: settings, figures, turns.
    Diff {
        /// The name of an adapter.
        one: String,
        /// The name of another adapter.
        other: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Serve, at once, the weights from which the serving adapter was trained. The next training starts from them.
    Rollback {
        /// The agent. Without it, the only agent that an adapter serves.
        agent: Option<AgentId>,
    },
    /// Serve another adapter, at once. The next training starts from it.
    #[command(visible_alias = "promote")]
    Use {
        /// The adapter's name, as `list` shows it, or base for the model without an adapter.
        name: String,
        /// The agent. Without it, the agent that the adapter was trained for; for base, all agents.
        #[arg(long)]
        agent: Option<AgentId>,
    },
}

// === impl AdaptersArgs ===

impl AdaptersArgs {
    /// Does it.
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        match self.what {
            AdaptersCommand::List { json } => list(context, json).await?,
            AdaptersCommand::Show { name, json } => {
                let adapter = one(&call(context, "adapters", ListAdapters).await?, &name)?;
                out::answer(&adapter, json, show::text)?;
            }
            AdaptersCommand::Diff {
                one: name,
                other,
                json,
            } => {
                let all = call(context, "adapters", ListAdapters).await?;
                let difference = Difference::of(&one(&all, &name)?, &one(&all, &other)?);
                out::answer(&difference, json, Difference::text)?;
            }
            AdaptersCommand::Rollback { agent } => {
                let choice = call(context, "adapters rollback", RollBack(agent)).await?;
                if let Some(agent) = &choice.agent {
                    out::line(told(agent, choice.adapter.as_deref()))?;
                }
            }
            AdaptersCommand::Use { name, agent } => {
                let adapter = (name != BASE).then_some(name);
                let choice = AdapterChoice { agent, adapter };
                for agent in call(context, "adapters use", choice.clone()).await? {
                    out::line(told(&agent, choice.adapter.as_deref()))?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
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
    let adapters = call(context, "adapters", ListAdapters).await?;
    let adapters: Vec<AdapterView> = adapters.into_iter().map(|it| it.view).collect();
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
    let head = ["adapter", "serves", "held by", "steps", "ago", "from"];
    Ok(out::answer_table(&adapters, json, &head, row)?)
}

/// What was done for one agent.
fn told(agent: &AgentId, adapter: Option<&str>) -> String {
    let adapter = adapter.unwrap_or("the base model");
    format!(
        "{agent} is served with {adapter} from its next request on; its next training starts from there (`mode: skills_only` in the settings ends training)"
    )
}
