use serde_json::json;

use super::*;

#[test]
fn a_whole_reply_of_anthropic_becomes_a_completion() {
    let body = json!({
        "id": "msg_01", "type": "message", "role": "assistant", "model": "claude-sonnet-4-6",
        "content": [
            { "type": "thinking", "thinking": "hm", "signature": "EqQB" },
            { "type": "text", "text": "I look" }, { "type": "text", "text": " twice." },
            { "type": "tool_use", "id": "toolu_1", "name": "exec", "input": { "command": "ls" } } ],
        "stop_reason": "tool_use", "stop_sequence": null,
        "usage": { "input_tokens": 10, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 100, "output_tokens": 25 },
    });
    insta::assert_snapshot!(format!("{:#}", replied(ChatToMessages, &body)));
}

#[test]
fn a_whole_completion_becomes_a_message() {
    let body = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{ "index": 0, "finish_reason": "stop", "logprobs": null, "message": {
            "role": "assistant", "content": "I look.", "reasoning_content": "hm", "refusal": null,
            "tool_calls": [
                { "id": "call_1", "type": "function", "function": { "name": "exec", "arguments": "{\"command\":\"ls\"}" } },
                { "type": "function", "function": { "name": "now", "arguments": "" } },
                { "id": "call_3", "type": "function", "function": { "name": "exec", "arguments": "{\"comm" } } ] } }],
        "usage": { "prompt_tokens": 110, "completion_tokens": 9, "total_tokens": 119, "prompt_tokens_details": { "cached_tokens": 100 },
            "completion_tokens_details": { "reasoning_tokens": 4 } },
    });
    insta::assert_snapshot!(format!("{:#}", replied(MessagesToChat, &body)));
}

#[test]
fn every_reason_to_stop_has_its_word() {
    for (reason, word) in [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "stop"),
        ("refusal", "content_filter"),
        ("pause_turn", "stop"),
    ] {
        let body = json!({ "content": [{ "type": "text", "text": "x" }], "stop_reason": reason, "usage": {} });
        let choice = &replied(ChatToMessages, &body)["choices"][0];
        assert_eq!(choice["finish_reason"], word, "{reason}");
    }
    for (reason, stop, sequence) in [
        ("stop", "stop_sequence", Some("END")),
        ("length", "max_tokens", None),
        ("content_filter", "refusal", None),
    ] {
        let message = json!({ "role": "assistant", "content": "x" });
        let body = json!({ "choices": [{ "message": message, "finish_reason": reason, "stop_reason": "END" }] });
        let asked = ReplyContext {
            stop_sequences: vec!["END".into()],
            ..ASKED.clone()
        };
        let out = reply(MessagesToChat, &asked, body.to_string().as_bytes()).unwrap();
        let out: Value = serde_json::from_slice(&out.body).unwrap();
        assert_eq!(
            [&out["stop_reason"], &out["stop_sequence"]],
            [&json!(stop), &json!(sequence)]
        );
    }
}
