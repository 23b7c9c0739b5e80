//! What the next step of an agent would be: its plan, serialised and not run.

use std::sync::Arc;

use metaclaw_chat::{AgentId, TurnId};
use metaclaw_turns::{LogError, StateKind, Turn};
use serde::{Deserialize, Serialize};

use super::{context::TrainingContext, plan::Plan};
use crate::{
    batch::{self, FoundSamples, MOST_AT_ONCE, SeenTurns, complete_groups, groups},
    error::TrainError,
    lineage::{BaseModel, BatchStats},
    methods::{Example, Group},
    sample::{Batch, ExcludeReason, Hints, MOST_ROLLOUTS, Sample, Targets, Teaching},
    shared::Shared,
    teacher,
};

/// What a step that is asked for now would be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepPreview {
    pub agent: AgentId,
    /// The base model that its samples are of.
    pub base: String,
    /// The lineage that it goes on; none begins a fresh one.
    pub lineage: Option<String>,
    /// Its number there, from 1.
    pub n: u64,
    /// Optimiser steps that would be behind its weights.
    pub step: u64,
    /// The checkpoint that it starts from; none is a fresh adapter.
    pub parent: Option<String>,
    /// Why what the agent learned last is not continued, where it is not.
    pub begins_anew: Option<String>,
    /// The learning rate; none while the size of the model, which it goes by, is not known.
    pub learning_rate: Option<f64>,
    /// Turns that it would take.
    pub n_turns: usize,
    /// Ids that the model would read.
    pub n_tokens: usize,
    pub samples: Vec<SamplePreview>,
    /// What they are like.
    pub batch: BatchStats,
    /// Turns that are set aside for good on the way.
    pub spends: Vec<SpentTurn>,
    /// Turns that the teacher has still to answer, and that the step would have as well if it gives a reply to teach.
    pub unanswered: Vec<TurnId>,
}

/// A sample, as the training server would be given it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SamplePreview {
    /// The method that it is of.
    pub method: String,
    pub loss: String,
    /// The turns that it is made of.
    pub turns: Vec<TurnId>,
    /// Ids that the model reads.
    pub n_tokens: usize,
    pub n_trained: usize,
    /// The sum of its weights or advantages, with its share of the batch.
    pub weight: f32,
    /// Every position, where they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tokens: Vec<TokenPreview>,
}

/// One position of a sample: what is to be predicted there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenPreview {
    /// Counted from 0.
    pub position: usize,
    /// The id, or several where a distribution is the target.
    pub ids: Vec<u32>,
    /// The log-probability that it was sampled at, at T = 1; none where the loss has no use for it.
    pub logprob: Option<f32>,
    /// 1 where it counts.
    pub mask: u8,
    /// The advantage, or the weight, of each id, with its share of the batch.
    pub advantage: Vec<f32>,
}

/// A turn that is not trained on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpentTurn {
    pub turn: TurnId,
    pub why: String,
}

/// What a step that is asked for now would use of one turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnPreview {
    pub id: TurnId,
    /// The samples that it is in, with every position.
    pub samples: Vec<SamplePreview>,
    /// Why it would be set aside, if it would.
    pub spent: Option<String>,
    /// Whether it may come into a later step: something is missing yet, or the next one is full.
    pub waits: bool,
    /// Whether the teacher has still to answer it.
    pub is_unanswered: bool,
}

#[derive(Debug, Default)]
struct Prospect {
    batch: Batch,
    base: Option<BaseModel>,
    spends: Vec<SpentTurn>,
    unanswered: Vec<TurnId>,
}

/// What a step that is asked for now would be; none where there is nothing to make one of. Nothing is taken, excluded, drawn
/// or kept, and the trainer is only asked what it has.
///
/// # Errors
/// As of a step.
pub(crate) async fn dry_run(
    context: &mut TrainingContext,
    agent: &AgentId,
) -> Result<Option<StepPreview>, TrainError> {
    let found = look(context, agent).await?;
    let next = match Prospect::of_rollouts(context, agent, &found).await? {
        Some(next) => next,
        None => Prospect::of_chats(context, agent, found).await?,
    };
    let is_empty = next.batch.is_empty() && next.unanswered.is_empty();
    let Some(base) = next.base.as_ref().filter(|_| !is_empty) else {
        return Ok(None);
    };
    let site = context.site(agent).await?;
    let (start, lost) = site.look_for_start(base).await?;
    let rl = &site.shared.config.rl;
    let plan = Plan::new(agent, start, &next.batch, rl).map_err(|error| TrainError::NotTaken {
        why: error.to_string(),
    })?;
    site.runner.has(&plan.groups)?;
    let n_params = site.state.run.n_params;
    let is_known = rl.learning_rate.is_some() || n_params.is_some();
    let rate = is_known.then(|| plan.rate(rl, n_params));
    Ok(Some(StepPreview {
        begins_anew: lost,
        learning_rate: rate,
        spends: next.spends,
        unanswered: next.unanswered,
        ..StepPreview::from(plan)
    }))
}

