//! What adapters say and know beside the base model, measured and not decided: the gate's probes, and turns of the owner's.
//!
//! Nothing of it is written down, and nothing serves by it. It asks the policy server beside the chat and beside training.

mod questions;
mod report;

use std::{collections::BTreeMap, sync::Arc};

use metaclaw_chat::AgentId;
use metaclaw_trainer_api::{BackendError, RunId, TrainingBackend, wire::CreateRequest};

pub use self::report::{EvalError, EvalReport, EvalRow, EvalTurns, EvalWanted, Replied};
use self::{questions::OwnersQuestion, report::told};
use crate::{
    gate::{EvalReplies, Evaluator, Posed},
    lineage::{KnownCheckpoint, known},
    policy::{By, PolicyModel},
    shared::Shared,
};

/// The model without an adapter, as rows and the training server name it.
const BASE: &str = "base";
/// The same with the wishes in its prompt: what the gate calls the reference.
const TOLD: &str = "base, told the wishes";

/// One look at some models.
struct Evaluation<'a> {
    backend: &'a dyn TrainingBackend,
    policy: &'a PolicyModel,
    readings: Evaluator<'a>,
    questions: Vec<OwnersQuestion>,
    posed: Vec<Posed>,
    checkpoints: BTreeMap<String, KnownCheckpoint>,
    n_replies: usize,
    report: EvalReport,
}

/// Measures the base model, the same with the wishes in its prompt, and adapters.
///
/// # Errors
/// [`EvalError`].
pub(crate) async fn evaluate(
    shared: &Shared,
    backend: &Arc<dyn TrainingBackend>,
    wanted: &EvalWanted,
) -> Result<EvalReport, EvalError> {
    let health = backend.health().await?;
    if !health.capabilities.forward {
        return Err(EvalError::NoScores);
    }
    let adapters = adapters(shared, wanted).await?;
    let wishes = match &wanted.wishes[..] {
        [] => shared.wishes(&wanted.agent),
        wishes => wishes.to_vec(),
    };
    let policy = PolicyModel::new(Arc::clone(backend));
    let readings = Evaluator::new(&policy, wanted.set, &wishes).await?;
    let readings = readings.map_err(EvalError::Probes)?;
    let questions = questions::of(shared, wanted).await?;
    let mut posed = Vec::with_capacity(questions.len());
    for question in &questions {
        posed.push(question.posed(&policy, &wishes).await?);
    }
    let checkpoints = backend.checkpoints().await?;
    let checkpoints = known(checkpoints).into_iter();
    let mut evaluation = Evaluation {
        backend: &**backend,
        policy: &policy,
        report: EvalReport::begun(wanted, health.model, wishes),
        readings,
        questions,
        posed,
        checkpoints: checkpoints.map(|it| (it.name.to_string(), it)).collect(),
        n_replies: wanted.n_replies,
    };
    let measured = evaluation.all(&adapters).await;
    // Of this look alone, and the server keeps few.
    policy.close().await;
    measured?;
    Ok(evaluation.report)
}

/// Whom to look at: those that are named, else what serves.
async fn adapters(shared: &Shared, wanted: &EvalWanted) -> Result<Vec<String>, EvalError> {
    if !wanted.adapters.is_empty() {
        let named = wanted.adapters.iter().filter(|name| *name != BASE);
        return Ok(named.cloned().collect());
    }
    let serving = shared.persist(|| shared.log.serving()).await?;
    let own = |(agent, adapter): (AgentId, String)| (agent == wanted.agent).then_some(adapter);
    Ok(serving.into_iter().filter_map(own).collect())
}

// === impl Evaluation ===

impl Evaluation<'_> {
    async fn all(&mut self, adapters: &[String]) -> Result<(), EvalError> {
        let turns = self.questions.iter().map(OwnersQuestion::told).collect();
        let probes = self.readings.questions();
        self.report.begin_replies(probes, turns, self.n_replies);
        self.row(BASE, None).await?;
        if !self.report.wishes.is_empty() {
            self.told().await?;
        }
        for adapter in adapters {
            self.row(adapter, Some(adapter)).await?;
        }
        Ok(())
    }

    /// What the base model says with the wishes in its prompt; what it knows stays as it is.
    async fn told(&mut self) -> Result<(), EvalError> {
        let on_probes = self.readings.reference().await?;
        let on_turns = self.on_turns(None, true).await?;
        self.put(TOLD, on_probes, on_turns, None);
        Ok(())
    }

    async fn row(&mut self, name: &str, adapter: Option<&str>) -> Result<(), EvalError> {
        let on_probes = self.readings.replies(adapter).await;
        let on_probes = on_probes.map_err(|error| told(name, error))?;
        let on_turns = self.on_turns(adapter, false).await?;
        let knowledge = match adapter {
            None => self.readings.knowledge(None, Some(By::Base)).await?,
            Some(adapter) => {
                let run = self.run(adapter).await?;
                let by = run.as_ref().map(By::Run);
                let knowledge = self.readings.knowledge(Some(adapter), by).await;
                self.close(run).await;
                knowledge?
            }
        };
        self.put(name, on_probes, on_turns, Some(knowledge));
        Ok(())
    }

    async fn on_turns(
        &self,
        adapter: Option<&str>,
        is_told: bool,
    ) -> Result<Option<EvalReplies>, BackendError> {
        if self.posed.is_empty() {
            return Ok(None);
        }
        let heard = EvalReplies::to(self.policy, adapter, &self.posed, is_told).await;
        heard.map(Some)
    }

    fn put(
        &mut self,
        name: &str,
        on_probes: EvalReplies,
        on_turns: Option<EvalReplies>,
        knowledge: Option<crate::gate::KnowledgeNumbers>,
    ) {
        let of_turns = on_turns.as_ref().map(|it| it.replies.clone());
        let said = on_probes.replies.into_iter().take(self.n_replies);
        let of_turns = of_turns.unwrap_or_default().into_iter();
        let said = said.chain(of_turns.take(self.n_replies));
        for (replied, reply) in self.report.replies.iter_mut().zip(said) {
            replied.replies.push((name.to_owned(), reply));
        }
        self.report.rows.push(EvalRow {
            name: name.to_owned(),
            on_probes: on_probes.numbers,
            on_turns: on_turns.map(|it| it.numbers),
            knowledge,
        });
    }

    /// A run that stands at an adapter's checkpoint, which has its name: only a run scores what it is not asked to say.
    async fn run(&mut self, adapter: &str) -> Result<Option<RunId>, BackendError> {
        let Some(known) = self.checkpoints.get(adapter) else {
            self.report.notes.push(format!(
                "{adapter} has no checkpoint of ours: what it knows cannot be asked"
            ));
            return Ok(None);
        };
        let shape = &known.manifest.shape;
        let request = CreateRequest {
            rank: shape.rank,
            lora_alpha: Some(shape.alpha),
            targets: Some(shape.targets.clone()),
            ..CreateRequest::default()
        };
        let run = self.backend.create_run(request).await?.session_id;
        let loaded = self
            .backend
            .load_checkpoint(run.clone(), adapter.to_owned());
        if let Err(error) = loaded.await {
            self.close(Some(run)).await;
            return Err(error);
        }
        Ok(Some(run))
    }

    async fn close(&self, run: Option<RunId>) {
        let Some(run) = run else { return };
        if let Err(error) = self.backend.close_run(run).await {
            // It goes when the server wants its memory.
            tracing::debug!(%error, "not closed");
        }
    }
}
