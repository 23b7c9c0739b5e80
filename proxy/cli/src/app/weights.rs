//! Which weights serve, by the owner's word.

use anyhow::Context as _;
use metaclaw_chat::AgentId;
use metaclaw_trainer_api::{AdapterName, wire::SampleRequest};
use tracing::info;

use super::App;
use crate::{
    adapters::{self, AdapterDetail},
    control::{AdapterChoice, AdapterView},
};

// === impl App ===

impl App {
    /// The adapters that the trainer has, with the agents that are served with each and what each comes from.
    pub(crate) async fn adapters(&self) -> anyhow::Result<Vec<AdapterDetail>> {
        let Some(backend) = &self.backend else {
            return Ok(Vec::new());
        };
        let adapters = backend.adapters().await?;
        let checkpoints = backend.checkpoints().await?;
        let serving = self.served().await?;
        let in_use = self.serving.in_use();
        let view = |name: String| AdapterView {
            agents: serving
                .iter()
                .filter(|(_, adapter)| *adapter == name)
                .map(|(agent, _)| agent.to_string())
                .collect(),
            n_leases: in_use
                .iter()
                .find(|(used, _)| **used == *name)
                .map_or(0, |(_, n_leases)| *n_leases),
            ..AdapterView::named(name)
        };
        let views = adapters.into_iter().map(|it| view(it.name.to_string()));
        let mut details = adapters::details(views.collect(), &checkpoints);
        adapters::add_outcomes(&self.log, &mut details).await?;
        Ok(details)
    }

    /// Serves the agent with what its adapter was trained from.
    pub(crate) async fn roll_back(&self, agent: Option<AgentId>) -> anyhow::Result<AdapterChoice> {
        let choice = adapters::before(&self.log, agent).await?;
        self.use_adapter(&choice).await?;
        Ok(choice)
    }

    /// Serves with another adapter, at once and after a restart; the agents that it is for.
    ///
    /// The log first: a step that ends meanwhile is then not served in its place.
    pub(crate) async fn use_adapter(&self, choice: &AdapterChoice) -> anyhow::Result<Vec<AgentId>> {
        let backend = self.backend.as_ref();
        let backend = backend.context("there is no policy model, so no weights serve")?;
        if let Some(name) = &choice.adapter {
            let _: AdapterName = name.parse()?;
            // Whoever cannot serve it now would refuse every chat.
            let tried = backend.sample(SampleRequest::one_token(name.clone())).await;
            tried.with_context(|| {
                format!("{name} cannot be served: `metaclaw adapters list` shows those there are")
            })?;
        }
        let is_gated = self.learner.tests_adapters();
        if let Some(name) = choice.adapter.as_ref().filter(|_| is_gated) {
            self.test(name).await?;
        }
        let chosen = adapters::choose(&self.log, choice, is_gated).await?;
        for agent in &chosen {
            self.serving.choose(agent, choice.adapter.as_deref());
        }
        Ok(chosen)
    }

    /// Has the gate test an adapter that no step of the log made, as a replay's: one that it does not let through does not
    /// serve.
    async fn test(&self, name: &str) -> anyhow::Result<()> {
        if adapters::is_of_step(&self.log, name).await? {
            return Ok(());
        }
        let report = self.learner.test(&name.parse()?).await?;
        // Of one without a checkpoint of ours nobody knows what it was made of.
        let Some(report) = report else { return Ok(()) };
        anyhow::ensure!(
            report.passed(),
            "{name} was declined by the gate: {}; it serves only with gate.enabled: false",
            report.why()
        );
        info!(adapter = name, "tested, and fit to serve");
        Ok(())
    }
}
