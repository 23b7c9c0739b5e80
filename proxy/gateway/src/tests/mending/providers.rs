//! Strict providers: each refuses what the real one refuses, with the same words.

use serde_json::{Value, json};

use crate::Api;

pub(super) const SIGNATURE: &str = "c2lnbmVkIGJ5IGl0cyBtYWtlcg==";

/// A provider's answer: a status and a body.
pub(super) type Answers = fn(&Value) -> (u16, Value);

pub(super) fn refused(message: &str) -> (u16, Value) {
    (
        400,
        json!({"error": {"message": message, "type": "invalid_request_error"}}),
    )
}

pub(super) fn assistants(request: &Value) -> impl Iterator<Item = &Value> {
    let messages = request["messages"].as_array().unwrap().iter();
    messages.filter(|message| message["role"] == "assistant")
}

pub(super) fn calls(request: &Value) -> Vec<&Value> {
    let calls = assistants(request).filter_map(|message| message["tool_calls"].as_array());
    calls.flatten().collect()
}

/// Makes a reply: the first one calls a tool, and the reply to a result is text.
pub(super) fn completion(request: &Value, more: &Value, call: &Value) -> (u16, Value) {
    let ends_with_result =
        request["messages"].as_array().unwrap().last().unwrap()["role"] == "tool";
    let mut message = json!({"role": "assistant", "content": "It rains."});
    let mut reason = "stop";
    if !ends_with_result {
        let mut called = json!({"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Bern\"}"}});
        merge(&mut called, call);
        message = json!({"role": "assistant", "content": null, "tool_calls": [called]});
        merge(&mut message, more);
        reason = "tool_calls";
    }
    let n = request["messages"].as_array().unwrap().len();
    (
        200,
        json!({"id": format!("c{n}"), "object": "chat.completion", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": reason}]}),
    )
}

pub(super) fn merge(into: &mut Value, more: &Value) {
    let into = into.as_object_mut().unwrap();
    into.extend(more.as_object().unwrap().clone());
}

/// Behaves like Gemini 3 behind its OpenAI route.
pub(super) fn gemini(request: &Value) -> (u16, Value) {
    let known = [SIGNATURE, "skip_thought_signature_validator"];
    let is_signed = |call: &&Value| {
        let signature = call["extra_content"]["google"]["thought_signature"].as_str();
        signature.is_some_and(|signature| known.contains(&signature))
    };
    if !calls(request).iter().all(is_signed) {
        return refused("Function call is missing a thought_signature in functionCall parts.");
    }
    let signature = json!({"extra_content": {"google": {"thought_signature": SIGNATURE}}});
    completion(request, &json!({}), &signature)
}

/// Behaves like DeepSeek with thinking, for requests that offer tools.
pub(super) fn deepseek(request: &Value) -> (u16, Value) {
    let has_thought = |message: &Value| {
        let thought = message["reasoning_content"].as_str();
        thought.is_some_and(|thought| !thought.is_empty())
    };
    if !assistants(request).all(has_thought) {
        return refused(
            "The `reasoning_content` in the thinking mode must be passed back to the API.",
        );
    }
    completion(
        request,
        &json!({"reasoning_content": "I look it up."}),
        &json!({}),
    )
}

/// Behaves like a strict server without thinking.
pub(super) fn strict(request: &Value) -> (u16, Value) {
    let has_more = assistants(request).any(|message| message.get("reasoning_content").is_some())
        || calls(request)
            .iter()
            .any(|call| call.get("extra_content").is_some());
    if has_more {
        return refused("Extra inputs are not permitted: messages.1.reasoning_content");
    }
    completion(request, &json!({}), &json!({}))
}

/// Behaves like Anthropic with thinking.
pub(super) fn claude(request: &Value) -> (u16, Value) {
    let messages = request["messages"].as_array().unwrap();
    let no = |message: &str| {
        let error = json!({"type": "invalid_request_error", "message": message});
        (400, json!({"type": "error", "error": error}))
    };
    for message in messages {
        for block in message["content"].as_array().into_iter().flatten() {
            if block["type"] == "thinking" && block["signature"] != SIGNATURE {
                return no("messages.1.content.0: Invalid `signature` in `thinking` block");
            }
            let id = block["id"].as_str().unwrap_or_default();
            if !id
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
            {
                return no(
                    "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
                );
            }
        }
        let first = &message["content"][0]["type"];
        let calls = message["content"]
            .as_array()
            .is_some_and(|blocks| blocks.iter().any(|block| block["type"] == "tool_use"));
        if request["thinking"]["type"] == "enabled" && calls && first != "thinking" {
            return no(
                "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`",
            );
        }
    }
    let is_result = messages.last().unwrap()["content"][0]["type"] == "tool_result";
    let thought = json!({"type": "thinking", "thinking": "I look it up.", "signature": SIGNATURE});
    let call =
        json!({"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Bern"}});
    let (content, reason) = if is_result {
        (json!([{"type": "text", "text": "It rains."}]), "end_turn")
    } else {
        (json!([thought, call]), "tool_use")
    };
    let usage = json!({"input_tokens": 1, "output_tokens": 1});
    (
        200,
        json!({"id": format!("msg_{}", messages.len()), "type": "message", "role": "assistant", "model": "m", "content": content, "stop_reason": reason, "usage": usage}),
    )
}

