//! Ids of calls: no two calls of a conversation have the same, and the upstream's own is found again.

use serde_json::{Value, json};

use super::*;

/// The calls of a reply to `request` in which the upstream sends two calls with these ids.
fn ids(path: &[Direction], body: &Value, ids: [&str; 2], is_stream: bool) -> Vec<String> {
    let (_, steps) = request_along(path, body, 1).unwrap();
    let upstream = path.last().unwrap().upstream();
    let call = |(n, id): (usize, &&str)| match upstream {
        Api::Messages => json!({ "type": "tool_use", "id": id, "name": "f", "input": { "n": n } }),
        _ => {
            json!({ "index": n, "id": id, "type": "function", "function": { "name": "f", "arguments": format!("{{\"n\":{n}}}") } })
        }
    };
    let calls: Vec<Value> = ids.iter().enumerate().map(call).collect();
    let event = |data: &Value| format!("data: {data}\n\n");
    let mut bytes = match (upstream, is_stream) {
        (Api::Messages, false) => json!({ "content": calls, "stop_reason": "tool_use" }).to_string(),
        (Api::Messages, true) => {
            let blocks = calls.iter().enumerate().map(|(n, block)| event(&json!({ "type": "content_block_start", "index": n, "content_block": block })));
            blocks.collect::<String>() + &event(&json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" } })) + &event(&json!({ "type": "message_stop" }))
        }
        (_, false) => json!({ "choices": [{ "message": { "role": "assistant", "tool_calls": calls }, "finish_reason": "stop" }] }).to_string(),
        (_, true) => event(&json!({ "choices": [{ "delta": { "tool_calls": calls }, "finish_reason": "stop" }] })) + "data: [DONE]\n\n",
    }
    .into_bytes();
    let caller = match path[0] {
        ChatToMessages => Api::Chat,
        MessagesToChat => Api::Messages,
        ResponsesToChat => Api::Responses,
    };
    for (direction, context) in steps.iter().rev() {
        bytes = if is_stream {
            rewritten(stream(*direction, context), [&bytes[..]])
        } else {
            reply(*direction, context, &bytes).unwrap().body
        };
    }
    let said = if is_stream {
        caller.read_sse(&bytes)
    } else {
        caller.read_json(&bytes)
    };
    let calls = said.message.unwrap().tool_calls();
    calls.into_iter().map(|call| call.id).collect()
}

#[test]
fn an_id_that_the_conversation_has_gets_a_suffix() {
    let chat = json!({ "model": "m", "messages": [
        { "role": "user", "content": "x" },
        { "role": "assistant", "content": null, "tool_calls": [{ "id": "call_0", "type": "function", "function": { "name": "f", "arguments": "{}" } }] },
        { "role": "tool", "tool_call_id": "call_0", "content": "y" },
    ] });
    let messages = json!({ "model": "m", "max_tokens": 9, "messages": [
        { "role": "user", "content": "x" },
        { "role": "assistant", "content": [{ "type": "tool_use", "id": "call_0", "name": "f", "input": {} }] },
        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "call_0", "content": "y" }] },
    ] });
    let responses = json!({ "model": "m", "input": [
        { "role": "user", "content": "x" },
        { "type": "function_call", "call_id": "call_0", "name": "f", "arguments": "{}" },
        { "type": "function_call_output", "call_id": "call_0", "output": "y" },
    ] });
    for (path, body) in [
        (&[ChatToMessages][..], &chat),
        (&[MessagesToChat], &messages),
        (&[ResponsesToChat], &responses),
        (&[ResponsesToChat, ChatToMessages], &responses),
    ] {
        for is_stream in [false, true] {
            let ids = |given| ids(path, body, given, is_stream);
            for (given, made) in [
                (["call_0", "call_1"], ["call_0_mc2", "call_1"]),
                (["call_0", "call_0"], ["call_0_mc2", "call_0_mc3"]),
                (["call_7", "call_7"], ["call_7", "call_7_mc2"]),
            ] {
                assert_eq!(ids(given), made, "{path:?}");
            }
            let made = ids(["", ""]);
            let again = ids(["", ""]);
            assert!(
                !made[0].is_empty() && made[0] != made[1],
                "{path:?} {made:?}"
            );
            assert!(!made.contains(&again[0]), "{path:?} {made:?} {again:?}");
        }
    }
}

#[test]
fn the_upstreams_own_id_is_found_again() {
    for (id, expected) in [
        ("call_0_mc2", "call_0"),
        ("call_0", "call_0"),
        ("a_mc", "a_mc"),
        ("a_mcx", "a_mcx"),
        ("functions.f:0_mc12", "functions.f:0"),
    ] {
        assert_eq!(upstream_call_id(id), expected);
    }
}
