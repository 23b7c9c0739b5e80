//! What one turn is: what was asked, what was answered, under what it was served, and what became of it.

use std::sync::Arc;

use metaclaw_chat::{
    AgentId, ChainHash, Message, Role, SessionId, Speaker, TurnId, Usage, Utterance, Verdict,
    utterance_at,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// What a turn is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnKind {
    /// Part of the conversation with the owner.
    Main,
    /// The client's own errand (heartbeat, title, compaction): logged, never learned from.
    Side,
}

/// How the reply's stream ended. Only [`StreamEnd::Complete`] ones are learned from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum StreamEnd {
    /// As the upstream meant it to.
    Complete,
    /// The upstream's connection broke.
    Cut,
    /// The agent hung up.
    ClientGone,
    /// The upstream answered with an error instead of a reply.
    UpstreamError { status: u16 },
    /// The capture's memory ran out; the reply is not whole here, though the agent has it.
    Overflowed,
}

/// A request as the client sent it, before anything was injected.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The whole conversation, system messages included.
    pub messages: Vec<Message>,
    /// The `tools` field, if there was one: often the same as of other turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Arc<Value>>,
    /// What else steers the answer: temperature, top_p, max_tokens and their like.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub params: Map<String, Value>,
}

/// A lesson (skill) that stood in the system text, by name and version.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LessonRef {
    pub name: String,
    /// Its content hash, as `skills` makes it.
    pub version: String,
}

/// Under what a turn was served: who answered, and what was put into the request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Served {
    /// The route of the chat API that the client spoke; none for chat completions. The turn itself is
    /// in their shape, whatever was spoken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<String>,
    /// The upstream's name in the configuration.
    pub upstream: String,
    /// The model that was asked for there.
    pub model: String,
    /// The adapter that answered; none for the base model and for models that are not ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// The skills that were injected.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<LessonRef>,
    /// The hash of the wishes in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wishes: Option<String>,
    /// An id of each of those wishes, by which they are counted; not its words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wish_ids: Vec<String>,
    /// The text that was added to the system text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_block: Option<String>,
    /// The line that was added to the owner's messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_line: Option<String>,
    /// The file that it was imported from; none of a turn that was had here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub imported: Option<String>,
}

/// What is known of a turn beside its texts: the same on its way into the log and read back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnMeta {
    /// What it is for.
    pub kind: TurnKind,
    /// The hash of the whole request's conversation.
    pub chain: ChainHash,
    /// The upstream's id of the reply. The same id in the same session is the same turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_id: Option<String>,
    /// The upstream's `finish_reason`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<String>,
    /// The upstream's count of tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// How the stream ended.
    pub end: StreamEnd,
    /// When the request had been read, in Unix milliseconds.
    pub started_ms: u64,
    /// When the first byte of the reply came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_ms: Option<u64>,
    /// When the stream ended.
    pub ended_ms: u64,
    /// The client said that its session ends with this turn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_last: bool,
    /// Some of its text was masked: no token ids are kept, which would tell it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub masked: bool,
}

/// A turn read back: everything that was put, and what the log made of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    pub id: TurnId,
    /// Whose turn it is.
    pub agent: AgentId,
    pub session: SessionId,
    /// What is known beside its texts.
    #[serde(flatten)]
    pub meta: TurnMeta,
    /// The turn of the same session whose reply this request goes on from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<TurnId>,
    /// Where in `request.messages` the evidence about the parent begins: the first message after
    /// its reply. 0 without a parent.
    pub new_from: usize,
    pub request: Request,
    /// What was answered, as far as it came.
    pub reply: Option<Message>,
    /// Under what it was served.
    pub served: Served,
    /// What became of it.
    pub state: TurnState,
    /// How it was judged: the verdict in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// The verdicts that were overruled, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overruled: Vec<Verdict>,
    /// The training steps that used it, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<Use>,
    /// The token ids, if whoever sampled them gave them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
}

/// The ids that a reply was sampled as: what our own trainer remembers of it, or vLLM says with it.
///
/// # Shapes
/// `ids` and `logprobs` have one entry per sampled token, and so has `sampling_logprobs` unless it is
/// empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tokens {
    /// The prompt's token ids.
    pub prompt_ids: Vec<u32>,
    pub ids: Vec<u32>,
    /// Log-probabilities at temperature 1 over the full vocabulary, in nats.
    #[serde(deserialize_with = "logprobs")]
    pub logprobs: Vec<f32>,
    /// Log-probabilities as drawn: after temperature, top-p and top-k. Empty where they are not known.
    #[serde(deserialize_with = "logprobs")]
    pub sampling_logprobs: Vec<f32>,
    /// The adapter that sampled; none is the base model.
    pub adapter: Option<String>,
    /// The policy's version: the training steps behind that adapter.
    pub version: Option<u64>,
    /// The base model; of an upstream that is not ours, the model that it was asked for.
    pub base: String,
    /// The same by content, where the upstream tells it: names of files change hands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_fingerprint: Option<String>,
}

