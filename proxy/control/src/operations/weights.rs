//! Operations on weights: which serve, what the next step is, what adapters say, the same training again.

use std::{io, sync::Arc, time::Duration};

use anyhow::{Context as _, ensure};
use async_trait::async_trait;
use futures_util::{StreamExt as _, stream::BoxStream};
use metaclaw_chat::{AgentId, TurnId};
use metaclaw_gateway::Serving;
use metaclaw_learner::{
    EvalReport, EvalWanted, Learner, ReplayEvent, SftEvent, SftReport, SftWanted, StepPreview,
    StepReport, TurnPreview,
};
use metaclaw_trainer_api::{AdapterName, TrainingBackend, wire::SampleRequest};
use metaclaw_turns::TurnLog;
use serde::{Deserialize, Serialize};
use tracing::info;

use super::events::{EventTeller, event_lines};
use crate::{
    adapters::{self, AdapterChoice, AdapterDetail, AdapterView, StepDetail},
    instance::{Instance, Rooms},
    operation::{Operation, OperationFailure, StreamedOperation},
    replays::ReplayAsked,
};

/// How long a choice of an adapter may take: one that was not tested yet is tested first.
const CHOICE_DEADLINE: Duration = Duration::from_secs(900);

/// The adapters that there are, and what each comes from.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct ListAdapters;

/// The training steps of the log, of one agent or of all, the oldest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ListSteps(pub Option<AgentId>);

/// Serves an agent with what its adapter was trained from; without one, the only agent that is served with an adapter.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RollBack(pub Option<AgentId>);

/// Trains one batch now, of one agent or of each.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TrainStep(pub Option<AgentId>);

/// What the next step would be made of, of one agent or of each.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PreviewStep(pub Option<AgentId>);

/// What the next step would use of a turn; none where no process runs, which alone knows.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct PreviewTurn(pub TurnId);

#[async_trait]
impl Operation for ListAdapters {
    const PATH: &'static str = "adapters";
    type Reply = Vec<AdapterDetail>;

    async fn perform(self, instance: &Instance) -> Result<Vec<AdapterDetail>, OperationFailure> {
        if let Some(rooms) = instance.running() {
            let listed = at_training_server(rooms).await;
            return listed.map_err(OperationFailure::training_server);
        }
        let mut details = adapters::on_disk(&instance.checkpoints()?)?;
        if let Some(log) = instance.log_if_any().await? {
            adapters::add_outcomes(log, &mut details).await?;
        }
        Ok(details)
    }
}

#[async_trait]
impl Operation for ListSteps {
    const PATH: &'static str = "steps";
    type Reply = Vec<StepDetail>;

    async fn perform(self, instance: &Instance) -> Result<Vec<StepDetail>, OperationFailure> {
        let Some(log) = instance.log_if_any().await? else {
            return Ok(Vec::new());
        };
        let mut steps = log.all_steps().await?;
        if let Some(agent) = self.0 {
            steps.retain(|step| step.begun.agent == agent);
        }
        let library = instance.library()?;
        let mut details = Vec::with_capacity(steps.len());
        for step in steps {
            let hints = log.hints(step.begun.turns.clone()).await?;
            details.push(StepDetail::new(step, &library, hints));
        }
        Ok(details)
    }
}

async fn at_training_server(rooms: &Rooms) -> anyhow::Result<Vec<AdapterDetail>> {
    let Some(backend) = &rooms.training.backend else {
        return Ok(Vec::new());
    };
    let adapters = backend.adapters().await?;
    let checkpoints = backend.checkpoints().await?;
    let serving = rooms.served().await?;
    let in_use = rooms.gateway.serving.in_use();
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
    let views = adapters.into_iter().map(|one| view(one.name.to_string()));
    let mut details = adapters::details(views.collect(), &checkpoints);
    adapters::add_outcomes(&rooms.log, &mut details).await?;
    Ok(details)
}

#[async_trait]
impl Operation for AdapterChoice {
    const PATH: &'static str = "use_adapter";
    const DEADLINE: Duration = CHOICE_DEADLINE;
    type Reply = Vec<AgentId>;

