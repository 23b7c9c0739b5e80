//! Short forms of the log's content, for lists and counts.

use std::collections::BTreeMap;

use metaclaw_chat::{AgentId, Score, SessionId, TurnId, Usage};
use serde::{Deserialize, Serialize};

use crate::turn::{BreakCause, StateKind, StreamEnd, TurnKind, TurnState};

/// The largest number of turns in one list.
pub const MAX_LIST: usize = 1_000;

/// Selects turns for a list, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TurnFilter {
    /// Only the turns of this agent.
    pub agent: Option<AgentId>,
    /// Only the turns of this session. Without `agent`, of every agent that has a session of this name.
    pub session: Option<SessionId>,
    /// Only turns in this state.
    pub state: Option<StateKind>,
    /// At most this many, up to [`MAX_LIST`]; 0 means 50.
    pub limit: usize,
    /// Only turns that come after this one in the list: the last id of the previous page.
    pub before: Option<TurnId>,
}

/// One line about a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnSummary {
    pub id: TurnId,
    /// Whose turn it is.
    pub agent: AgentId,
    pub session: SessionId,
    /// Its kind.
    pub kind: TurnKind,
    /// How the stream ended.
    pub end: StreamEnd,
    /// When the request had been read, in Unix milliseconds.
    pub started_ms: u64,
    /// When the stream ended.
    pub ended_ms: u64,
    /// The upstream's name in the configuration.
    pub upstream: String,
    /// The requested model.
    pub model: String,
    /// The adapter that answered.
    pub adapter: Option<String>,
    /// Messages in the request.
    pub n_messages: usize,
    /// The beginning of the owner's last message among the new ones, or among all if none is new (a request that was
    /// sent twice).
    pub asked: Option<String>,
    /// The beginning of the reply.
    pub answered: Option<String>,
    /// Its state.
    pub state: TurnState,
    pub score: Option<Score>,
    /// Whether the verdict has a hint.
    pub is_hinted: bool,
    /// Whether its token ids are known.
    pub has_ids: bool,
    /// The upstream's token counts.
    pub usage: Option<Usage>,
    /// The names of the skills in its prompt.
    pub skills: Vec<String>,
    /// Why its prompt broke with an earlier one of its session, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<BreakCause>,
}

/// How many turns reached each stage, and why the others did not.
///
/// `turns`, `main`, `rollouts`, `complete`, `with_ids` and `judged` count every turn that ever reached this stage. `taken`,
/// `trained`, `held_out` and `spent` count turns that are in this state now, or were when they were deleted. The counts
/// are kept when the text is deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Funnel {
    pub turns: u64,
    /// Main turns among those.
    pub main: u64,
    /// Turns of rollouts among those.
    #[serde(skip_serializing_if = "is_none")]
    pub rollouts: u64,
    /// Turns of both kinds with a complete reply.
    pub complete: u64,
    /// Turns whose token ids are known.
    pub with_ids: u64,
    /// Turns with a verdict.
    pub judged: u64,
    /// Turns among those whose valid verdict was given at the end of their session, by request and reply alone.
    #[serde(skip_serializing_if = "is_none")]
    pub judged_at_session_end: u64,
    /// Turns in an open step.
    pub taken: u64,
    /// Turns in a finished step.
    pub trained: u64,
    /// Turns held out for measuring.
    pub held_out: u64,
    /// Excluded turns by reason.
    pub spent: BTreeMap<String, u64>,
    /// Turns whose text was deleted.
    pub forgotten: u64,
}

/// The counts are written with every turn, so rare ones are left out when they are 0.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde wants it")]
fn is_none(n: &u64) -> bool {
    *n == 0
}

// === impl Funnel ===

impl Funnel {
    /// Returns the count of a kind of turn, or `None` for side turns, which are counted among all turns alone.
    pub(crate) fn of_kind(&mut self, kind: TurnKind) -> Option<&mut u64> {
        match kind {
            TurnKind::Main => Some(&mut self.main),
            TurnKind::Rollout => Some(&mut self.rollouts),
            TurnKind::Side => None,
        }
    }

    /// Adds another agent's counts.
    pub fn add(&mut self, other: &Self) {
        self.turns += other.turns;
        self.main += other.main;
        self.rollouts += other.rollouts;
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
