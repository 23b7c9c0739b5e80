use serde_json::json;

use super::*;
use crate::testing;

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
}

#[test]
fn the_limit_on_tokens_is_always_said() {
    let user = json!([{ "role": "user", "content": "x" }]);
    let unlimited = json!({ "messages": user, "max_tokens": null });
    let there = request(ChatToMessages, &unlimited).unwrap();
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

/// Each row has the direction, a request, and fields of the translated one, or the error. `*` stands for all fields.
#[test]
fn every_request_of_the_table_is_translated_as_it_says() {
    for (why, direction, body, expected) in
        testing::rows::<(String, String, Value, Value)>("requests")
    {
        let direction = match &*direction {
            "chat_to_messages" => ChatToMessages,
            "messages_to_chat" => MessagesToChat,
            _ => ResponsesToChat,
        };
        let sent = request(direction, &body);
        match (sent, expected) {
            (Err(error), Value::String(said)) => assert_eq!(error.to_string(), said, "{why}"),
            (Ok(sent), Value::Object(fields)) => {
                for (name, expected) in fields {
                    let given = if name == "*" {
                        Some(&sent)
                    } else {
                        sent.get(&name)
                    };
                    let expected = Some(&expected).filter(|expected| !expected.is_null());
                    assert_eq!(given, expected, "{why}: {name}");
                }
            }
            (sent, _) => panic!("{why}: {sent:?}"),
        }
    }
}

/// Returns why each field of a table is refused.
fn refused_rows(direction: Direction, table: &str) -> Vec<String> {
    let refuse = |(field, value): (String, Value)| {
        let mut body = json!({ "messages": [{ "role": "user", "content": "x" }] });
        body[field] = value;
        refused(direction, &body)
    };
    testing::rows(table).into_iter().map(refuse).collect()
}

#[test]
fn what_anthropic_has_not_is_refused_by_name() {
    let said = refused_rows(ChatToMessages, "refused_for_anthropic");
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn what_chat_has_not_is_refused_by_name() {
    let mut said = refused_rows(MessagesToChat, "refused_for_chat");
    said.push(refused(MessagesToChat, &json!([])));
    insta::assert_snapshot!(said.join("\n"));
}

#[test]
fn a_schema_that_is_no_object_is_refused() {
    let function = json!({ "name": "f", "parameters": [] });
    let tools = [json!({ "type": "function", "function": function })];
    let body = json!({ "messages": [{ "role": "user", "content": "x" }], "tools": tools });
    let error = request(ChatToMessages, &body).unwrap_err();
    assert_eq!(error.field(), Some("tools[0].function.parameters"));
}
