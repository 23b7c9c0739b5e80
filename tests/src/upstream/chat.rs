//! OpenAI's chat completions: role chunk, content, finish, usage, `[DONE]`.

use serde_json::{Value, json};

use super::{
    json::any,
    play::{
        CACHED_TOKENS, COMPLETION_TOKENS, Call, Failure, MODEL, PROMPT_TOKENS, Part, Reply, Said,
    },
};

pub(super) fn has_result(request: &Value) -> bool {
    any(&request["messages"], |message| message["role"] == "tool")
}

pub(super) fn events(reply: &Reply) -> Vec<String> {
    let mut events = match &reply.said {
        Said::Text(text) => text_chunks(reply, "", text),
        Said::Thought(thought, text) => text_chunks(reply, thought, text),
        Said::Call(asked) => call_chunks(reply, asked),
    };
    if reply.has(Part::Finish) {
        events.push(chunk(reply, &json!({}), Some(reason(&reply.said))));
    }
    if reply.has(Part::Usage) {
        let mut last = frame(reply, "chat.completion.chunk");
        last["choices"] = json!([]);
        last["usage"] = usage();
        events.push(event(&last));
    }
    if reply.has(Part::End) {
        events.push("data: [DONE]\n\n".to_owned());
    }
    events
}

pub(super) fn whole(reply: &Reply) -> Value {
    let message = match &reply.said {
        Said::Text(text) => json!({"role": "assistant", "content": text}),
        Said::Thought(thought, text) => {
            json!({"role": "assistant", "reasoning_content": thought, "content": text})
        }
        Said::Call(asked) => {
            let mut call = call(asked, &asked.arguments);
            call.as_object_mut().expect("an object").remove("index");
            json!({"role": "assistant", "content": null, "tool_calls": [call]})
        }
    };
    let finish = reply.has(Part::Finish).then(|| reason(&reply.said));
    let mut whole = frame(reply, "chat.completion");
    whole["choices"] = json!([{"index": 0, "message": message, "finish_reason": finish}]);
    if reply.has(Part::Usage) {
        whole["usage"] = usage();
    }
    whole
}

pub(super) fn error(failure: Failure) -> Value {
    let (message, kind, param, code) = match failure {
        Failure::Server => ("The server had an error.", "server_error", None, None),
        Failure::RateLimit => (
            "Rate limit reached for mock-model.",
            "requests",
            None,
            Some("rate_limit_exceeded"),
        ),
        Failure::ContextOverflow => (
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 131072 tokens.",
            "invalid_request_error",
            Some("messages"),
            Some("context_length_exceeded"),
        ),
    };
    json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
}

fn text_chunks(reply: &Reply, thought: &str, text: &str) -> Vec<String> {
    let first = json!({"role": "assistant", "content": ""});
    let thoughts = Said::words(thought).map(|word| json!({ "reasoning_content": word }));
    let words = Said::words(text).map(|word| json!({ "content": word }));
    let deltas = std::iter::once(first).chain(thoughts).chain(words);
    deltas.map(|delta| chunk(reply, &delta, None)).collect()
}

fn call_chunks(reply: &Reply, asked: &Call) -> Vec<String> {
    let begin = json!({"role": "assistant", "content": null, "tool_calls": [call(asked, "")]});
    let more = asked
        .pieces()
        .map(|piece| json!({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}));
    let deltas = std::iter::once(begin).chain(more);
    deltas.map(|delta| chunk(reply, &delta, None)).collect()
}

fn call(asked: &Call, arguments: &str) -> Value {
    json!({"index": 0, "id": format!("call_mock_{}", asked.number), "type": "function",
        "function": {"name": asked.name, "arguments": arguments}})
}

fn reason(said: &Said) -> &'static str {
    match said {
        Said::Text(_) | Said::Thought(..) => "stop",
        Said::Call(_) => "tool_calls",
    }
}

fn chunk(reply: &Reply, delta: &Value, finish: Option<&str>) -> String {
    let mut chunk = frame(reply, "chat.completion.chunk");
    chunk["choices"] = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
    event(&chunk)
}

fn frame(reply: &Reply, object: &str) -> Value {
    let id = format!("chatcmpl-scripted-{}", reply.number);
    json!({"id": id, "object": object, "created": 1, "model": MODEL})
}

fn usage() -> Value {
    json!({"prompt_tokens": PROMPT_TOKENS, "completion_tokens": COMPLETION_TOKENS,
        "total_tokens": PROMPT_TOKENS + COMPLETION_TOKENS,
        "prompt_tokens_details": {"cached_tokens": CACHED_TOKENS}})
}

fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}
