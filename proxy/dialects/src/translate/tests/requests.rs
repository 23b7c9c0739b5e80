use serde_json::json;

use super::*;

fn refused(direction: Direction, body: &Value) -> String {
    let error = request(direction, body).unwrap_err();
    assert!(error.field().is_some());
    error.to_string()
}

fn translated(direction: Direction, body: &Value) -> String {
    format!("{:#}", request(direction, body).unwrap())
}

#[test]
fn an_agents_chat_request_becomes_messages() {
    let body = json!({
        "model": "claude-sonnet-4-6",
        "messages": [
            { "role": "system", "content": "Be brief." },
            { "role": "developer", "content": [{ "type": "text", "text": "Use tools.", "cache_control": { "type": "ephemeral" } }] },
            { "role": "user", "content": "List it, twice." },
            { "role": "user", "content": [{ "type": "text", "text": "Context." }, { "type": "text", "text": "" }] },
            { "role": "assistant", "content": null, "tool_calls": [
                { "id": "functions.exec:0", "type": "function", "function": { "name": "exec", "arguments": "{\"command\":\"ls\"}" } },
                { "id": "call_2", "type": "function", "function": { "name": "exec", "arguments": "{\"command\":" } } ] },
            { "role": "tool", "tool_call_id": "functions.exec:0", "content": "a\nb" },
            { "role": "tool", "tool_call_id": "call_2", "content": [{ "type": "text", "text": "bad arguments" }] },
            { "role": "user", "content": [{ "type": "text", "text": "And this?" },
                { "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBOR", "detail": "low" } },
                { "type": "image_url", "image_url": { "url": "https://example.com/a.png" } },
                { "type": "file", "file": { "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi" } } ] },
        ],
        "stream": true, "stream_options": { "include_usage": true }, "prompt_cache_key": "s:0",
        "tools": [{ "type": "function", "function": { "name": "exec", "description": "Runs.", "strict": true,
            "parameters": { "type": "object", "properties": { "command": { "type": "string" } } } } },
            { "type": "function", "function": { "name": "now" } }],
        "tool_choice": "required", "parallel_tool_calls": false, "max_completion_tokens": 4096,
        "temperature": 1.3, "top_p": 0.9, "top_k": 40, "stop": "END", "user": "u-1", "seed": 7, "store": false, "n": 1,
        "frequency_penalty": 0, "logprobs": false,
    });
    insta::assert_snapshot!(translated(ChatToMessages, &body));
}

#[test]
fn an_agents_messages_request_becomes_chat() {
    let body = json!({
        "model": "gpt-4.1", "max_tokens": 32000, "stream": true,
        "system": [{ "type": "text", "text": "Be brief.", "cache_control": { "type": "ephemeral" } }, { "type": "text", "text": "Use tools." }],
        "messages": [
            { "role": "user", "content": [{ "type": "text", "text": "List it.", "cache_control": { "type": "ephemeral" } }] },
            { "role": "assistant", "content": [
                { "type": "thinking", "thinking": "two calls", "signature": "EqQB" },
                { "type": "redacted_thinking", "data": "Eo8B" },
                { "type": "text", "text": "I look." },
                { "type": "tool_use", "id": "toolu_1", "name": "exec", "input": { "command": "ls" } },
                { "type": "tool_use", "id": "toolu_2", "name": "look", "input": {} } ] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "toolu_1", "content": "a", "is_error": false },
                { "type": "tool_result", "tool_use_id": "toolu_2", "content": [{ "type": "text", "text": "a picture" },
                    { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "iVBOR" } }] },
                { "type": "text", "text": "Go on." },
                { "type": "image", "source": { "type": "url", "url": "https://example.com/b.png" } },
                { "type": "document", "title": "a.pdf", "source": { "type": "base64", "media_type": "application/pdf", "data": "JVBERi" } },
                { "type": "document", "source": { "type": "text", "media_type": "text/plain", "data": "plain" } } ] },
        ],
        "tools": [{ "name": "exec", "description": "Runs.", "input_schema": { "type": "object" }, "cache_control": { "type": "ephemeral" } },
            { "type": "custom", "name": "look", "input_schema": { "type": "object" } }],
        "tool_choice": { "type": "any", "disable_parallel_tool_use": true },
        "temperature": 0.5, "top_k": 5, "stop_sequences": ["END"], "metadata": { "user_id": "u-1" },
        "thinking": { "type": "enabled", "budget_tokens": 2048 }, "context_management": { "edits": [] },
        "output_config": { "effort": "low", "format": { "type": "json_schema", "schema": { "type": "object" } } },
    });
    insta::assert_snapshot!(translated(MessagesToChat, &body));
}

