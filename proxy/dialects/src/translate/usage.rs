//! Translates token counts and stop reasons in both directions.

use metaclaw_chat::{StopReason, token_count as count};
use serde_json::{Map, Value, json};

use super::{context::ReplyContext, wire::copy};

const COUNTS: [&str; 5] = [
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "output_tokens",
    "output_tokens_details",
];

/// Converts chat's `usage` to Anthropic's, in which `input_tokens` does not include cached tokens.
pub(super) fn to_messages(usage: &Value) -> Value {
    let (cached, written) = (count(usage, "cached"), count(usage, "written"));
    let input = count(usage, "prompt").saturating_sub(cached.saturating_add(written));
    let mut out = json!({
        "input_tokens": input,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
        "output_tokens": count(usage, "completion"),
    });
    let thinking = count(usage, "reasoning");
    if thinking > 0 {
        out["output_tokens_details"] = json!({ "thinking_tokens": thinking });
    }
    out
}

/// Converts Anthropic's `usage` to chat's, in which `prompt_tokens` includes all.
pub(super) fn to_chat(usage: &Value) -> Value {
    let read = number(&usage["cache_read_input_tokens"]);
    let written = number(&usage["cache_creation_input_tokens"]);
    let prompt = [number(&usage["input_tokens"]), read, written]
        .into_iter()
        .fold(0, u64::saturating_add);
    let completion = number(&usage["output_tokens"]);
    let mut out = json!({
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt.saturating_add(completion),
        "prompt_tokens_details": { "cached_tokens": read },
    });
    if written > 0 {
        out["prompt_tokens_details"]["cache_write_tokens"] = written.into();
    }
    if let Some(n) = usage["output_tokens_details"]["thinking_tokens"].as_u64() {
        out["completion_tokens_details"] = json!({ "reasoning_tokens": n });
    }
    out
}

pub(super) fn to_responses(usage: &Value) -> Value {
    if !usage.is_object() {
        return Value::Null;
    }
    let (input, output) = (count(usage, "prompt"), count(usage, "completion"));
    let (cached, written) = (count(usage, "cached"), count(usage, "written"));
    json!({
        "input_tokens": input,
        "input_tokens_details": { "cached_tokens": cached, "cache_write_tokens": written },
        "output_tokens": output,
        "output_tokens_details": { "reasoning_tokens": count(usage, "reasoning") },
        "total_tokens": input.saturating_add(output),
    })
}

/// Replaces Anthropic's earlier counts with later ones. Counts that these leave out stay.
pub(super) fn merge(usage: &mut Map<String, Value>, later: &Value) {
    for name in COUNTS {
        copy(later, name, usage, name);
    }
}

/// Converts a chat choice's `finish_reason` to `(stop_reason, stop_sequence)`.
///
/// vLLM's own `stop_reason` says which of the caller's stop strings ended the reply. Many servers send `stop` after
/// tool calls, for which Anthropic's clients expect `tool_use`.
pub(super) fn stop_reason(
    context: &ReplyContext,
    finish_reason: &str,
    matched: &Value,
    has_calls: bool,
) -> (&'static str, Value) {
    let is_asked = |text: &str| context.stop_sequences.iter().any(|stop| stop == text);
    let reason = match StopReason::of(finish_reason) {
        Some(StopReason::Length) => "max_tokens",
        Some(StopReason::Filtered) => "refusal",
        Some(StopReason::Window) => "model_context_window_exceeded",
        _ if has_calls => "tool_use",
        _ if matched.as_str().is_some_and(is_asked) => return ("stop_sequence", matched.clone()),
        _ => "end_turn",
    };
    (reason, Value::Null)
}

/// Converts Anthropic's `stop_reason` to chat's `finish_reason`. Chat clients expect `tool_calls` exactly if there are
/// calls, and servers with Anthropic's API may send `end_turn` with calls, or `tool_use` without.
pub(super) fn finish_reason(stop_reason: &str, has_calls: bool) -> &'static str {
    match StopReason::of(stop_reason).and_then(StopReason::in_chat) {
        Some("stop") | None if has_calls => "tool_calls",
        Some("tool_calls") if !has_calls => "stop",
        reason => reason.unwrap_or("stop"),
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}
