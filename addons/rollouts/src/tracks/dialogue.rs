//! The loop of a track's agent: the model replies, its tools answer, until it replies without a call.

use serde_json::{Value, json};

use super::{
    error::AgentError,
    policy::{PolicyClient, PolicyRequestError},
    reply::PolicyCall,
    task::EarlierExchange,
};

/// The most calls of one reply that are carried out.
const MAX_CALLS: usize = 8;

/// The tools of a track.
pub(super) trait Toolbox {
    /// The tools in OpenAI's form.
    fn definitions(&self) -> &[Value];

    /// Notes that the model has replied.
    fn begin_turn(&mut self) {}

    /// Carries out a call, and returns the text that the model is shown. A mistake of the model is such a text too.
    fn call(&mut self, call: &PolicyCall) -> impl Future<Output = Result<String, AgentError>>;

    /// Returns a message of the user that follows the answers to the calls of one reply, if there is one.
    fn after_calls(&mut self) -> impl Future<Output = Result<Option<Value>, AgentError>> {
        async { Ok(None) }
    }

    /// Carries out what a reply without calls asks for in its text, if it does.
    fn read_text(
        &mut self,
        _text: &str,
    ) -> impl Future<Output = Result<Option<String>, AgentError>> {
        async { Ok(None) }
    }
}

/// A conversation with the model.
#[derive(Debug)]
pub(super) struct Dialogue {
    messages: Vec<Value>,
}

/// How a conversation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DialogueEnd {
    /// The number of replies.
    pub(super) turns: u32,
    /// The text of the last reply.
    pub(super) last: String,
    pub(super) reason: EndReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndReason {
    /// The last reply asks for nothing.
    Stopped,
    TurnLimit,
    ContextFull,
}

// === impl Dialogue ===

impl Dialogue {
    /// Returns a conversation that begins with examples of how to reply, if a task has any.
    pub(super) fn new(system: &str, earlier: &[EarlierExchange], prompt: impl Into<Value>) -> Self {
        let mut messages = Vec::new();
        if !system.is_empty() {
            messages.push(json!({ "role": "system", "content": system }));
        }
        for EarlierExchange { user, assistant } in earlier {
            messages.push(json!({ "role": "user", "content": user }));
            messages.push(json!({ "role": "assistant", "content": assistant }));
        }
        messages.push(json!({ "role": "user", "content": prompt.into() }));
        Self { messages }
    }

    /// Has the model reply and the tools answer, for at most `max_turns` replies.
    ///
    /// # Errors
    /// If the model or a tool cannot be reached.
    pub(super) async fn run(
        mut self,
        policy: &PolicyClient,
        tools: &mut impl Toolbox,
        max_turns: u32,
    ) -> Result<DialogueEnd, AgentError> {
        let mut last = String::new();
        for turns in 1..=max_turns {
            let reply = match policy.ask(&self.messages, tools.definitions()).await {
                Ok(reply) => reply,
                // The episode ends here, and is judged by what was done so far. With no turn there is nothing to judge.
                Err(PolicyRequestError::ContextFull { .. }) if turns > 1 => {
                    return Ok(DialogueEnd {
                        turns: turns - 1,
                        last,
                        reason: EndReason::ContextFull,
                    });
                }
                Err(error) => return Err(error.into()),
            };
            tools.begin_turn();
            self.messages.push(reply.message());
            for (place, call) in reply.calls.iter().enumerate() {
                let answer = if place < MAX_CALLS {
                    tools.call(call).await?
                } else {
                    format!("not carried out: at most {MAX_CALLS} calls at once")
                };
                self.messages
                    .push(json!({ "role": "tool", "tool_call_id": call.id, "content": answer }));
            }
            if reply.calls.is_empty() {
                let Some(answer) = tools.read_text(&reply.text).await? else {
                    return Ok(DialogueEnd {
                        turns,
                        last: reply.text,
                        reason: EndReason::Stopped,
                    });
                };
                self.messages
                    .push(json!({ "role": "user", "content": answer }));
            }
            if !reply.calls.is_empty()
                && let Some(content) = tools.after_calls().await?
            {
                self.messages
                    .push(json!({ "role": "user", "content": content }));
            }
            last = reply.text;
        }
        Ok(DialogueEnd {
            turns: max_turns,
            last,
            reason: EndReason::TurnLimit,
        })
    }
}

// === functions ===

/// Adds a description of tools to a system prompt, for a model whose chat template has no place for them. The form of
/// calls is that of the Qwen and Hermes families, which the proxy reads.
pub(super) fn with_tools(system: &str, tools: &[Value]) -> String {
    let lines: Vec<String> = tools.iter().map(|it| it["function"].to_string()).collect();
    let described = format!(
        "You can call these tools:\n{}\nTo call one, write only:\n<tool_call>\n{{\"name\": NAME, \"arguments\": \
         {{..}}}}\n</tool_call>",
        lines.join("\n")
    );
    if system.is_empty() {
        described
    } else {
        format!("{system}\n\n{described}")
    }
}
