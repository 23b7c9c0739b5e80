//! Tests of tool calls in streams.

use proptest::{collection::vec, prelude::*};
use serde_json::json;

use super::*;

const DONE: &str = "data: [DONE]\n\n";

/// Makes a chunk with one piece of a call.
fn call(piece: &str) -> String {
    format!("data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{piece}]}}}}]}}\n\n")
}

/// Makes a call's first piece, or a later one.
fn piece(index: usize, is_first: bool, arguments: &str) -> String {
    let function = if is_first {
        json!({ "name": format!("f{index}"), "arguments": arguments })
    } else {
        json!({ "arguments": arguments })
    };
    let mut piece = json!({ "index": index, "function": function });
    if is_first {
        piece["id"] = format!("c{index}").into();
    }
    call(&piece.to_string())
}

/// Returns the content of each block of an Anthropic stream. Each has to end before the next begins.
fn blocks(stream: &str) -> Vec<String> {
    let mut blocks: Vec<String> = Vec::new();
    let mut is_open = false;
    let lines = stream.lines();
    for data in lines.filter_map(|line| line.strip_prefix("data: ")) {
        let data: Value = serde_json::from_str(data).unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        match data["type"].as_str().unwrap() {
            "content_block_start" => {
                assert!(!is_open, "{stream}");
                is_open = true;
                blocks.push(text(&data["content_block"]["name"]));
            }
            "content_block_delta" => {
                let delta = &data["delta"];
                let more = text(&delta["partial_json"]) + &text(&delta["text"]);
                assert!(is_open, "{stream}");
                blocks.last_mut().unwrap().push_str(&more);
            }
            "content_block_stop" => is_open = false,
            kind => assert!(kind != "error" && (kind.starts_with("message") || kind == "ping")),
        }
        if !data["index"].is_null() {
            assert_eq!(data["index"], blocks.len() - 1, "{stream}");
        }
    }
    assert!(!is_open, "{stream}");
    blocks
}

#[test]
fn calls_whose_pieces_come_mixed_are_blocks_one_after_the_other() {
    let stream = [
        piece(0, true, "{"),
        piece(1, true, "{\"a"),
        piece(0, false, ""),
        piece(2, true, "{}"),
        piece(1, false, "\":\"}"),
        piece(0, false, "\"b\":[{}]"),
    ];
    let first = streamed(MessagesToChat, &stream.concat());
    let waits = first.contains("f0") && !first.contains("f1");
    assert!(waits, "it waits for the first: {first}");
    let rest = [piece(0, false, "} "), piece(1, false, "\"}"), DONE.into()];
    let out = streamed(MessagesToChat, &(stream.concat() + &rest.concat()));
    assert_eq!(blocks(&out), ["f0{\"b\":[{}]} ", "f1{\"a\":\"}\"}", "f2{}"]);
}

#[test]
fn a_call_begins_at_once_where_the_one_before_is_whole() {
    let stream = [
        piece(0, true, "{\"a\":\"\\\"{\"}"),
        piece(1, true, ""),
        piece(1, false, "{\"b"),
        piece(0, false, " \n"),
    ];
    let out = streamed(MessagesToChat, &stream.concat());
    let end = "{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"b\"}}\n\n";
    assert!(out.contains("f1") && out.ends_with(end), "{out}");
}

#[test]
fn what_waits_comes_before_the_text_that_follows() {
    let text = "data: {\"choices\":[{\"delta\":{\"content\":\"so\"}}]}\n\n";
    let stream = [
        piece(0, true, ""),
        piece(1, true, "{}"),
        text.into(),
        DONE.into(),
    ];
    let out = streamed(MessagesToChat, &stream.concat());
    assert_eq!(blocks(&out), ["f0", "f1{}", "so"]);
}

