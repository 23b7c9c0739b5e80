//! Runs one episode of any track: opens the work place, lets the model call tools until it replies without a call,
//! scores the result, and closes the work place.

use metaclaw_chat::ToolCall;
use serde_json::{Value, json};

use super::{
    error::AgentError,
    policy::{PolicyClient, PolicyRequestError},
    reward::EpisodeScore,
    task::{EarlierExchange, EpisodeStart},
};

const MAX_CALLS: usize = 8;

/// An episode of one track. The track decides what the model sees, which tools it has, and how its work is scored.
pub(super) trait TrackEpisode<'a>: Sized {
    /// The system prompt, unless the task has its own.
    const SYSTEM: &'static str;

    async fn open(start: &'a EpisodeStart<'a>) -> Result<Self, AgentError>;

    async fn prepare(&mut self) -> Result<Value, AgentError>;

    fn tools(&self) -> &[Value];

    fn begin_turn(&mut self) {}

    /// Carries out a call, and returns the text that the model is shown. A mistake of the model is such a text too.
    async fn call(&mut self, call: &ToolCall) -> Result<String, AgentError>;

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

    fn explain(&self, error: PolicyRequestError) -> AgentError {
        error.into()
    }

    async fn reward(self, last: &str) -> Result<EpisodeScore, AgentError>;

    async fn close(self) -> Result<(), AgentError>;
}

/// Runs an episode.
///
/// # Errors
/// If the task, the work place, a tool or the model cannot be used.
pub(super) async fn run<'a, T: TrackEpisode<'a>>(
    start: &'a EpisodeStart<'a>,
) -> Result<EpisodeScore, AgentError> {
    let mut track = T::open(start).await?;
    match converse(&mut track, start).await {
        Ok(last) => track.reward(&last).await,
        Err(error) => {
            // The first error says why the episode failed, so an error of closing is not reported.
            let _ = track.close().await;
            Err(error)
        }
    }
}

async fn converse<'a, T: TrackEpisode<'a>>(
    track: &mut T,
    start: &EpisodeStart<'_>,
) -> Result<String, AgentError> {
    let options = &start.options;
    let prompt = track.prepare().await?;
    let policy = PolicyClient::new(start);
    let mut system = options.system.as_deref().unwrap_or(T::SYSTEM).to_owned();
    if options.tools_in_prompt {
        system = with_tools(&system, track.tools());
    }
    let mut messages = Vec::new();
    if !system.is_empty() {
        messages.push(json!({ "role": "system", "content": system }));
    }
    for EarlierExchange { user, assistant } in &options.earlier {
        messages.push(json!({ "role": "user", "content": user }));
        messages.push(json!({ "role": "assistant", "content": assistant }));
    }
    messages.push(json!({ "role": "user", "content": prompt }));
    let mut last = String::new();
    for turn in 1..=options.turns(start.settings) {
        let reply = match policy.ask(&messages, track.tools()).await {
            // The episode ends here, and is judged by what was done so far. With no turn there is nothing to judge.
            Err(PolicyRequestError::ContextFull { .. }) if turn > 1 => break,
            asked => asked.map_err(|error| track.explain(error))?,
        };
        track.begin_turn();
        messages.push(reply.message());
        for (place, call) in reply.calls.iter().enumerate() {
            let answer = if place < MAX_CALLS {
                track.call(call).await?
            } else {
                format!("not carried out: at most {MAX_CALLS} calls at once")
            };
            messages.push(json!({ "role": "tool", "tool_call_id": call.id, "content": answer }));
        }
        last = reply.text;
        let answer = if reply.calls.is_empty() {
            let Some(answer) = track.read_text(&last).await? else {
                break;
            };
            Some(Value::String(answer))
        } else {
            track.after_calls().await?
        };
        messages.extend(answer.map(|content| json!({ "role": "user", "content": content })));
    }
    Ok(last)
}

/// Adds a description of tools to a system prompt, for a model whose chat template has no place for them. The form of
/// calls is that of the Qwen and Hermes families, which the proxy reads.
fn with_tools(system: &str, tools: &[Value]) -> String {
    let lines: Vec<String> = tools
        .iter()
        .map(|tool| tool["function"].to_string())
        .collect();
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
