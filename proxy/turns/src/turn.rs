//! The parts of a turn: request, reply, how it was served, and its state.

use std::{collections::BTreeMap, sync::Arc};

use metaclaw_chat::{
    AgentId, ChainHash, GroupId, Message, Role, RolloutId, SenderId, SessionId, Speaker, TaskId,
    TurnId, Usage, Utterance, Verdict, utterance_at,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// The kind of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnKind {
    /// Part of the conversation with the owner.
    Main,
    /// The client's internal request (heartbeat, title, compaction). It is logged and never learned from.
    Side,
    /// Part of a rollout: an agent does a task, and no owner speaks. Only the rollout's outcome judges it, and it is
    /// never evidence about an owner.
    Rollout,
}

/// How the reply's stream ended. Only [`StreamEnd::Complete`] replies are learned from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum StreamEnd {
    /// As the upstream intended.
    Complete,
    /// The upstream's connection broke.
    Cut,
    /// The agent closed the connection.
    ClientGone,
    /// The upstream answered with an error instead of a reply.
    UpstreamError { status: u16 },
    /// The capture's memory ran out. The reply is incomplete here, although the agent has all of it.
    Overflowed,
}

/// Why a prompt is not the continuation of an earlier prompt of its session, so that a provider's prompt cache serves
/// only a part of it or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakCause {
    /// A wish or a skill came into the prompt, left it, or changed.
    Lesson,
    /// Another adapter answered.
    Adapter,
    /// Another upstream or another model answered.
    Upstream,
    /// The client changed its list of tools.
    Tools,
    /// The client changed its system prompt.
    System,
    /// The client changed or removed an earlier message.
    History,
}

/// That a prompt broke with an earlier one of its session. It contains no text of either.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PrefixBreak {
    pub(crate) cause: BreakCause,
    /// The earlier turn that was compared, by its number in the session.
    pub(crate) before: u32,
}

/// A request as the client sent it, before lessons were added.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The whole conversation, system messages included.
    pub messages: Vec<Message>,
    /// The `tools` field, if there was one. Several turns often share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Arc<Value>>,
    /// Other parameters that affect the reply: temperature, top_p, max_tokens and similar ones.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub params: Map<String, Value>,
}

/// A lesson (skill) in the system prompt, by name and version.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LessonRef {
    pub name: String,
    /// Its content hash, as the crate `skills` computes it.
    pub version: String,
}

/// The rollout that a turn belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutMark {
    pub id: RolloutId,
    pub task: TaskId,
    pub group: GroupId,
    /// The number of the try in its group, from 0.
    pub attempt: u32,
}

/// How a turn was served: who answered, and what was added to the request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Served {
    /// The route of the client's chat API, or none for chat completions. The turn itself is in the form of chat
    /// completions, whichever API was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<String>,
    /// The upstream's name in the configuration.
    pub upstream: String,
    /// The requested model.
    pub model: String,
    /// The adapter that answered, or none for the base model and for other upstreams' models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// The skills that were injected.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<LessonRef>,
    /// The hash of the wishes in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wishes: Option<String>,
    /// An id of each of these wishes, by which they are counted. It does not contain their words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wish_ids: Vec<String>,
    /// The text that was added to the system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_block: Option<String>,
    /// The line that was added to the owner's messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_line: Option<String>,
    /// The line that was added to the messages of each person of the conversation beside the owner who has wishes.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sender_lines: BTreeMap<SenderId, String>,
    /// The file that the turn was imported from, or none for an own turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub imported: Option<String>,
    /// The rollout that the turn belongs to, or none for a turn of a chat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutMark>,
}

/// Data about a turn besides its texts. It is the same on its way into the log and when it is read back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnMeta {
    /// Its kind.
    pub kind: TurnKind,
    /// Hash of the whole request's conversation.
    pub chain: ChainHash,
    /// The upstream's id of the reply. The same id in the same session means the same turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_id: Option<String>,
    /// The upstream's `finish_reason`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<String>,
    /// The upstream's token counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// How the stream ended.
    pub end: StreamEnd,
    /// When the request had been read, in Unix milliseconds.
    pub started_ms: u64,
    /// When the first byte of the reply arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_ms: Option<u64>,
    /// When the stream ended.
    pub ended_ms: u64,
    /// Whether the client said that its session ends with this turn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_last: bool,
    /// Whether some of its text was masked. Then no token ids are kept, which would reveal it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub masked: bool,
}

/// A turn as it is read back: everything that was handed in, and what the log added.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    pub id: TurnId,
    /// Whose turn it is.
    pub agent: AgentId,
    pub session: SessionId,
    /// Data about the turn besides its texts.
    #[serde(flatten)]
    pub meta: TurnMeta,
    /// The turn of the same session whose reply this request continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<TurnId>,
    /// Index in `request.messages` at which the evidence about the parent begins: the first message after its reply. It
    /// is 0 without a parent.
    pub new_from: usize,
    pub request: Request,
    /// The reply, as far as it arrived.
    pub reply: Option<Message>,
    /// How it was served.
    pub served: Served,
    /// Its state.
    pub state: TurnState,
    /// The valid verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// The overruled verdicts, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overruled: Vec<Verdict>,
    /// The training steps that used it, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<Use>,
    /// The token ids, if the sampler returned them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
}

