//! What is wanted of an evaluation, and what it comes to.

use metaclaw_chat::{AgentId, TurnId};
use metaclaw_trainer_api::{BackendError, ErrorCode};
use metaclaw_turns::LogError;
use serde::{Deserialize, Serialize};

use crate::gate::{KnowledgeNumbers, ReplyNumbers};

/// What is to be looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvalWanted {
    /// Whose wishes, turns and adapter.
    pub agent: AgentId,
    /// Adapters by name; without one, the one that its agent is served with. The base model always is beside them.
    pub adapters: Vec<String>,
    /// What its owner wishes, in place of the standing wishes; none: those.
    #[serde(default)]
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

/// An error of a server that was asked for an adapter.
pub(super) fn told(name: &str, error: BackendError) -> EvalError {
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

    /// Notes what is asked: so many of each kind are told with the replies to them.
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
