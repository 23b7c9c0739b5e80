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
    let finish = |reason: &str| {
        let body = json!({ "content": [{ "type": "text", "text": "x" }], "stop_reason": reason, "usage": {} });
        replied(ChatToMessages, &body)["choices"][0]["finish_reason"].clone()
    };
    let reasons = [
        "end_turn",
        "stop_sequence",
        "max_tokens",
        "model_context_window_exceeded",
        "tool_use",
        "refusal",
        "pause_turn",
    ];
    let words = reasons.map(finish);
    assert_eq!(
        words,
        [
            "stop",
            "stop",
            "length",
            "length",
            "stop",
            "content_filter",
            "stop"
        ]
    );

    let stop = |reason: &str| {
        let message = json!({ "role": "assistant", "content": "x" });
        let body = json!({ "choices": [{ "message": message, "finish_reason": reason, "stop_reason": "END" }] });
        let asked = ReplyContext {
            stop_sequences: vec!["END".into()],
            ..ASKED.clone()
        };
        let out = reply(MessagesToChat, &asked, body.to_string().as_bytes()).unwrap();
        let out: Value = serde_json::from_slice(&out.body).unwrap();
        format!("{} {}", out["stop_reason"], out["stop_sequence"])
    };
    let words = ["stop", "length", "content_filter"].map(stop);
    assert_eq!(
        words,
        [
            "\"stop_sequence\" \"END\"",
            "\"max_tokens\" null",
            "\"refusal\" null"
        ]
    );
}