    async fn perform(self, instance: &Instance) -> Result<Vec<AgentId>, OperationFailure> {
        Ok(choose(instance, &self).await?)
    }
}

#[async_trait]
impl Operation for RollBack {
    const PATH: &'static str = "roll_back";
    const DEADLINE: Duration = CHOICE_DEADLINE;
    type Reply = AdapterChoice;

    async fn perform(self, instance: &Instance) -> Result<AdapterChoice, OperationFailure> {
        let choice = adapters::before(instance.log().await?, self.0).await?;
        choose(instance, &choice).await?;
        Ok(choice)
    }
}

/// Serves with another adapter, at once and after a restart; the agents that it is for.
///
/// The log first: a step that ends meanwhile is then not served in its place.
async fn choose(instance: &Instance, choice: &AdapterChoice) -> anyhow::Result<Vec<AgentId>> {
    let adapter = choice.adapter.as_deref();
    if let Some(rooms) = instance.running() {
        let known = rooms.training.backend.as_ref();
        let backend = known.context("no model is trained here, so there are no adapters: set trainer.model, or rl.remote_url")?;
        can_serve(&**backend, adapter).await?;
    } else {
        refuse_unknown(instance, adapter)?;
    }
    let is_gated = instance.is_gated()?;
    let log = instance.log().await?;
    if let Some(name) = adapter.filter(|_| is_gated)
        && !adapters::is_of_step(log, name).await?
    {
        match instance.running() {
            Some(rooms) => test(&rooms.learning.learner, name).await?,
            None => refuse_untested(instance, name)?,
        }
    }
    let chosen = adapters::choose(log, choice, is_gated).await?;
    if let Some(rooms) = instance.running() {
        for agent in &chosen {
            rooms.gateway.serving.choose(agent, adapter);
        }
    }
    Ok(chosen)
}

/// Asks the training server for a token of the adapter: whoever cannot serve it now would refuse every chat.
async fn can_serve(backend: &dyn TrainingBackend, adapter: Option<&str>) -> anyhow::Result<()> {
    let Some(name) = adapter else { return Ok(()) };
    let _: AdapterName = name.parse()?;
    let tried = backend
        .sample(SampleRequest::one_token(name.to_owned()))
        .await;
    tried.with_context(|| {
        format!("{name} cannot be served: `metaclaw adapters list` shows those there are")
    })?;
    Ok(())
}

fn refuse_unknown(instance: &Instance, adapter: Option<&str>) -> anyhow::Result<()> {
    let Some(name) = adapter else { return Ok(()) };
    let _: AdapterName = name.parse()?;
    let there = adapters::on_disk(&instance.checkpoints()?)?;
    ensure!(
        there.iter().any(|adapter| adapter.view.name == *name),
        "there is no adapter {name} here: `metaclaw adapters list` shows those there are"
    );
    Ok(())
}

/// Has the gate test an adapter that no step of the log made, as a replay's: one that it does not let through does not
/// serve.
async fn test(learner: &Learner, name: &str) -> anyhow::Result<()> {
    // An adapter without a checkpoint of ours is not tested: what it was made of is not known.
    let Some(report) = learner.test(&name.parse()?).await? else {
        return Ok(());
    };
    ensure!(
        report.passed(),
        "{name} was declined by the gate: {}; it serves only with gate.enabled: false",
        report.why()
    );
    info!(adapter = name, "tested, and fit to serve");
    Ok(())
}

/// Refuses what no step of the log made, as a replay's: the gate tests it, which takes the policy server.
fn refuse_untested(instance: &Instance, name: &str) -> anyhow::Result<()> {
    let there = adapters::on_disk(&instance.checkpoints()?)?;
    let known = there.iter().find(|adapter| adapter.view.name == *name);
    ensure!(
        known.is_none_or(|known| known.manifest.is_none()),
        "{name} is of no step of the log, and the gate tests it before it serves: `metaclaw start` first"
    );
    Ok(())
}

