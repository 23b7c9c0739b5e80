//! What adapters say and know beside the base model, measured and not decided: the gate's probes, and turns of the owner's.
//!
//! Nothing of it is written down, and nothing serves by it. It asks the policy server beside the chat and beside training.

use std::{collections::BTreeMap, sync::Arc};

use metaclaw_chat::{AgentId, TurnId, owners_words};
use metaclaw_trainer_api::{BackendError, ErrorCode, RunId, TrainingBackend, wire::CreateRequest};
use metaclaw_turns::{LogError, MAX_LIST, StateKind, Turn};
use serde::{Deserialize, Serialize};

use crate::{
    gate::{EvalReplies, Evaluator, KnowledgeNumbers, Posed, Probes, ReplyNumbers},
    lineage::{KnownCheckpoint, known},
    policy::{By, PolicyModel},
    shared::Shared,
    teacher::{TeacherConversation, max_tokens, others, seed},
};

/// The model without an adapter, as rows and the training server name it.
const BASE: &str = "base";
/// The same with the wishes in its prompt: what the gate calls the reference.
const TOLD: &str = "base, told the wishes";

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
    let probes = Probes::shipped().map_err(|error| EvalError::Probes(error.to_string()))?;
    let readings = Evaluator::new(&policy, probes, wanted.set, &wishes).await?;
    let questions = questions(shared, wanted).await?;
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
        checkpoints: checkpoints.map(|c| (c.name.to_string(), c)).collect(),
        n_replies: wanted.n_replies,
    };
    let measured = evaluation.all(&adapters).await;
    // Of this look alone, and the server keeps few.
    policy.close().await;
    measured?;
    Ok(evaluation.report)
}

async fn adapters(shared: &Shared, wanted: &EvalWanted) -> Result<Vec<String>, EvalError> {
    if !wanted.adapters.is_empty() {
        let named = wanted.adapters.iter().filter(|name| *name != BASE);
        return Ok(named.cloned().collect());
    }
    Ok(shared.serving(&wanted.agent).await?.into_iter().collect())
}

// === impl Evaluation ===

