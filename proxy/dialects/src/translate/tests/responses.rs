//! Tests of translating Responses to chat completions, and back.

use serde_json::json;

use super::*;

/// Makes a request as Codex sends it, with a tool of each of its types.
fn codex(input: &Value) -> Value {
    json!({
        "model": "m", "stream": true, "store": false, "tool_choice": "auto", "parallel_tool_calls": true,
        "include": ["reasoning.encrypted_content"], "reasoning": { "summary": "auto", "effort": "high" },
        "input": input,
        "tools": [
            { "type": "function", "name": "exec", "description": "Runs.", "strict": false, "parameters": { "type": "object", "properties": { "cmd": { "type": "string" } } } },
            { "type": "custom", "name": "apply_patch", "description": "Edits files.", "format": { "type": "grammar", "syntax": "lark", "definition": "start: /.+/" } },
            { "type": "namespace", "name": "agents", "tools": [{ "type": "function", "name": "spawn", "parameters": { "type": "object", "properties": {} } }] },
            { "type": "web_search", "external_web_access": false },
            { "type": "local_shell" },
        ],
    })
}

fn asked(input: &Value) -> Value {
    request(ResponsesToChat, &codex(input)).unwrap()
}

/// Returns the events of a reply to Codex, and its last response.
fn events(chunks: &[Value]) -> (Vec<Value>, Value) {
    let stream = chunks.iter().map(|chunk| format!("data: {chunk}\n\n"));
    let stream = stream.collect::<String>() + "data: [DONE]\n\n";
    let context = ReplyContext::for_request(ResponsesToChat, &codex(&json!("hi")), 7);
    let rewrite = super::stream(ResponsesToChat, &context);
    let out = String::from_utf8(rewritten(rewrite, [stream.as_bytes()])).unwrap();
    let data = out.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = data
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    let last = events[events.len() - 1]["response"].clone();
    (events, last)
}