/// What such a step would use of one turn.
///
/// # Errors
/// The log's.
pub(crate) async fn turn_preview(
    context: &mut TrainingContext,
    agent: &AgentId,
    id: TurnId,
) -> Result<TurnPreview, TrainError> {
    let found = look(context, agent).await?;
    if found.rollouts.ready.iter().any(|turn| turn.id == id) {
        let next = Prospect::of_rollouts(context, agent, &found).await?;
        let next = next.unwrap_or_default();
        return Ok(next.turn(&Arc::clone(&context.shared), agent, id).await?);
    }
    let used = match &found.base {
        Some(base) => context.used(agent, base).await,
        None => Ok(Vec::new()),
    };
    let used = match used {
        // What is new can be shown all the same.
        Err(TrainError::NoTrainer { .. }) => Vec::new(),
        other => other?,
    };
    let shared = Arc::clone(&context.shared);
    let targets = &context.agent(agent).teacher.targets;
    let next = Prospect::find(&shared, agent, found, used, targets).await?;
    Ok(next.turn(&shared, agent, id).await?)
}

/// The same where nobody trains, and so nobody teaches.
///
/// # Errors
/// The log's.
pub(crate) async fn turn_without_teacher(
    shared: &Shared,
    agent: &AgentId,
    id: TurnId,
) -> Result<TurnPreview, LogError> {
    let targets = Targets::default();
    let teaching = Teaching {
        targets: &targets,
        hints: &Hints::default(),
        consolidates: false,
    };
    let found = batch::look(shared, &mut SeenTurns::default(), agent, teaching).await?;
    let next = Prospect::find(shared, agent, found, Vec::new(), &targets).await?;
    next.turn(shared, agent, id).await
}

async fn look(context: &mut TrainingContext, agent: &AgentId) -> Result<FoundSamples, LogError> {
    let shared = Arc::clone(&context.shared);
    let teacher = &mut context.agent(agent).teacher;
    teacher.is_told(teacher::wishes(&shared, agent));
    let teaching = teacher.teaching(&shared.config.rl);
    batch::look(&shared, &mut SeenTurns::default(), agent, teaching).await
}

// === impl Prospect ===

impl Prospect {
    /// The step of rollouts, if there are some to make one of. Such a step comes before one of chats.
    async fn of_rollouts(
        context: &mut TrainingContext,
        agent: &AgentId,
        found: &FoundSamples,
    ) -> Result<Option<Self>, TrainError> {
        let Some(base) = &found.rollout_base else {
            return Ok(None);
        };
        let shared = Arc::clone(&context.shared);
        let groups = complete_groups(&shared, agent, &found.rollouts).await?;
        if groups.groups.is_empty() {
            return Ok(None);
        }
        let batch = context
            .rollout_batch(agent, base, groups, MOST_ROLLOUTS)
            .await?;
        Ok((!batch.is_empty()).then(|| Self {
            spends: spends(&found.spent, &batch),
            base: Some(base.clone()),
            batch,
            unanswered: Vec::new(),
        }))
    }

    async fn of_chats(
        context: &mut TrainingContext,
        agent: &AgentId,
        found: FoundSamples,
    ) -> Result<Self, TrainError> {
        let used = match &found.base {
            Some(base) => context.used(agent, base).await?,
            None => Vec::new(),
        };
        let shared = Arc::clone(&context.shared);
        let targets = &context.agent(agent).teacher.targets;
        Ok(Self::find(&shared, agent, found, used, targets).await?)
    }

    /// What there is to take of what was found, and of what was used before and may serve again. What the teacher has still
    /// to answer is listed.
    async fn find(
        shared: &Shared,
        agent: &AgentId,
        found: FoundSamples,
        used: Vec<Arc<Turn>>,
        targets: &Targets,
    ) -> Result<Self, LogError> {
        let limit = shared.config.rl.batch_size.max(MOST_AT_ONCE);
        let samples = &found.samples;
        let room = limit.saturating_sub(samples.answered.len());
        let ids = samples.unanswered.iter().map(|turn| turn.id);
        let mut unanswered: Vec<TurnId> = ids.take(room).collect();
        let n_new = samples.answered.len().min(limit) + unanswered.len();
        let may_serve = |turn: &Arc<Turn>| targets.declined(turn).is_none();
        let mut again = Vec::new();
        for turn in used.into_iter().filter(may_serve).take(n_new) {
            match targets.target(&turn) {
                Some(target) => again.push(Sample::again(turn, target)),
                None => unanswered.push(turn.id),
            }
        }
        unanswered.extend(samples.unhinted.iter().map(|turn| turn.id));
        let batch = batch::assemble(shared, agent, samples, again, limit).await?;
        Ok(Self {
            spends: spends(&found.spent, &batch),
            base: found.base,
            batch,
            unanswered,
        })
    }

