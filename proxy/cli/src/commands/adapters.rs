//! `metaclaw adapters`: the weights that were learned, and which of them serve.

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
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
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
        Ok(())
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