impl Evaluation<'_> {
    async fn all(&mut self, adapters: &[String]) -> Result<(), EvalError> {
        let turns = self.questions.iter().map(OwnersQuestion::shown).collect();
        let probes = self.readings.questions();
        self.report.begin_replies(probes, turns, self.n_replies);
        self.row(BASE, None).await?;
        if !self.report.wishes.is_empty() {
            self.measure_reference().await?;
        }
        for adapter in adapters {
            self.row(adapter, Some(adapter)).await?;
        }
        Ok(())
    }

    async fn measure_reference(&mut self) -> Result<(), EvalError> {
        let on_probes = self.readings.reference().await?;
        let on_turns = self.on_turns(None, true).await?;
        self.put(TOLD, on_probes, on_turns, None);
        Ok(())
    }

    async fn row(&mut self, name: &str, adapter: Option<&str>) -> Result<(), EvalError> {
        let on_probes = self.readings.replies(adapter).await;
        let on_probes = on_probes.map_err(|error| failure(name, error))?;
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
        let of_turns = on_turns.as_ref().map(|turn| turn.replies.clone());
        let said = on_probes.replies.into_iter().take(self.n_replies);
        let of_turns = of_turns.unwrap_or_default().into_iter();
        let said = said.chain(of_turns.take(self.n_replies));
        for (replied, reply) in self.report.replies.iter_mut().zip(said) {
            replied.replies.push((name.to_owned(), reply));
        }
        self.report.rows.push(EvalRow {
            name: name.to_owned(),
            on_probes: on_probes.numbers,
            on_turns: on_turns.map(|turn| turn.numbers),
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

/// The longest reply that is drawn: it is read, and scored by its beginning.
const MOST_TOKENS: u32 = 128;

#[derive(Debug, Clone)]
pub(super) struct OwnersQuestion {
    turn: Turn,
    conversation: TeacherConversation,
    text: String,
}

async fn questions(shared: &Shared, wanted: &EvalWanted) -> Result<Vec<OwnersQuestion>, EvalError> {
    let agent = &wanted.agent;
    match &wanted.turns {
        EvalTurns::These(ids) => these(shared, agent, ids).await,
        EvalTurns::Last(n) => Ok(last(shared, agent, *n).await?),
        EvalTurns::HeldOutOrLast(n) => {
            let held_out = shared.in_state(agent, StateKind::HeldOut);
            let mut questions = Vec::new();
            for id in held_out.await?.into_iter().rev() {
                let turn = shared.turn(id).await?;
                questions.extend(turn.and_then(OwnersQuestion::from_turn));
                if questions.len() >= *n {
                    break;
                }
            }
            if questions.is_empty() {
                questions = last(shared, agent, *n).await?;
            }
            Ok(questions)
        }
    }
}

async fn these(
    shared: &Shared,
    agent: &AgentId,
    ids: &[TurnId],
) -> Result<Vec<OwnersQuestion>, EvalError> {
    let mut questions = Vec::with_capacity(ids.len());
    for &id in ids {
        let refused = |why| EvalError::NoQuestion { id, why };
        let turn = shared.turn(id).await?;
        let turn = turn.ok_or_else(|| refused("the log has no such turn"))?;
        if turn.agent != *agent {
            return Err(refused("it is another agent's: say --agent"));
        }
        let question = OwnersQuestion::from_turn(turn);
        questions.push(question.ok_or_else(|| refused("its owner asks nothing in it"))?);
    }
    Ok(questions)
}

/// The last questions that sessions began with, each once: what followed them was said to a reply.
async fn last(shared: &Shared, agent: &AgentId, n: usize) -> Result<Vec<OwnersQuestion>, LogError> {
    let listed = shared.list(agent, MAX_LIST).await?;
    let mut questions: Vec<OwnersQuestion> = Vec::new();
    for summary in listed.into_iter().filter(|turn| turn.id.seq == 0) {
        if questions.len() >= n {
            break;
        }
        let turn = shared.turn(summary.id).await?;
        let Some(question) = turn.and_then(OwnersQuestion::from_turn) else {
            continue;
        };
        if questions.iter().all(|known| known.text != question.text) {
            questions.push(question);
        }
    }
    Ok(questions)
}

// === impl OwnersQuestion ===

impl OwnersQuestion {
    /// None of a turn in which its owner asks nothing, or that is an agent's errand.
    fn from_turn(turn: Turn) -> Option<Self> {
        let (_, said) = owners_words(&turn.request.messages).next()?;
        let text = said.text.into_owned();
        let conversation = TeacherConversation::from_turn(&turn)?;
        let is_main = turn.meta.kind == metaclaw_turns::TurnKind::Main;
        (is_main && !text.is_empty()).then_some(Self {
            turn,
            conversation,
            text,
        })
    }

    pub(super) fn shown(&self) -> (TurnId, String) {
        (self.turn.id, self.text.clone())
    }

    pub(super) async fn posed(
        &self,
        policy: &PolicyModel,
        wishes: &[String],
    ) -> Result<Posed, BackendError> {
        let render = |messages| policy.render_for(&self.turn, messages);
        let id = self.turn.id;
        let mut other_prompts = Vec::new();
        for other in others(id, &self.text) {
            other_prompts.push(render(self.conversation.asking(other)).await?);
        }
        let told = if wishes.is_empty() {
            None
        } else {
            let told = self.conversation.told(&wishes.join(" "));
            Some(render(told).await?)
        };
        Ok(Posed {
            plain: render(self.conversation.plain()).await?,
            told,
            others: other_prompts,
            seed: seed(id),
            max_tokens: max_tokens(&self.turn).min(MOST_TOKENS),
        })
    }
}

/// What is to be looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvalWanted {
    /// Whose wishes, turns and adapter.
    pub agent: AgentId,
    /// Adapters by name; without one, the one that its agent is served with. The base model always is beside them.
    pub adapters: Vec<String>,
    /// What its owner wishes, in place of the standing wishes; none: those.
    pub wishes: Vec<String>,
    /// Which of its turns are asked again.
    pub turns: EvalTurns,
    /// Which set of everyday questions; counted from 0, and around.
    pub set: usize,
    /// How many replies of each kind are given whole.
    pub n_replies: usize,
}

/// Which turns are asked again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvalTurns {
    /// Those that are held out of training; where none are, the last questions that sessions began with: so many at most.
    HeldOutOrLast(usize),
    /// The last questions that sessions began with.
    Last(usize),
    These(Vec<TurnId>),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvalReport {
    /// Whose wishes and turns.
    pub agent: AgentId,
    pub base: String,
    /// What its owner wishes.
    pub wishes: Vec<String>,
    /// A row for each model, the base model first.
    pub rows: Vec<EvalRow>,
    /// The turns that were asked again.
    pub turns: Vec<TurnId>,
    /// What could not be done.
    pub notes: Vec<String>,
    /// Replies, question by question.
    pub replies: Vec<Replied>,
}

/// One model in numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvalRow {
    /// The adapter's name; `base`; or the base model with the wishes in its prompt, which is what the gate compares with.
    pub name: String,
    /// Its replies to a set of everyday questions.
    pub on_probes: ReplyNumbers,
    /// Its replies to turns of the owner's; none where none were asked.
    pub on_turns: Option<ReplyNumbers>,
    /// What it knows; none of the base model with wishes, which knows what the base does.
    pub knowledge: Option<KnowledgeNumbers>,
}

/// What was said to one question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replied {
    pub question: String,
    /// The turn that it is of; none of a probe.
    pub turn: Option<TurnId>,
    /// By whom, and what.
    pub replies: Vec<(String, String)>,
}

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum EvalError {
    /// There is nobody to ask.
    #[error("no training server is configured: set trainer.model, or rl.remote_url")]
    NoBackend,
    /// The training server lacks what scoring needs.
    #[error("the training server scores no replies (forward), so that nothing can be measured")]
    NoScores,
    /// The probes of this program do not read.
    #[error("{0}")]
    Probes(String),
    /// There is no adapter of that name.
    #[error(
        "the training server has no adapter {name}: `metaclaw adapters list` shows those there are"
    )]
    NoAdapter { name: String },
    /// A turn that was named cannot be asked again.
    #[error("turn {id}: {why}")]
    NoQuestion { id: TurnId, why: &'static str },
    #[error(transparent)]
    Server(#[from] BackendError),
    #[error(transparent)]
    Log(#[from] LogError),
}

fn failure(name: &str, error: BackendError) -> EvalError {
    if error.status() == Some(404) || error.code() == Some(&ErrorCode::ModelNotFound) {
        let name = name.to_owned();
        return EvalError::NoAdapter { name };
    }
    error.into()
}

// === impl EvalReport ===

impl EvalReport {
    pub(super) fn begun(wanted: &EvalWanted, base: String, wishes: Vec<String>) -> Self {
        Self {
            agent: wanted.agent.clone(),
            base,
            wishes,
            rows: Vec::new(),
            turns: Vec::new(),
            notes: Vec::new(),
            replies: Vec::new(),
        }
    }

    pub(super) fn begin_replies(
        &mut self,
        probes: &[String],
        turns: Vec<(TurnId, String)>,
        n_replies: usize,
    ) {
        self.turns = turns.iter().map(|(id, _)| *id).collect();
        let replied = |question: String, turn| Replied {
            question,
            turn,
            replies: Vec::new(),
        };
        let probes = probes.iter().take(n_replies).cloned();
        let probes = probes.map(|question| replied(question, None));
        let turns = turns.into_iter().take(n_replies);
        let turns = turns.map(|(id, question)| replied(question, Some(id)));
        self.replies = probes.chain(turns).collect();
    }
}
