//! Short forms of what is in the log, for lists and counts.

use std::collections::BTreeMap;

use metaclaw_chat::{AgentId, Score, SessionId, TurnId, Usage};
use serde::{Deserialize, Serialize};

use crate::turn::{StateKind, StreamEnd, TurnKind, TurnState};

/// The most turns that one list holds.
pub const MAX_LIST: usize = 1_000;

/// Which turns to list: the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TurnFilter {
    /// Only this agent's.
    pub agent: Option<AgentId>,
    /// Only this session's (of every agent that has one of this name, without `agent`).
    pub session: Option<SessionId>,
    /// Only those in this state.
    pub state: Option<StateKind>,
    /// At most this many, up to [`MAX_LIST`]; 0 means 50.
    pub limit: usize,
    /// Only those that stand after this one in the list: the last id of the page before.
    pub before: Option<TurnId>,
}

/// One line about a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnSummary {
    pub id: TurnId,
    /// Whose turn it is.
    pub agent: AgentId,
    pub session: SessionId,
    /// What it is for.
    pub kind: TurnKind,
    /// How the stream ended.
    pub end: StreamEnd,
    /// When the request had been read, in Unix milliseconds.
    pub started_ms: u64,
    /// When the stream ended.
    pub ended_ms: u64,
    /// The upstream's name in the configuration.
    pub upstream: String,
    /// The model that was asked.
    pub model: String,
    /// The adapter that answered.
    pub adapter: Option<String>,
    /// Messages in the request.
    pub n_messages: usize,
    /// The beginning of the owner's last message among those that are new in this turn; where nothing is,
    /// as in a request that was sent twice, among all.
    pub asked: Option<String>,
    /// The beginning of the reply.
    pub answered: Option<String>,
    /// What became of it.
    pub state: TurnState,
    pub score: Option<Score>,
    /// Whether the verdict says what would have been better.
    pub is_hinted: bool,
    /// Whether its token ids are known.
    pub has_ids: bool,
    /// The upstream's count of tokens.
    pub usage: Option<Usage>,
    /// The skills that it was served with, by name.
    pub skills: Vec<String>,
}

/// How many turns came how far, and why the others did not.
///
/// `turns`, `main`, `complete`, `with_ids` and `judged` count every turn that ever got there;
/// `taken`, `trained`, `held_out` and `spent` count those that stand there now, or stood there when they
/// were forgotten: the counts outlive the text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Funnel {
    pub turns: u64,
    /// Of those, main ones.
    pub main: u64,
    /// Main ones whose reply is whole.
    pub complete: u64,
    /// Those whose token ids are known.
    pub with_ids: u64,
    /// Those with a verdict.
    pub judged: u64,
    /// Of those, the ones whose verdict in force was given at their session's end, by request and reply alone.
    #[serde(skip_serializing_if = "is_none")]
    pub judged_at_session_end: u64,
    /// Those in an open step.
    pub taken: u64,
    /// Those in a finished step.
    pub trained: u64,
    /// Those kept for measuring.
    pub held_out: u64,
    /// Those never to be trained on, by reason.
    pub spent: BTreeMap<String, u64>,
    /// Those whose text is gone again.
    pub forgotten: u64,
}

/// The counts are written with every turn: what is seldom is not.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
fn is_none(n: &u64) -> bool {
    *n == 0
}

// === impl Funnel ===

impl Funnel {
    /// Adds another agent's counts.
    pub fn add(&mut self, other: &Self) {
        self.turns += other.turns;
        self.main += other.main;
        self.complete += other.complete;
        self.with_ids += other.with_ids;
        self.judged += other.judged;
        self.judged_at_session_end += other.judged_at_session_end;
        self.taken += other.taken;
        self.trained += other.trained;
        self.held_out += other.held_out;
        self.forgotten += other.forgotten;
        for (why, n) in &other.spent {
            *self.spent.entry(why.clone()).or_default() += n;
        }
    }
}