fn chunk(delta: &Value) -> Value {
    json!({ "id": "chatcmpl-1", "model": "m", "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] })
}

fn ends(reason: &str) -> Value {
    json!({ "id": "chatcmpl-1", "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })
}

fn kinds(events: &[Value]) -> Vec<&str> {
    let kinds = events.iter().map(|event| event["type"].as_str().unwrap());
    let kinds = kinds.map(|kind| kind.strip_prefix("response.").unwrap());
    kinds.collect()
}

#[test]
fn tools_become_functions_and_those_of_the_provider_are_left_out() {
    let chat = asked(&json!("hi"));
    let names = chat["tools"].as_array().unwrap().iter();
    let names: Vec<_> = names.map(|tool| &tool["function"]["name"]).collect();
    assert_eq!(names, ["exec", "apply_patch", "agents__spawn"]);
    let patch = &chat["tools"][1]["function"];
    assert_eq!(patch["parameters"]["required"], json!(["input"]));
    let description = patch["description"].as_str().unwrap();
    assert!(description.starts_with("Edits files.\n\n"), "{description}");
    assert!(
        description.ends_with("lark grammar:\nstart: /.+/"),
        "{description}"
    );
    assert_eq!(chat["tool_choice"], "auto");
    let fields: Vec<String> = chat.as_object().unwrap().keys().cloned().collect();
    let expected = "model messages stream stream_options tools tool_choice";
    assert_eq!(fields.join(" "), expected);
}

#[test]
fn a_reply_comes_item_by_item() {
    let call = |call: Value| chunk(&json!({ "tool_calls": [call] }));
    let (events, last) = events(&[
        chunk(&json!({ "role": "assistant", "content": "" })),
        chunk(&json!({ "reasoning_content": "Hm." })),
        chunk(&json!({ "content": "Look" })),
        chunk(&json!({ "content": "ing." })),
        call(
            json!({ "index": 0, "id": "a", "function": { "name": "agents__spawn", "arguments": "" } }),
        ),
        call(
            json!({ "index": 1, "id": "b", "function": { "name": "apply_patch", "arguments": "{\"input\":\"*** Be" } }),
        ),
        call(json!({ "index": 1, "function": { "arguments": "gin\"}" } })),
        ends("tool_calls"),
        json!({ "choices": [], "usage": { "prompt_tokens": 20, "completion_tokens": 3, "prompt_tokens_details": { "cached_tokens": 8 }, "completion_tokens_details": { "reasoning_tokens": 1 } } }),
    ]);
    insta::assert_snapshot!(kinds(&events).join(" ").replace(" output_item.added", "\noutput_item.added"), @"
    created in_progress
    output_item.added reasoning_summary_part.added reasoning_summary_text.delta reasoning_summary_text.done reasoning_summary_part.done output_item.done
    output_item.added content_part.added output_text.delta output_text.delta output_text.done content_part.done output_item.done
    output_item.added function_call_arguments.delta function_call_arguments.done output_item.done
    output_item.added custom_tool_call_input.delta custom_tool_call_input.done output_item.done completed
    ");
    assert_eq!(
        last["output"],
        json!([
            { "id": "rs_mc_chatcmpl-1_0", "type": "reasoning", "summary": [{ "type": "summary_text", "text": "Hm." }], "encrypted_content": "metaclaw:[]" },
            { "id": "msg_mc_chatcmpl-1_1", "type": "message", "status": "completed", "role": "assistant", "content": [{ "type": "output_text", "text": "Looking.", "annotations": [], "logprobs": [] }] },
            { "id": "fc_mc_chatcmpl-1_2", "type": "function_call", "status": "completed", "call_id": "a", "name": "spawn", "arguments": "{}", "namespace": "agents" },
            { "id": "ctc_mc_chatcmpl-1_3", "type": "custom_tool_call", "status": "completed", "call_id": "b", "name": "apply_patch", "input": "*** Begin" },
        ])
    );
    assert_eq!(
        last["usage"],
        json!({ "input_tokens": 20, "input_tokens_details": { "cached_tokens": 8, "cache_write_tokens": 0 }, "output_tokens": 3, "output_tokens_details": { "reasoning_tokens": 1 }, "total_tokens": 23 })
    );
    assert_eq!(last["id"], "resp_mc_chatcmpl-1");
    assert_eq!(upstream_reply_id("resp_mc_chatcmpl-1"), "chatcmpl-1");
    assert_eq!(
        (&last["created_at"], &last["store"]),
        (&json!(7), &json!(false))
    );
}

#[test]
fn a_reply_that_was_cut_short_or_failed_says_so() {
    let (_, last) = events(&[chunk(&json!({ "content": "Hel" })), ends("length")]);
    assert_eq!(last["status"], "incomplete");
    assert_eq!(last["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!(last["output"][0]["status"], "incomplete");
    let (_, last) = events(&[ends("content_filter")]);
    assert_eq!(last["incomplete_details"]["reason"], "content_filter");
    let too_long = json!({ "error": { "message": "This model's maximum context length is 8192 tokens.", "code": "context_length_exceeded" } });
    let limited = json!({ "error": { "message": "slow down", "code": 429 } });
    for (error, code) in [
        (too_long, "context_length_exceeded"),
        (limited, "rate_limit_exceeded"),
    ] {
        let (all, last) = events(&[error]);
        assert_eq!(kinds(&all), ["created", "in_progress", "failed"]);
        assert_eq!(
            (&last["status"], &last["error"]["code"]),
            (&json!("failed"), &json!(code))
        );
    }
    let (all, _) = events(&[chunk(&json!({ "content": "Hel" })), ends("abort")]);
    assert_eq!(kinds(&all).last(), Some(&"failed"));
}

#[test]
fn an_input_that_does_not_keep_to_the_form_is_the_input_all_the_same() {
    let said = |arguments: &str| {
        let call = json!({ "index": 0, "id": "a", "function": { "name": "apply_patch", "arguments": arguments } });
        let (_, last) = events(&[chunk(&json!({ "tool_calls": [call] })), ends("stop")]);
        last["output"][0]["input"].as_str().unwrap().to_owned()
    };
    assert_eq!(said("{\"patch\":\"p\"}"), "p");
    assert_eq!(said("*** Begin"), "*** Begin");
    let found = said("{\"a\":\"1\",\"b\":\"2\"}");
    assert_eq!(found, "{\"a\":\"1\",\"b\":\"2\"}");
    assert_eq!(said("{\"a\":\"1\",\"input\":\"2\"}"), "2");
}

#[test]
fn thinking_that_anthropic_signed_comes_back_to_it_and_to_nobody_else() {
    let signed = json!({ "type": "thinking", "thinking": "Hm.", "signature": "Eq" });
    let message = json!({ "role": "assistant", "content": "Yes.", "reasoning_content": "Hm.", "thinking_blocks": [signed] });
    let chat = json!({ "id": "msg_1", "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }] });
    let response = replied(ResponsesToChat, &chat);
    let mut input = response["output"].as_array().unwrap().clone();
    input.insert(0, json!({ "role": "user", "content": "hi" }));
    input.push(json!({ "role": "user", "content": "And?" }));
    let body = json!({ "model": "claude-sonnet-4-5", "input": input });
    let sent = |upstream| {
        request_along(Direction::path(Api::Responses, upstream), &body, 1)
            .unwrap()
            .0
    };
    assert_eq!(sent(Api::Messages)["messages"][1]["content"][0], signed);
    let chat = sent(Api::Chat);
    assert_eq!(
        chat["messages"][1],
        json!({ "role": "assistant", "content": "Yes.", "reasoning_content": "Hm." })
    );
    let stripped = strip_own_reasoning(body.to_string().as_bytes()).unwrap();
    let stripped: Value = serde_json::from_slice(&stripped).unwrap();
    assert_eq!(stripped["input"].as_array().unwrap().len(), 3);
    assert_eq!(strip_own_reasoning(stripped.to_string().as_bytes()), None);
}

#[test]
fn a_conversation_of_the_log_goes_in_front_of_a_request_that_leaves_it_out() {
    let messages = json!([
        { "role": "system", "content": "The former instructions." },
        { "role": "developer", "content": "D." },
        { "role": "user", "content": [{ "type": "text", "text": "See." }, { "type": "image_url", "image_url": { "url": "data:," } }] },
        { "role": "assistant", "content": "Hm.", "reasoning_content": "R.", "tool_calls": [
            { "id": "a", "type": "function", "function": { "name": "agents__spawn", "arguments": "{}" } },
            { "id": "b", "type": "custom", "custom": { "name": "apply_patch", "input": "*** Begin" } },
        ] },
    ]);
    let messages: Vec<_> = serde_json::from_value(messages).unwrap();
    let mut body = codex(&json!([
        { "type": "custom_tool_call_output", "call_id": "b", "output": "done" },
        { "type": "function_call_output", "call_id": "a", "output": "seen" },
    ]));
    go_on(&mut body, &messages);
    let chat = request(ResponsesToChat, &body).unwrap();
    assert_eq!(
        chat["messages"],
        json!([
            { "role": "system", "content": "D." },
            { "role": "user", "content": [{ "type": "text", "text": "See." }, { "type": "image_url", "image_url": { "url": "data:," } }] },
            { "role": "assistant", "content": "Hm.", "reasoning_content": "R.", "tool_calls": [
                { "id": "a", "type": "function", "function": { "name": "agents__spawn", "arguments": "{}" } },
                { "id": "b", "type": "function", "function": { "name": "apply_patch", "arguments": "{\"input\":\"*** Begin\"}" } },
            ] },
            { "role": "tool", "tool_call_id": "a", "content": "seen" },
            { "role": "tool", "tool_call_id": "b", "content": "done" },
        ])
    );
    let mut text = json!({ "input": "And now?" });
    go_on(&mut text, &messages[1..2]);
    assert_eq!(
        text["input"][1],
        json!({ "role": "user", "content": "And now?" })
    );
}