/// That a finished training step used a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    /// The line of checkpoints.
    pub lineage: String,
    /// The step's number there.
    pub n: u64,
}

/// Where a turn stands on its way to the weights. Every move is one transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum TurnState {
    /// In the log, not judged.
    Captured,
    /// It has a verdict and may be taken.
    Judged,
    /// Training step `n` has it.
    Taken {
        /// The step of its agent's lineage.
        n: u64,
    },
    /// Training step `n` used it.
    Trained {
        /// The step of its agent's lineage.
        n: u64,
    },
    /// Never to be trained on.
    Spent {
        /// Why not, in a few words; counted in the funnel.
        why: String,
    },
    /// Kept for measuring, never trained on.
    HeldOut,
}

/// A [`TurnState`] without what it carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateKind {
    /// [`TurnState::Captured`].
    Captured,
    /// [`TurnState::Judged`].
    Judged,
    /// [`TurnState::Taken`].
    Taken,
    /// [`TurnState::Trained`].
    Trained,
    /// [`TurnState::Spent`].
    Spent,
    /// [`TurnState::HeldOut`].
    HeldOut,
}

// === impl TurnMeta ===

impl TurnMeta {
    /// Of a turn of the conversation with the owner whose reply came whole, all at one time (Unix milliseconds): what a
    /// turn has beyond that is put over it.
    pub fn whole(chain: ChainHash, at_ms: u64) -> Self {
        Self {
            kind: TurnKind::Main,
            chain,
            reply_id: None,
            finish_reason: None,
            usage: None,
            end: StreamEnd::Complete,
            started_ms: at_ms,
            first_byte_ms: None,
            ended_ms: at_ms,
            is_last: false,
            masked: false,
        }
    }

    /// Whether it is part of the conversation with the owner and its reply came whole: such a turn may be
    /// learned from.
    pub(crate) fn is_whole_main(&self) -> bool {
        self.kind == TurnKind::Main && self.end == StreamEnd::Complete
    }
}

// === impl Turn ===

impl Turn {
    /// What the owner typed last of what is new in it. Where it goes on from no turn that the log knows, what was
    /// answered already, or stands before a summary, was heard before.
    pub fn new_words(&self) -> Option<Utterance<'_>> {
        let messages = &self.request.messages;
        let is_answer = |it: &Message| matches!(it.role(), Role::Assistant | Role::Tool);
        let answered = messages.iter().rposition(is_answer);
        let from = match self.parent {
            Some(_) => self.new_from,
            None => answered.map_or(0, |last| last + 1),
        };
        let new = (from..messages.len()).rev();
        let mut said = new.filter_map(|at| utterance_at(messages, at));
        said.find(|it| it.speaker != Speaker::Client || it.has_summary)
            .filter(Utterance::is_owners)
    }

    /// What followed the parent's reply: the evidence about the parent, tool results included.
    pub fn evidence(&self) -> &[Message] {
        self.request
            .messages
            .get(self.new_from..)
            .unwrap_or_default()
    }
}

/// JSON has no infinity, and writes `null`: what could not be drawn.
fn logprobs<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f32>, D::Error> {
    let logprobs: Vec<Option<f32>> = Vec::deserialize(from)?;
    Ok(logprobs
        .into_iter()
        .map(|it| it.unwrap_or(f32::NEG_INFINITY))
        .collect())
}

// === impl Tokens ===

impl Tokens {
    /// Bytes of memory that its numbers take.
    pub fn n_bytes(&self) -> usize {
        let ids = size_of_val(self.prompt_ids.as_slice()) + size_of_val(self.ids.as_slice());
        let drawn = size_of_val(self.sampling_logprobs.as_slice());
        ids + size_of_val(self.logprobs.as_slice()) + drawn
    }
}

// === impl TurnState ===

impl TurnState {
    /// Which state, without what it carries.
    pub fn kind(&self) -> StateKind {
        match self {
            Self::Captured => StateKind::Captured,
            Self::Judged => StateKind::Judged,
            Self::Taken { .. } => StateKind::Taken,
            Self::Trained { .. } => StateKind::Trained,
            Self::Spent { .. } => StateKind::Spent,
            Self::HeldOut => StateKind::HeldOut,
        }
    }
}
