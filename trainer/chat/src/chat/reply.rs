//! The formats of a chat reply: complete, and as events.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::{logprobs::TokenLogprob, think::ReplyPiece, usage::ChatUsage};

#[derive(Debug, Clone)]
pub(crate) struct Head {
    /// `chatcmpl-` and 24 hex digits. `/v1/sampled/{id}` uses this id.
    id: String,
    created: u64,
    model: String,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Delta {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
}

#[derive(Debug, Serialize)]
struct ChatLogprobs {
    content: Vec<TokenLogprob>,
}

#[derive(Debug, Serialize)]
struct ChunkChoice {
    index: u32,
    delta: Delta,
    logprobs: Option<ChatLogprobs>,
    finish_reason: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct ReplyChunk<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: Vec<ChunkChoice>,
    /// Absent unless it was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<ToldUsage>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ToldUsage {
    /// It is null here, and the last event has it.
    Later,
    Now(ChatUsage),
}

#[derive(Debug, Serialize)]
struct ReplyMessage {
    role: &'static str,
    content: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reasoning_content: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct Choice {
    index: u32,
    message: ReplyMessage,
    logprobs: Option<ChatLogprobs>,
    finish_reason: &'static str,
}

#[derive(Debug, Serialize)]
pub(crate) struct ChatCompletion {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    choices: Vec<Choice>,
    usage: ChatUsage,
}

// === impl Head ===

impl Head {
    pub(crate) fn new(model: String) -> Self {
        let created = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let number = rand::random::<u128>() >> 32;
        let id = format!("chatcmpl-{number:024x}");
        Self { id, created, model }
    }

    /// Returns the id for `/v1/sampled/{id}`: the reply's id for the first choice, and the id with the index for the
    /// others.
    pub(crate) fn choice_id(&self, index: u32) -> String {
        match index {
            0 => self.id.clone(),
            _ => format!("{}-{index}", self.id),
        }
    }

    pub(crate) fn completion(self, choices: Vec<Choice>, usage: ChatUsage) -> ChatCompletion {
        ChatCompletion {
            id: self.id,
            object: "chat.completion",
            created: self.created,
            model: self.model,
            choices,
            usage,
        }
    }

    fn chunk(&self, choices: Vec<ChunkChoice>, usage: Option<ToldUsage>) -> ReplyChunk<'_> {
        ReplyChunk {
            id: &self.id,
            object: "chat.completion.chunk",
            created: self.created,
            model: &self.model,
            choices,
            usage,
        }
    }
}

// === impl Choice ===

impl Choice {
    pub(crate) fn new(
        index: u32,
        piece: ReplyPiece,
        logprobs: Option<Vec<TokenLogprob>>,
        finish_reason: &'static str,
    ) -> Self {
        Self {
            index,
            message: ReplyMessage {
                role: "assistant",
                content: piece.content,
                reasoning_content: piece.reasoning,
            },
            logprobs: logprobs.map(|content| ChatLogprobs { content }),
            finish_reason,
        }
    }
}

#[derive(Debug)]
pub(crate) struct EventWriter {
    head: Head,
    include_usage: bool,
}

// === impl EventWriter ===

impl EventWriter {
    pub(crate) fn new(head: Head, include_usage: bool) -> Self {
        Self {
            head,
            include_usage,
        }
    }

    pub(crate) fn role(&self, index: u32) -> String {
        let delta = Delta {
            role: Some("assistant"),
            content: Some(String::new()),
            ..Delta::default()
        };
        self.event(index, delta, None, None)
    }

    pub(crate) fn news(
        &self,
        index: u32,
        piece: ReplyPiece,
        logprobs: Vec<TokenLogprob>,
    ) -> String {
        let delta = Delta {
            role: None,
            reasoning_content: some(piece.reasoning),
            content: some(piece.content),
        };
        let logprobs = (!logprobs.is_empty()).then_some(ChatLogprobs { content: logprobs });
        self.event(index, delta, logprobs, None)
    }

    pub(crate) fn finish(&self, index: u32, reason: &'static str) -> String {
        self.event(index, Delta::default(), None, Some(reason))
    }

    pub(crate) fn end(&self, usage: ChatUsage) -> String {
        let usage = self
            .include_usage
            .then(|| event(&self.head.chunk(vec![], Some(ToldUsage::Now(usage)))));
        usage.unwrap_or_default() + "data: [DONE]\n\n"
    }

    fn event(
        &self,
        index: u32,
        delta: Delta,
        logprobs: Option<ChatLogprobs>,
        finish_reason: Option<&'static str>,
    ) -> String {
        let choice = ChunkChoice {
            index,
            delta,
            logprobs,
            finish_reason,
        };
        let usage = self.include_usage.then_some(ToldUsage::Later);
        event(&self.head.chunk(vec![choice], usage))
    }
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

pub(crate) fn event(data: &impl Serialize) -> String {
    match serde_json::to_string(data) {
        Ok(json) => format!("data: {json}\n\n"),
        // Only a map with keys that are not strings, or a failing `Serialize`, could fail. There is neither.
        Err(error) => format!(": {error}\n\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::logprobs, *};

    #[test]
    fn the_events_are_openais() {
        let mut head = Head::new("main@3".to_owned());
        assert_eq!(head.id.len(), "chatcmpl-".len() + 24);
        head.id = "chatcmpl-0".to_owned();
        head.created = 7;
        let writer = EventWriter::new(head, true);
        let piece = ReplyPiece {
            reasoning: "hm".to_owned(),
            content: "Paris".to_owned(),
        };
        let logprobs = vec![logprobs::for_test("Paris", -0.5)];
        let events = [
            writer.role(0),
            writer.news(0, piece, logprobs),
            writer.finish(0, "stop"),
            writer.end(ChatUsage::new(3, 2, 1)),
        ];
        insta::assert_snapshot!(events.concat());
    }
}
