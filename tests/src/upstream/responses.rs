//! OpenAI's Responses: output items that are added, grow and are done, each event numbered.

use serde_json::{Value, json};

use super::{
    json::{any, named_event},
    play::{CACHED_TOKENS, COMPLETION_TOKENS, MODEL, PROMPT_TOKENS, Part, Reply, Said},
};

pub(super) fn has_result(request: &Value) -> bool {
    any(&request["input"], |item| {
        item["type"] == "function_call_output"
    })
}

pub(super) fn events(reply: &Reply) -> Vec<String> {
    let begun = response(reply, &json!([]), "in_progress");
    let mut events = vec![
        json!({"type": "response.created", "response": begun}),
        json!({"type": "response.in_progress", "response": begun}),
    ];
    for (index, item) in output(&reply.said).into_iter().enumerate() {
        events.extend(item_events(index, &item));
    }
    if reply.has(Part::End) {
        events.push(json!({"type": "response.completed", "response": whole(reply)}));
    }
    let number = |(n, mut event): (usize, Value)| {
        event["sequence_number"] = json!(n);
        named_event(&event)
    };
    events.into_iter().enumerate().map(number).collect()
}

pub(super) fn whole(reply: &Reply) -> Value {
    // Here the status says why a reply ended, and nothing else can be left out.
    let mut whole = response(reply, &json!(output(&reply.said)), "completed");
    if reply.has(Part::Usage) {
        whole["usage"] = json!({"input_tokens": PROMPT_TOKENS,
            "input_tokens_details": {"cached_tokens": CACHED_TOKENS, "cache_write_tokens": 0},
            "output_tokens": COMPLETION_TOKENS, "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": PROMPT_TOKENS + COMPLETION_TOKENS});
    }
    whole
}

/// Returns the finished items of a reply.
fn output(said: &Said) -> Vec<Value> {
    let message = |text: &str| {
        let part = json!({"type": "output_text", "text": text, "annotations": []});
        json!({"id": "msg_scripted", "type": "message", "role": "assistant",
            "status": "completed", "content": [part]})
    };
    match said {
        Said::Text(text) => vec![message(text)],
        Said::Thought(thought, text) => {
            let summary = json!([{"type": "summary_text", "text": thought}]);
            let reasoning = json!({"id": "rs_scripted", "type": "reasoning", "summary": summary});
            vec![reasoning, message(text)]
        }
        Said::Call(asked) => vec![json!({"id": "fc_scripted", "type": "function_call",
            "status": "completed", "call_id": format!("call_mock_{}", asked.number),
            "name": asked.name, "arguments": asked.arguments})],
    }
}

/// Returns the events of one item: added empty, extended, done.
fn item_events(index: usize, item: &Value) -> Vec<Value> {
    let mut empty = item.clone();
    let middle = match item["type"].as_str().expect("items have a type") {
        "message" => {
            empty["content"] = json!([]);
            text_events(&item["content"][0])
        }
        "reasoning" => {
            empty["summary"] = json!([]);
            summary_events(&item["summary"][0])
        }
        _ => {
            empty["arguments"] = json!("");
            argument_events(&item["arguments"])
        }
    };
    if item["status"].is_string() {
        empty["status"] = json!("in_progress");
    }
    let added = json!({"type": "response.output_item.added", "item": empty});
    let done = json!({"type": "response.output_item.done", "item": item});
    let mut events = [vec![added], middle, vec![done]].concat();
    for event in &mut events {
        event["output_index"] = json!(index);
        if !event["type"]
            .as_str()
            .is_some_and(|kind| kind.contains("output_item"))
        {
            event["item_id"] = item["id"].clone();
        }
    }
    events
}

fn text_events(part: &Value) -> Vec<Value> {
    let text = part["text"].as_str().expect("a text");
    let empty = json!({"type": "output_text", "text": "", "annotations": []});
    let mut events =
        vec![json!({"type": "response.content_part.added", "content_index": 0, "part": empty})];
    events.extend(Said::words(text).map(|word| {
        json!({"type": "response.output_text.delta", "content_index": 0, "delta": word,
            "logprobs": []})
    }));
    events.push(
        json!({"type": "response.output_text.done", "content_index": 0, "text": text,
        "logprobs": []}),
    );
    events.push(json!({"type": "response.content_part.done", "content_index": 0, "part": part}));
    events
}

fn summary_events(part: &Value) -> Vec<Value> {
    let text = part["text"].as_str().expect("a text");
    let empty = json!({"type": "summary_text", "text": ""});
    let kind = |what: &str| format!("response.reasoning_summary_{what}");
    let mut events = vec![json!({"type": kind("part.added"), "summary_index": 0, "part": empty})];
    events.extend(
        Said::words(text)
            .map(|word| json!({"type": kind("text.delta"), "summary_index": 0, "delta": word})),
    );
    events.push(json!({"type": kind("text.done"), "summary_index": 0, "text": text}));
    events.push(json!({"type": kind("part.done"), "summary_index": 0, "part": part}));
    events
}

fn argument_events(arguments: &Value) -> Vec<Value> {
    let whole = arguments.as_str().expect("arguments are a text");
    let (head, tail) = whole.split_at(whole.len() / 2);
    let delta = |piece| json!({"type": "response.function_call_arguments.delta", "delta": piece});
    let done = json!({"type": "response.function_call_arguments.done", "arguments": whole});
    vec![delta(head), delta(tail), done]
}

fn response(reply: &Reply, output: &Value, status: &str) -> Value {
    let id = format!("resp_scripted_{}", reply.number);
    json!({"id": id, "object": "response", "created_at": 1, "status": status,
        "model": MODEL, "output": output, "parallel_tool_calls": true, "tool_choice": "auto",
        "tools": [], "error": null, "incomplete_details": null, "instructions": null,
        "metadata": {}, "usage": null})
}
