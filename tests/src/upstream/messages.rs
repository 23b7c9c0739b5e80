//! Anthropic's messages: blocks that begin, grow and stop, between `message_start` and `message_stop`.

use serde_json::{Value, json};

use super::{
    json::{any, named_event},
    play::{
        CACHED_TOKENS, COMPLETION_TOKENS, Call, Failure, MODEL, PROMPT_TOKENS, Part, Reply, Said,
    },
};

pub(super) fn has_result(request: &Value) -> bool {
    any(&request["messages"], |message| {
        any(&message["content"], |block| block["type"] == "tool_result")
    })
}

pub(super) fn events(reply: &Reply) -> Vec<String> {
    let has_usage = reply.has(Part::Usage);
    let mut start = message(reply, &json!([]), None);
    if has_usage {
        // The reply has only begun, so the provider reports one token here.
        start["usage"] = usage(1);
    }
    let mut events = vec![
        json!({"type": "message_start", "message": start}),
        json!({"type": "ping"}),
    ];
    for (index, (empty, deltas)) in blocks(&reply.said).into_iter().enumerate() {
        events.push(json!({"type": "content_block_start", "index": index, "content_block": empty}));
        events.extend(
            deltas.into_iter().map(
                |delta| json!({"type": "content_block_delta", "index": index, "delta": delta}),
            ),
        );
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    if reply.has(Part::Finish) {
        let mut end = json!({"type": "message_delta",
            "delta": {"stop_reason": reason(&reply.said), "stop_sequence": null}});
        if has_usage {
            end["usage"] = json!({"output_tokens": COMPLETION_TOKENS});
        }
        events.push(end);
    }
    if reply.has(Part::End) {
        events.push(json!({"type": "message_stop"}));
    }
    events.iter().map(named_event).collect()
}

pub(super) fn whole(reply: &Reply) -> Value {
    let content = match &reply.said {
        Said::Text(text) => json!([{"type": "text", "text": text}]),
        Said::Thought(thought, text) => json!([
            {"type": "thinking", "thinking": thought, "signature": SIGNATURE},
            {"type": "text", "text": text}]),
        Said::Call(asked) => {
            let input = serde_json::from_str(&asked.arguments).expect("arguments are JSON");
            json!([call(asked, &input)])
        }
    };
    let finish = reply.has(Part::Finish).then(|| reason(&reply.said));
    let mut whole = message(reply, &content, finish);
    if reply.has(Part::Usage) {
        whole["usage"] = usage(COMPLETION_TOKENS);
    }
    whole
}

pub(super) fn error(failure: Failure) -> Value {
    let (kind, message) = match failure {
        Failure::Server => ("api_error", "Internal server error"),
        Failure::RateLimit => (
            "rate_limit_error",
            "Number of requests has exceeded your rate limit.",
        ),
        Failure::ContextOverflow => (
            "invalid_request_error",
            "prompt is too long: 212345 tokens > 200000 maximum",
        ),
    };
    json!({"type": "error", "error": {"type": kind, "message": message},
        "request_id": "req_scripted"})
}

/// The provider's proof that a thought is the model's own.
const SIGNATURE: &str = "c2NyaXB0ZWQ=";

/// Returns each block at its beginning, and its deltas.
fn blocks(said: &Said) -> Vec<(Value, Vec<Value>)> {
    let text = |text: &str| {
        let words = Said::words(text).map(|word| json!({"type": "text_delta", "text": word}));
        (json!({"type": "text", "text": ""}), words.collect())
    };
    match said {
        Said::Text(said) => vec![text(said)],
        Said::Thought(thought, said) => {
            let words = Said::words(thought);
            let mut deltas: Vec<Value> = words
                .map(|word| json!({"type": "thinking_delta", "thinking": word}))
                .collect();
            deltas.push(json!({"type": "signature_delta", "signature": SIGNATURE}));
            let empty = json!({"type": "thinking", "thinking": "", "signature": ""});
            vec![(empty, deltas), text(said)]
        }
        Said::Call(asked) => {
            let delta = |piece| json!({"type": "input_json_delta", "partial_json": piece});
            vec![(call(asked, &json!({})), asked.pieces().map(delta).into())]
        }
    }
}

fn call(asked: &Call, input: &Value) -> Value {
    let id = format!("toolu_mock_{}", asked.number);
    json!({"type": "tool_use", "id": id, "name": asked.name, "input": input})
}

fn reason(said: &Said) -> &'static str {
    match said {
        Said::Text(_) | Said::Thought(..) => "end_turn",
        Said::Call(_) => "tool_use",
    }
}

fn message(reply: &Reply, content: &Value, stop_reason: Option<&str>) -> Value {
    let id = format!("msg_scripted_{}", reply.number);
    json!({"id": id, "type": "message", "role": "assistant", "model": MODEL,
        "content": content, "stop_reason": stop_reason, "stop_sequence": null})
}

fn usage(output_tokens: u64) -> Value {
    json!({"input_tokens": PROMPT_TOKENS - CACHED_TOKENS, "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": CACHED_TOKENS, "output_tokens": output_tokens})
}