#[test]
fn more_of_a_call_after_its_end_is_refused_and_not_garbled() {
    let stream = piece(0, true, "{}") + &piece(1, true, "{}") + &piece(0, false, "x");
    let out = streamed(MessagesToChat, &(stream + DONE));
    let (_, last) = out.split_once("event: error").unwrap();
    insta::assert_snapshot!(last, @r#"data: {"type":"error","error":{"type":"api_error","message":"an event of the upstream's reply cannot be translated: more arguments of the call of f0 came after its end"}}"#);
}

#[test]
fn calls_do_not_wait_without_limit() {
    let long = "x".repeat(1 << 18);
    let mut stream = piece(0, true, "{") + &piece(1, true, "{\"");
    for _ in 0..4 {
        stream += &piece(1, false, &long);
    }
    let out = streamed(MessagesToChat, &stream);
    assert!(!out.contains("error") && out.contains("f1"));
}

proptest! {
    #[test]
    fn any_order_of_the_pieces_gives_the_same_calls(
        calls in vec("(\\{\"a\":(\\[1,\\{\\}\\]|\"[\\]}\\[{]{0,3}\")\\})?", 1..5),
        order in vec(any::<prop::sample::Index>(), 0..60),
    ) {
        let mut rest: Vec<&str> = calls.iter().map(String::as_str).collect();
        let mut stream: String = (0..calls.len()).map(|n| piece(n, true, "")).collect();
        let begun = (0..calls.len()).map(|n| format!("f{n}"));
        for index in order {
            let n = index.index(calls.len());
            let (now, later) = rest[n].split_at(rest[n].len().min(2));
            rest[n] = later;
            stream += &piece(n, false, now);
        }
        for (n, rest) in rest.iter().enumerate() {
            stream += &piece(n, false, rest);
        }
        let out = streamed(MessagesToChat, &(stream + DONE));
        let mut found = blocks(&out);
        found.sort_unstable();
        let expected: Vec<String> = begun.zip(&calls).map(|(name, call)| name + call).collect();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn a_call_waits_for_its_name_and_gets_an_id() {
    let stream = [
        call(r#"{"index":0,"function":{"arguments":"{\"a\""}}"#),
        call(r#"{"index":0,"function":{"name":"x","arguments":":1}"}}"#),
        call(r#"{"function":{"name":"y","arguments":{"b":2}},"id":""}"#),
        call(r#"{"index":7}"#),
        DONE.to_owned(),
    ];
    let out = streamed(MessagesToChat, &stream.concat());
    let (_, blocks) = out.split_once("event: content_block_start").unwrap();
    insta::assert_snapshot!(blocks);
}

#[test]
fn the_ids_of_calls_without_are_unlike_those_of_other_replies() {
    let id = |reply: &str| {
        let call = r#"{"index":0,"id":"","function":{"name":"x","arguments":"{}"}}"#;
        let chunk = format!(
            "data: {{\"id\":\"{reply}\",\"choices\":[{{\"delta\":{{\"tool_calls\":[{call}]}}}}]}}\n\n"
        );
        let out = streamed(MessagesToChat, &(chunk + DONE));
        let reply = Api::Messages.read_sse(out.as_bytes());
        reply.message.unwrap().tool_calls()[0].id.clone()
    };
    let ids = [id("r-1"), id("r-2"), id("")];
    assert_eq!(ids, ["call_r1_0", "call_r2_0", "call_msg1763600000_0"]);
}

#[test]
fn parallel_calls_that_all_have_index_0_become_blocks_of_their_own() {
    let whole = |id: &str| {
        call(&format!(
            r#"{{"index":0,"id":"{id}","function":{{"name":"f","arguments":"{{}}"}}}}"#
        ))
    };
    let out = streamed(MessagesToChat, &(whole("a") + &whole("b") + DONE));
    let reply = Api::Messages.read_sse(out.as_bytes());
    let calls = reply.message.unwrap().tool_calls();
    let calls: Vec<_> = calls
        .iter()
        .map(|call| (&*call.id, &*call.arguments))
        .collect();
    assert_eq!(calls, [("a", "{}"), ("b", "{}")]);
}

#[test]
fn arguments_without_a_name_are_not_kept_without_limit() {
    let long = "x".repeat(1 << 18);
    let piece = call(&format!(
        r#"{{"index":0,"function":{{"arguments":"{long}"}}}}"#
    ));
    let out = streamed(MessagesToChat, &piece.repeat(5));
    let (_, last) = out.split_once("event: error").unwrap();
    insta::assert_snapshot!(last, @r#"data: {"type":"error","error":{"type":"api_error","message":"an event of the upstream's reply cannot be translated: a call's arguments came, but no name"}}"#);
}

#[test]
fn an_input_that_stands_in_its_blocks_start_is_not_lost() {
    let stream = r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"x","input":{"a":1}}}

data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":"hi"}}

data: {"type":"content_block_start","index":2,"content_block":{"type":"redacted_thinking","data":"Eo8B"}}

data: {"type":"content_block_start","index":3,"content_block":{"type":"server_tool_use","id":"s","name":"web_search","input":{}}}

data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{}"}}

"#;
    insta::assert_snapshot!(streamed(ChatToMessages, stream));
}
