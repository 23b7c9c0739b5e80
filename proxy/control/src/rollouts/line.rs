//! One line of a file of rollouts.

use metaclaw_chat::{AgentId, Message, Score, SessionId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with_macros::skip_serializing_none;

/// One turn of a file.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rollout {
    /// The agent that the turn will belong to.
    #[serde(default = "AgentId::default_agent")]
    pub agent: AgentId,
    /// Its conversation; turns with the same name are one conversation.
    pub session: SessionId,
    /// The request: messages of the chat API, or the owner's text.
    pub prompt: Option<RolloutPrompt>,
    /// The reply: a message, or its text.
    pub response: Option<Response>,
    pub prompt_ids: Option<Vec<u32>>,
    pub response_ids: Option<Vec<u32>>,
    /// Log-probabilities of `response_ids` at temperature 1, in nats.
    pub logprobs: Option<Vec<f32>>,
    /// Whether the reply was good; without this field, MetaClaw judges it.
    pub score: Option<Score>,
    /// What would have made it better.
    pub hint: Option<String>,
    /// The model that sampled it; the default is the trainer's.
    pub model: Option<String>,
    /// Tools of the request.
    pub tools: Option<Value>,
    /// Sampling settings such as temperature and top_p.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub params: Map<String, Value>,
    /// The default is `stop`.
    pub finish_reason: Option<String>,
    /// When it ended, in Unix milliseconds; the default is now.
    pub time_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RolloutPrompt {
    Said(String),
    Messages(Vec<Message>),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Response {
    Text(String),
    Message(Message),
}

// === impl Rollout ===

impl Rollout {
    pub(super) fn check(&self, now_ms: u64) -> Result<(), String> {
        match (&self.prompt, &self.response) {
            (Some(RolloutPrompt::Messages(messages)), _) if messages.is_empty() => {
                return Err("prompt is empty: at least one message".to_owned());
            }
            (Some(_), Some(_)) => {}
            (None, None) if self.response_ids.is_some() => {}
            (None, None) => {
                return Err(
                    "it needs prompt and response, or prompt_ids, response_ids and logprobs"
                        .to_owned(),
                );
            }
            (Some(_), None) => return Err("response is missing, and prompt is there".to_owned()),
            (None, Some(_)) => return Err("prompt is missing, and response is there".to_owned()),
        }
        self.check_ids()?;
        match self.time_ms {
            Some(ms) if ms > now_ms => Err(format!(
                "time_ms is {ms}, which is to come: Unix milliseconds up to now"
            )),
            Some(_) | None => Ok(()),
        }
    }

    fn check_ids(&self) -> Result<(), String> {
        let (prompt, ids, logprobs) = match (&self.prompt_ids, &self.response_ids, &self.logprobs) {
            (None, None, None) => return Ok(()),
            (Some(prompt), Some(ids), Some(logprobs)) => (prompt, ids, logprobs),
            _ => {
                return Err(
                    "prompt_ids, response_ids and logprobs: all three, or none of them".to_owned(),
                );
            }
        };
        for (field, ids) in [("prompt_ids", prompt), ("response_ids", ids)] {
            if ids.is_empty() {
                return Err(format!("{field} is empty: at least one id"));
            }
        }
        if logprobs.len() != ids.len() {
            return Err(format!(
                "logprobs has {} numbers and response_ids {}: one each",
                logprobs.len(),
                ids.len()
            ));
        }
        let is_wrong = |it: &f32| !it.is_finite() || *it > 0.0;
        match logprobs.iter().position(is_wrong) {
            Some(at) => Err(format!(
                "logprobs[{at}] is {}: a number of at most 0",
                logprobs[at]
            )),
            None => Ok(()),
        }
    }
}