#[async_trait]
impl Operation for TrainStep {
    const PATH: &'static str = "train_step";
    type Reply = Vec<StepReport>;

    async fn perform(self, instance: &Instance) -> Result<Vec<StepReport>, OperationFailure> {
        let learner = &instance.process()?.learning.learner;
        let steps = learner.train_now(self.0).await;
        steps.map_err(OperationFailure::unavailable)
    }
}

#[async_trait]
impl Operation for PreviewStep {
    const PATH: &'static str = "dry_run";
    type Reply = Vec<StepPreview>;

    async fn perform(self, instance: &Instance) -> Result<Vec<StepPreview>, OperationFailure> {
        let learner = &instance.process()?.learning.learner;
        let steps = learner.dry_run(self.0).await;
        steps.map_err(OperationFailure::unavailable)
    }
}

#[async_trait]
impl Operation for PreviewTurn {
    const PATH: &'static str = "turn_preview";
    type Reply = Option<TurnPreview>;

    async fn perform(self, instance: &Instance) -> Result<Option<TurnPreview>, OperationFailure> {
        let Some(rooms) = instance.running() else {
            return Ok(None);
        };
        let preview = rooms.learning.learner.turn_preview(self.0).await;
        preview.map_err(OperationFailure::unavailable)
    }
}

#[async_trait]
impl Operation for EvalWanted {
    const PATH: &'static str = "eval";
    type Reply = EvalReport;

    async fn perform(self, instance: &Instance) -> Result<EvalReport, OperationFailure> {
        let learner = instance.learner().await?.learner;
        let report = learner.evaluate(&self).await;
        report.map_err(OperationFailure::unavailable)
    }
}

impl StreamedOperation for ReplayAsked {
    const PATH: &'static str = "replay";

    /// A line for each event, as they come; the last one of a replay that fails says why. The
    /// replay ends if the client disconnects.
    fn stream(
        self,
        instance: Arc<Instance>,
        _note: fn(&str),
    ) -> BoxStream<'static, io::Result<Vec<u8>>> {
        let replay = |instance: Arc<Instance>, teller: EventTeller| async move {
            let parts = instance.learner().await?;
            let told = Box::new(move |event: ReplayEvent| teller.tell(&event));
            parts.replays.run(parts.learner, self, told).await.map(drop)
        };
        event_lines(instance, replay, |why| ReplayEvent::Failed { why }).boxed()
    }
}

impl StreamedOperation for SftWanted {
    const PATH: &'static str = "train";

    /// A line for each event, as they come; the last one of a training that fails says why. The
    /// training ends if the client disconnects.
    fn stream(
        self,
        instance: Arc<Instance>,
        _note: fn(&str),
    ) -> BoxStream<'static, io::Result<Vec<u8>>> {
        let work = |instance: Arc<Instance>, teller: EventTeller| async move {
            train(instance.process()?, &self, &teller).await
        };
        event_lines(instance, work, |why| SftEvent::Failed { why }).boxed()
    }
}

async fn train(rooms: &Rooms, wanted: &SftWanted, teller: &EventTeller) -> anyhow::Result<()> {
    let tell = Box::new(|event: SftEvent| teller.tell(&event));
    let mut report = rooms.learning.learner.fine_tune(wanted, tell).await?;
    if wanted.serves && !wanted.dry_run && !report.serves && report.passed() {
        serve(&rooms.log, &rooms.gateway.serving, &mut report).await?;
    }
    teller.tell_last(&SftEvent::Ended(Box::new(report))).await;
    Ok(())
}

/// Serves the agent with the adapter, by its owner's choice: its next steps start from there.
async fn serve(log: &TurnLog, serving: &Serving, report: &mut SftReport) -> anyhow::Result<()> {
    let agent = &report.agent;
    log.choose(agent, report.adapter.clone()).await?;
    serving.choose(agent, report.adapter.as_deref());
    info!(%agent, adapter = report.adapter, "trained from a data set, and serves");
    report.serves = true;
    Ok(())
}