    async fn turn(
        &self,
        shared: &Shared,
        agent: &AgentId,
        id: TurnId,
    ) -> Result<TurnPreview, LogError> {
        // One that is no example is told of by the step itself.
        let groups = groups(&self.batch, &shared.config.rl).unwrap_or_default();
        let in_step = groups.iter().flat_map(|group| {
            let examples = group.examples.iter();
            let own = examples.filter(move |example| example.turns.contains(&id));
            own.map(move |example| SamplePreview {
                tokens: tokens(example),
                ..SamplePreview::new(group, example)
            })
        });
        let samples: Vec<SamplePreview> = in_step.collect();
        let spent = self.spends.iter().find(|spend| spend.turn == id);
        let spent = spent.map(|spent| spent.why.clone());
        let judged = shared.in_state(agent, StateKind::Judged).await?;
        Ok(TurnPreview {
            id,
            is_unanswered: self.unanswered.contains(&id),
            waits: samples.is_empty() && spent.is_none() && judged.contains(&id),
            samples,
            spent,
        })
    }
}

// === impl StepPreview ===

impl From<Plan> for StepPreview {
    fn from(plan: Plan) -> Self {
        let examples = plan.groups.iter().flat_map(|group| {
            let examples = group.examples.iter();
            examples.map(move |example| SamplePreview::new(group, example))
        });
        let samples: Vec<SamplePreview> = examples.collect();
        Self {
            base: plan.shape.base.to_string(),
            lineage: (plan.point.n > 0).then(|| plan.point.lineage.clone()),
            n: plan.n(),
            step: plan.after().steps,
            parent: plan.point.checkpoint.as_ref().map(ToString::to_string),
            begins_anew: None,
            learning_rate: None,
            n_turns: plan.turns.len(),
            n_tokens: samples.iter().map(|sample| sample.n_tokens).sum(),
            samples,
            batch: plan.stats,
            spends: Vec::new(),
            unanswered: Vec::new(),
            agent: plan.agent,
        }
    }
}

// === impl SamplePreview ===

impl SamplePreview {
    fn new(group: &Group, example: &Example) -> Self {
        let given = given(example);
        let counts = |row: &&[f32]| row.iter().any(|value| *value != 0.0);
        Self {
            method: group.method.name().to_owned(),
            loss: group.loss.as_str().to_owned(),
            turns: example.turns.clone(),
            n_tokens: example.n_tokens(),
            // What its weights are worked out from is known when the step is made: all of the reply has some.
            n_trained: match &example.state {
                Some(state) => state.n_trained(),
                None => rows(given, example).filter(counts).count(),
            },
            weight: given.iter().sum(),
            tokens: Vec::new(),
        }
    }
}

fn spends(found: &[(TurnId, ExcludeReason)], batch: &Batch) -> Vec<SpentTurn> {
    let spent = found.iter().chain(&batch.spent);
    let spent = spent.map(|(turn, why)| SpentTurn {
        turn: *turn,
        why: why.to_string(),
    });
    spent.collect()
}

fn tokens(example: &Example) -> Vec<TokenPreview> {
    let parts = example.datum.parts();
    let width = width(example);
    let ids = parts.target_tokens.values().chunks(width);
    let position = |(position, (ids, given)): (usize, (&[u32], &[f32]))| TokenPreview {
        position,
        ids: ids.to_vec(),
        logprob: parts
            .logprobs
            .as_ref()
            .and_then(|logprob| logprob.get(position))
            .copied(),
        mask: u8::from(given.iter().any(|value| *value != 0.0)),
        advantage: given.to_vec(),
    };
    let rows = ids.zip(rows(given(example), example));
    rows.enumerate().map(position).collect()
}

fn given(example: &Example) -> &[f32] {
    let parts = example.datum.parts();
    match (&parts.advantages, &parts.weights) {
        (Some(advantages), _) => advantages,
        (None, Some(weights)) => weights.values(),
        (None, None) => &[],
    }
}

fn rows<'a>(values: &'a [f32], example: &Example) -> impl Iterator<Item = &'a [f32]> {
    values.chunks(width(example))
}

fn width(example: &Example) -> usize {
    let parts = example.datum.parts();
    let n = parts.model_input_tokens.len().max(1);
    (parts.target_tokens.values().len() / n).max(1)
}