#[test]
fn every_tool_choice_has_its_word() {
    let tools = json!([{ "type": "function", "function": { "name": "f" } }]);
    let named = json!({ "type": "function", "function": { "name": "f" } });
    for choice in [json!("auto"), json!("none"), json!("required"), named] {
        let body = json!({ "messages": [{ "role": "user", "content": "x" }], "tools": tools, "tool_choice": choice });
        let there = request(ChatToMessages, &body).unwrap();
        let back = request(MessagesToChat, &there).unwrap();
        assert_eq!(back["tool_choice"], choice, "{there}");
    }
    let alone = json!({ "messages": [{ "role": "user", "content": "x" }], "tool_choice": "auto", "parallel_tool_calls": false });
    let there = request(ChatToMessages, &alone).unwrap();
    assert_eq!(there.get("tool_choice"), None, "{there}");
}

#[test]
fn the_limit_on_tokens_is_always_said() {
    let user = json!([{ "role": "user", "content": "x" }]);
    let there = request(
        ChatToMessages,
        &json!({ "messages": user, "max_tokens": null }),
    )
    .unwrap();
    assert_eq!(there["max_tokens"], DEFAULT_MAX_TOKENS);
    let limit = |model: &str| {
        let body = json!({ "model": model, "max_tokens": 9, "messages": user });
        let back = request(MessagesToChat, &body).unwrap();
        let is_new = back.get("max_completion_tokens").is_some();
        assert_ne!(is_new, back.get("max_tokens").is_some(), "{back}");
        is_new
    };
    assert!(limit("gpt-5.1") && limit("openai/o3-mini") && limit("o1"));
    assert!(!limit("gpt-4.1") && !limit("o1lama") && !limit("qwen3"));
}

#[test]
fn what_signed_thinking_there_is_goes_back_to_its_maker() {
    let signed = json!({ "type": "thinking", "thinking": "hm", "signature": "EqQB" });
    let redacted = json!({ "type": "redacted_thinking", "data": "Eo8B" });
    let unsigned = json!({ "type": "thinking", "thinking": "hm", "signature": "" });
    let body = json!({ "messages": [
        { "role": "user", "content": "x" },
        { "role": "assistant", "content": "y", "reasoning_content": "hm", "thinking_blocks": [signed, unsigned, redacted] },
    ] });
    let there = request(ChatToMessages, &body).unwrap();
    let said = json!([signed, redacted, { "type": "text", "text": "y" }]);
    assert_eq!(there["messages"][1]["content"], said);
}