/// The ids that a reply was sampled as, from our own trainer or from vLLM.
///
/// # Shapes
/// `ids` and `logprobs` have one entry for each sampled token. So has `sampling_logprobs`, unless it is empty.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tokens {
    /// The prompt's token ids.
    pub prompt_ids: Vec<u32>,
    pub ids: Vec<u32>,
    /// Log-probabilities at temperature 1 over the full vocabulary, in nats.
    #[serde(deserialize_with = "logprobs")]
    pub logprobs: Vec<f32>,
    /// Log-probabilities under the sampling distribution: after temperature, top-p and top-k. It is empty if they are
    /// not known.
    #[serde(deserialize_with = "logprobs")]
    pub sampling_logprobs: Vec<f32>,
    /// The adapter that sampled, or none for the base model.
    pub adapter: Option<String>,
    /// The policy's version: the number of training steps of that adapter.
    pub version: Option<u64>,
    /// The base model. For another upstream, the requested model.
    pub base: String,
    /// The base model's content hash, if the upstream reports it, because file names can be reused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_fingerprint: Option<String>,
}

/// A use of a turn by a finished training step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    /// The lineage of checkpoints.
    pub lineage: String,
    /// The step's number in the lineage.
    pub n: u64,
}

/// The state of a turn on its way into the weights. Every change is one transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum TurnState {
    /// It is in the log and has no verdict.
    Captured,
    /// It has a verdict and may be taken.
    Judged,
    /// Training step `n` has taken it.
    Taken {
        /// The number of the step in its agent's lineage.
        n: u64,
    },
    /// Training step `n` used it.
    Trained {
        /// The number of the step in its agent's lineage.
        n: u64,
    },
    /// It is excluded and never trained on.
    Spent {
        /// The reason in a few words. Excluded turns are counted by it.
        why: String,
    },
    /// It is held out for measuring and never trained on.
    HeldOut,
}

/// A [`TurnState`] without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateKind {
    Captured,
    Judged,
    Taken,
    Trained,
    Spent,
    HeldOut,
}

// === impl Served ===

impl Served {
    /// Returns the number of characters that lessons added to the prompt.
    pub fn added_chars(&self) -> u64 {
        let lines = self.system_block.iter().chain(&self.user_line);
        let added = lines.chain(self.sender_lines.values());
        added.map(|text| text.chars().count() as u64).sum()
    }
}

// === impl TurnMeta ===

impl TurnMeta {
    /// Makes the data of a main turn with a complete reply, with all times equal (Unix milliseconds). Callers change
    /// the other fields.
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

    pub(crate) fn is_learnable(&self) -> bool {
        self.kind != TurnKind::Side && self.end == StreamEnd::Complete
    }
}

// === impl Turn ===

impl Turn {
    /// Returns the last text that the owner typed among its new messages. If the log does not know its parent, messages
    /// that were answered already, or come before a summary, are not new.
    pub fn new_words(&self) -> Option<Utterance<'_>> {
        self.new_utterance().filter(Utterance::is_owners)
    }

    /// Returns the same text, whoever typed it.
    pub fn new_utterance(&self) -> Option<Utterance<'_>> {
        let messages = &self.request.messages;
        let is_answer = |said: &Message| matches!(said.role(), Role::Assistant | Role::Tool);
        let answered = messages.iter().rposition(is_answer);
        let from = match self.parent {
            Some(_) => self.new_from,
            None => answered.map_or(0, |last| last + 1),
        };
        let new = (from..messages.len()).rev();
        let mut said = new.filter_map(|at| utterance_at(messages, at));
        said.find(|said| said.speaker != Speaker::Client || said.has_summary)
    }

    /// Returns the messages after the parent's reply: the evidence about the parent, including tool results.
    pub fn evidence(&self) -> &[Message] {
        self.request
            .messages
            .get(self.new_from..)
            .unwrap_or_default()
    }
}

/// JSON has no infinity and writes `null`, which stands for a token that could not be sampled.
fn logprobs<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f32>, D::Error> {
    let logprobs: Vec<Option<f32>> = Vec::deserialize(from)?;
    Ok(logprobs
        .into_iter()
        .map(|logprob| logprob.unwrap_or(f32::NEG_INFINITY))
        .collect())
}

// === impl Tokens ===

impl Tokens {
    /// Returns the memory of its numbers in bytes.
    pub fn n_bytes(&self) -> usize {
        let ids = size_of_val(self.prompt_ids.as_slice()) + size_of_val(self.ids.as_slice());
        let drawn = size_of_val(self.sampling_logprobs.as_slice());
        ids + size_of_val(self.logprobs.as_slice()) + drawn
    }
}

// === impl TurnState ===

impl TurnState {
    /// Returns the state without its data.
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
