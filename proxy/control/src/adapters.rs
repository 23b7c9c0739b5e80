//! The owner's choice of the adapter that serves, which the log keeps, so that a restart and the next training step
//! know it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use anyhow::{Context as _, bail, ensure};
use metaclaw_chat::{AgentId, lock};
use metaclaw_turns::{Step, StepOutcome, TurnLog};
use serde::{Deserialize, Serialize};

use crate::status::LostAdapter;

mod detail;

pub use self::detail::{AdapterDetail, AdapterView, MadeView, ManifestView, ShapeView, StepDetail};

use self::detail::parts;
pub(crate) use self::detail::{add_outcomes, details, on_disk};

/// Which adapter is to serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterChoice {
    /// For which agent; none: the one that the adapter was trained for, and all for the base model.
    pub agent: Option<AgentId>,
    /// Its name; none is the base model.
    pub adapter: Option<String>,
}

/// Adapters that were to serve and cannot, by agent.
#[derive(Debug, Clone, Default)]
pub struct LostAdapters(Arc<Mutex<BTreeMap<AgentId, LostAdapter>>>);

// === impl LostAdapters ===

impl LostAdapters {
    pub fn all(&self) -> Vec<LostAdapter> {
        self.with(|lost| lost.values().cloned().collect())
    }

    /// Looks at them, or changes them.
    pub fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<AgentId, LostAdapter>) -> T) -> T {
        work(&mut lock(&self.0))
    }
}

/// Records the choice for each agent that it concerns. With a gate, weights that the gate declined cannot be chosen by
/// hand either.
pub(crate) async fn choose(
    log: &TurnLog,
    choice: &AdapterChoice,
    is_gated: bool,
) -> anyhow::Result<Vec<AgentId>> {
    if let Some(adapter) = choice.adapter.as_ref().filter(|_| is_gated) {
        has_passed(log, adapter).await?;
    }
    let agents = agents(log, choice).await?;
    for agent in &agents {
        log.choose(agent, choice.adapter.clone()).await?;
    }
    Ok(agents)
}

/// Returns the agents that a choice concerns: the named one, else the one that the adapter was trained for, else all
/// that are served with an adapter.
async fn agents(log: &TurnLog, choice: &AdapterChoice) -> anyhow::Result<Vec<AgentId>> {
    if let Some(agent) = &choice.agent {
        return Ok(vec![agent.clone()]);
    }
    if let Some(adapter) = &choice.adapter {
        let agent = trained_for(adapter);
        let agent = agent.context("its name does not tell whose it is: say `--agent NAME`")?;
        return Ok(vec![agent]);
    }
    let served = log.serving().await?;
    ensure!(
        !served.is_empty(),
        "no agent is served with an adapter: the base model answers already"
    );
    Ok(served.into_iter().map(|(agent, _)| agent).collect())
}

pub(crate) async fn is_of_step(log: &TurnLog, adapter: &str) -> anyhow::Result<bool> {
    Ok(step(log, adapter).await?.is_some())
}

/// Returns the last attempt at the step of an adapter's name.
async fn step(log: &TurnLog, adapter: &str) -> anyhow::Result<Option<Step>> {
    let Some((agent, lineage, n)) = parts(adapter) else {
        return Ok(None);
    };
    let mut steps = log.steps(&agent).await?;
    let of_step = |step: &Step| step.begun.lineage == lineage && step.begun.n == n;
    let at = steps.iter().rposition(of_step);
    Ok(at.map(|at| steps.swap_remove(at)))
}

async fn has_passed(log: &TurnLog, adapter: &str) -> anyhow::Result<()> {
    let Some(step) = step(log, adapter).await? else {
        return Ok(());
    };
    match detail::unfit(&step) {
        None => Ok(()),
        Some(why) => {
            bail!("{adapter} may not serve: {why} (only gate.enabled: false would let it)")
        }
    }
}

fn trained_for(adapter: &str) -> Option<AgentId> {
    parts(adapter).map(|(agent, _, _)| agent)
}

/// Returns the adapter that an agent's adapter was trained from, which served before it. `None` is the base model.
///
/// # Errors
/// Returns an error if no agent is named and no agent, or more than one, is served with an adapter; or if no step made
/// the serving adapter.
pub(crate) async fn before(log: &TurnLog, agent: Option<AgentId>) -> anyhow::Result<AdapterChoice> {
    let mut served = log.serving().await?;
    if let Some(agent) = &agent {
        served.retain(|(name, _)| name == agent);
    }
    let names: Vec<String> = served.iter().map(|(name, _)| name.to_string()).collect();
    let [(agent, adapter)] = &served[..] else {
        ensure!(
            !served.is_empty(),
            "the base model answers already: no adapter is served, so there is none to go back from"
        );
        anyhow::bail!("say which agent: {}", names.join(", "));
    };
    let steps = log.steps(agent).await?;
    let made = steps.iter().find(|step| {
        matches!(&step.outcome, Some(StepOutcome::Trained { adapter: it, .. }) if it == adapter)
    });
    let made = made.with_context(|| {
        format!(
            "{adapter} was made by no step that the log knows: `metaclaw adapters use NAME` names what is to serve"
        )
    })?;
    Ok(AdapterChoice {
        agent: Some(agent.clone()),
        adapter: made.begun.parent.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adapters_name_tells_whose_it_is() {
        let agent = |name: &str| trained_for(name).map(|agent| agent.to_string());
        assert_eq!(
            agent("my-agent-0badcafe-000012").as_deref(),
            Some("my-agent")
        );
        assert_eq!(
            agent("_default-0badcafe-000001").as_deref(),
            Some("_default")
        );
        for other in ["kept-1", "base", "main-0badcafe-x", "main-lineage-000001"] {
            assert_eq!(agent(other), None, "{other}");
        }
    }
}