#[test]
fn what_anthropic_has_not_is_refused_by_name() {
    let with = |field: &str, value: Value| {
        let mut body = json!({ "messages": [{ "role": "user", "content": "x" }] });
        body[field] = value;
        refused(ChatToMessages, &body)
    };
    let said = [
        with("n", json!(2)),
        with("logprobs", json!(true)),
        with("presence_penalty", json!(0.5)),
        with("logit_bias", json!({ "50256": -100 })),
        with("response_format", json!({ "type": "json_object" })),
        with("functions", json!([{ "name": "f" }])),
        with(
            "tools",
            json!([{ "type": "custom", "custom": { "name": "f" } }]),
        ),
        with("tools", json!({})),
        with("tool_choice", json!({ "type": "allowed_tools" })),
        with("stop", json!(["a", 7])),
        with("messages", json!([{ "role": "user", "content": " " }])),
        with("messages", json!([{ "role": "critic", "content": "x" }])),
        with("messages", json!([{ "role": "user", "content": 7 }])),
        with(
            "messages",
            json!([{ "role": "user", "content": [{ "type": "input_audio", "input_audio": {} }] }]),
        ),
        with(
            "messages",
            json!([{ "role": "user", "content": [{ "type": "image_url", "image_url": { "url": "file:///x" } }] }]),
        ),
        with(
            "messages",
            json!([{ "role": "user", "content": [{ "type": "file", "file": { "file_id": "file-1" } }] }]),
        ),
    ];
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn what_chat_has_not_is_refused_by_name() {
    let with = |field: &str, value: Value| {
        let mut body = json!({ "messages": [{ "role": "user", "content": "x" }] });
        body[field] = value;
        refused(MessagesToChat, &body)
    };
    let content = |block: Value| with("messages", json!([{ "role": "user", "content": [block] }]));
    let said = [
        with(
            "tools",
            json!([{ "type": "web_search_20250305", "name": "web_search" }]),
        ),
        with(
            "mcp_servers",
            json!([{ "type": "url", "url": "https://example.com" }]),
        ),
        with("output_config", json!({ "format": { "type": "grammar" } })),
        with("stop_sequences", json!("x")),
        with("system", json!([{ "type": "image" }])),
        with("messages", json!([{ "role": "tool", "content": "x" }])),
        content(json!({ "type": "container_upload", "file_id": "f" })),
        content(json!({ "type": "image", "source": { "type": "file", "file_id": "f" } })),
        content(
            json!({ "type": "document", "source": { "type": "url", "url": "https://example.com/a.pdf" } }),
        ),
        content(json!({ "type": "tool_result", "content": "x" })),
        content(json!({ "text": "x" })),
        refused(MessagesToChat, &json!([])),
    ];
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn a_message_of_nothing_does_not_stand_between_two_of_one_side() {
    let body = json!({ "messages": [{ "role": "user", "content": "a" }, { "role": "assistant", "content": " \n" },
        { "role": "assistant", "content": null, "tool_calls": [] }, { "role": "user", "content": "b" }] });
    let there = request(ChatToMessages, &body).unwrap();
    let said = json!([{ "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] }]);
    assert_eq!(there["messages"], said);
}

#[test]
fn a_user_that_the_other_side_refuses_is_left_out() {
    let user = json!([{ "role": "user", "content": "x" }]);
    let there = request(
        ChatToMessages,
        &json!({ "messages": user, "user": "a@b.example" }),
    );
    assert_eq!(there.unwrap().get("metadata"), None);
    let long = json!({ "messages": user, "metadata": { "user_id": "u".repeat(65) } });
    assert_eq!(request(MessagesToChat, &long).unwrap().get("user"), None);
}

#[test]
fn a_schema_that_does_not_say_that_it_is_an_objects_is_told_to() {
    let schema = |parameters: Value| {
        let function = json!({ "name": "f", "parameters": parameters });
        let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "x" }],
            "tools": [{ "type": "function", "function": function }] });
        let out = request(ChatToMessages, &body);
        out.map(|out| out["tools"][0]["input_schema"].to_string())
    };
    assert_eq!(schema(json!({})).unwrap(), r#"{"type":"object"}"#);
    let given = schema(json!({ "properties": { "a": {} } })).unwrap();
    assert_eq!(given, r#"{"properties":{"a":{}},"type":"object"}"#);
    let error = schema(json!([])).unwrap_err();
    assert_eq!(error.field(), Some("tools[0].function.parameters"));
}