/// Makes a stream of the whole reply.
pub(super) fn streamed(api: Api, reply: &Value) -> String {
    if api == Api::Messages {
        let mut begun = reply.clone();
        begun["content"] = json!([]);
        let mut events = vec![json!({"type": "message_start", "message": begun})];
        for (index, block) in reply["content"].as_array().unwrap().iter().enumerate() {
            let (empty, deltas) = match block["type"].as_str().unwrap() {
                "thinking" => (
                    json!({"type": "thinking", "thinking": "", "signature": ""}),
                    vec![
                        json!({"type": "thinking_delta", "thinking": block["thinking"]}),
                        json!({"type": "signature_delta", "signature": block["signature"]}),
                    ],
                ),
                "tool_use" => (
                    json!({"type": "tool_use", "id": block["id"], "name": block["name"], "input": {}}),
                    vec![
                        json!({"type": "input_json_delta", "partial_json": block["input"].to_string()}),
                    ],
                ),
                _ => (
                    json!({"type": "text", "text": ""}),
                    vec![json!({"type": "text_delta", "text": block["text"]})],
                ),
            };
            events.push(
                json!({"type": "content_block_start", "index": index, "content_block": empty}),
            );
            events.extend(deltas.into_iter().map(
                |delta| json!({"type": "content_block_delta", "index": index, "delta": delta}),
            ));
            events.push(json!({"type": "content_block_stop", "index": index}));
        }
        events.push(json!({"type": "message_delta", "delta": {"stop_reason": reply["stop_reason"]}, "usage": {"output_tokens": 1}}));
        events.push(json!({"type": "message_stop"}));
        let event = |event: &Value| {
            format!(
                "event: {}\ndata: {event}\n\n",
                event["type"].as_str().unwrap()
            )
        };
        return events.iter().map(event).collect();
    }
    let mut delta = reply["choices"][0]["message"].clone();
    for (index, call) in delta["tool_calls"]
        .as_array_mut()
        .into_iter()
        .flatten()
        .enumerate()
    {
        call["index"] = index.into();
    }
    let chunk = |choice: Value| {
        let chunk = json!({"id": reply["id"], "object": "chat.completion.chunk", "model": "m", "choices": [choice]});
        format!("data: {chunk}\n\n")
    };
    let reason = &reply["choices"][0]["finish_reason"];
    let said = chunk(json!({"index": 0, "delta": delta}));
    let end = chunk(json!({"index": 0, "delta": {}, "finish_reason": reason}));
    format!("{said}{end}data: [DONE]\n\n")
}
