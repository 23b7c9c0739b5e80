use metaclaw_chat::{Message, ToolCall};
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};

use super::*;

#[test]
fn the_other_apis_name_their_replies_as_soon() {
    let chunk = b": hi\n\ndata: {\"choices\":[],\"id\":\"chatcmpl-1\",\"model\":";
    assert_eq!(reply_id(Api::Chat, chunk, true).unwrap(), "chatcmpl-1");
    let start =
        b"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",";
    assert_eq!(reply_id(Api::Messages, start, true).unwrap(), "msg_1");
    let empty = b"data: {\"choices\":[],\"id\":\"\"}\n\n";
    assert_eq!(reply_id(Api::Chat, empty, true), None);
}

#[test]
fn a_response_names_itself_in_its_first_event_or_its_body() {
    let event = b"event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"object\":\"response\",\"id\":\"resp_1\",\"output\":[]},\"id\":7}\n\ndata: {\"response\":{\"id\":\"x\"}}";
    assert_eq!(reply_id(Api::Responses, event, true).unwrap(), "resp_1");
    let body = b" {\"object\":\"response\",\"id\":\"resp_2\"}";
    assert_eq!(reply_id(Api::Responses, body, false).unwrap(), "resp_2");
    for broken in [
        &b"data: {\"response\":{\"id\":"[..],
        b"",
        b"data:",
        b"data: []\n\n",
        b"data: {\"response\":7}",
        b"data: {\"response\":{\"id\":7}}",
    ] {
        assert_eq!(reply_id(Api::Responses, broken, true), None);
        assert_eq!(reply_id(Api::Responses, broken, false), None);
    }
    let cut = b"data: {\"response\":{\"id\":\"resp_3\",\"instructions\":\"\xf0\x9f";
    assert_eq!(
        reply_id(Api::Responses, cut, true).unwrap(),
        "resp_3",
        "no more is needed"
    );
}

use crate::{
    Api,
    reply::read_sse,
    testing::{lines, pieces, shown},
};

const TEXT: &str = include_str!("streams/text.sse");
const TOOLS: &str = include_str!("streams/reasoning_and_tools.sse");

fn read(stream: &str) -> Reply {
    Api::Responses.read_sse(stream.as_bytes())
}

fn whole(response: &Value) -> Reply {
    Api::Responses.read_json(response.to_string().as_bytes())
}

fn said(items: &Value) -> Vec<Message> {
    let mut messages = Vec::new();
    for item in items.as_array().unwrap() {
        Api::Responses.push(&mut messages, item).unwrap();
    }
    messages
}

/// The response that the last event of a stream repeats.
fn last_event(stream: &str) -> Value {
    let data = stream.trim_end().rsplit("data: ").next().unwrap();
    serde_json::from_str::<Value>(data).unwrap()["response"].take()
}

#[test]
fn a_streamed_text_is_the_text_read_whole() {
    let reply = read(TEXT);
    insta::assert_snapshot!(shown(&reply), @r#"
    {"id":"resp_67c9fdcecf488190bdd9a0409de3a1ec07b8b0ad4e5eb654","model":"gpt-4.1-2025-04-14","finish_reason":"stop","usage":"37 (32 cached) + 11","ended":true,"error":null,"n_skipped":0}
    {"role":"assistant","content":"Hi there, \"Zoë\"!"}
    "#);
    let whole = whole(&last_event(TEXT));
    let ended = true;
    assert_eq!(Reply { ended, ..whole }, reply);
}

#[test]
fn reasoning_and_calls_are_as_chat_has_them() {
    let reply = read(TOOLS);
    insta::assert_snapshot!(shown(&reply), @r#"
    {"id":"resp_0b1","model":"gpt-5-2025-08-07","finish_reason":"tool_calls","usage":"12154 (11840 cached) + 89","ended":true,"error":null,"n_skipped":0}
    {"role":"assistant","content":"Checking both.","reasoning_content":"**Two cities**\nAsk for both.","reasoning_items":[{"id":"rs_0b1","type":"reasoning","encrypted_content":"gAAAAABoLonger","summary":[{"type":"summary_text","text":"**Two cities**"},{"type":"summary_text","text":"Ask for both."}]}],"tool_calls":[{"id":"call_9fWQ","type":"function","function":{"name":"get_weather","arguments":"{\"location\":\"Paris\"}"}},{"id":"call_L2","type":"custom","custom":{"name":"apply_patch","input":"*** Begin Patch\n*** End Patch\n"}}]}
    "#);
    let message = reply.message.unwrap();
    assert_eq!(message.text(), "Checking both.");
    let shown = |call: ToolCall| [call.id, call.name, call.arguments].join(" ");
    let calls: Vec<String> = message.tool_calls().into_iter().map(shown).collect();
    let weather = r#"call_9fWQ get_weather {"location":"Paris"}"#;
    let patch = "call_L2 apply_patch *** Begin Patch\n*** End Patch\n";
    assert_eq!(calls, [weather, patch]);
}

#[test]
fn what_came_in_pieces_is_what_the_last_event_repeats() {
    for stream in [TEXT, TOOLS] {
        let begun = &stream[..stream.find("event: response.completed").unwrap()];
        let without = format!(
            "{begun}event: response.completed\ndata: {{\"response\":{{\"output\":[]}}}}\n\n"
        );
        let events = without.split_inclusive("\n\n");
        let deltas = events.filter(|event| !event.contains("output_item.done"));
        let deltas: String = deltas.collect();
        let (all, pieces, deltas) = (read(stream), read(&without), read(&deltas));
        assert_eq!(all.message, pieces.message);
        assert_eq!(all.finish_reason, pieces.finish_reason);
        let (all, deltas) = (all.message.unwrap(), deltas.message.unwrap());
        assert_eq!(all.text(), deltas.text());
        assert_eq!(all.tool_calls(), deltas.tool_calls());
        let reasoning = |message: &Message| message.get("reasoning_content").cloned();
        assert_eq!(reasoning(&all), reasoning(&deltas));
    }
}

#[test]
fn a_torn_stream_gives_what_came_and_says_it_is_not_whole() {
    let done = "event: response.function_call_arguments.done";
    let (torn, _) = TOOLS.split_once(done).unwrap();
    let reply = read(torn);
    assert!(!reply.is_whole());
    let message = reply.message.unwrap();
    assert_eq!(message.text(), "Checking both.");
    let arguments = &message.tool_calls()[0].arguments;
    assert_eq!(arguments, r#"{"location":"Paris"}"#);
    assert_eq!(read(""), Reply::default());
    assert_eq!(Api::Responses.read_json(b"<html>"), Reply::default());
}

#[test]
fn how_it_ended_is_said_in_the_words_of_a_chat_completion() {
    let ended = |response: Value| {
        let reply = whole(&response);
        (reply.finish_reason, reply.message.is_some(), reply.error)
    };
    let stop = |reason: &str| Some(reason.to_owned());
    let cut = json!({ "status": "incomplete", "incomplete_details": { "reason": "max_output_tokens" }, "output": [] });
    assert_eq!(ended(cut), (stop("length"), true, None));
    let filtered =
        json!({ "status": "incomplete", "incomplete_details": { "reason": "content_filter" } });
    assert_eq!(ended(filtered), (stop("content_filter"), true, None));
    let error = json!({ "code": "server_error", "message": "sorry" });
    let failed = json!({ "status": "failed", "error": error, "output": [] });
    assert_eq!(ended(failed), (None, false, Some(error.clone())));
    let queued = json!({ "status": "queued", "error": null, "output": [] });
    assert_eq!(ended(queued), (None, false, None));
    let reply = read(&format!(
        "event: response.failed\ndata: {{\"response\":{{\"status\":\"failed\",\"error\":{error}}}}}\n\n"
    ));
    assert_eq!((reply.ended, reply.error), (true, Some(error)));
    let event =
        json!({ "type": "error", "code": "rate_limit", "message": "slow down", "param": null });
    let reply = read(&format!("event: error\ndata: {event}\n\n"));
    assert_eq!(reply.error, Some(event));
}

#[test]
fn a_refusal_is_one() {
    let refusal = json!({ "type": "refusal", "refusal": "No." });
    let message = json!({ "type": "message", "role": "assistant", "content": [refusal] });
    let reply = whole(&json!({ "status": "completed", "output": [message] }));
    insta::assert_snapshot!(lines(&[reply.message.unwrap()]), @r#"{"role":"assistant","content":null,"refusal":"No."}"#);
}

#[test]
fn servers_that_leave_out_types_indexes_and_starts_are_read_all_the_same() {
    let reply = read(concat!(
        "event: response.reasoning_text.delta\ndata: {\"item_id\":\"rs\",\"delta\":\"hm\"}\n\n",
        "event: response.output_text.delta\ndata: {\"item_id\":\"m\",\"delta\":\"Pa\"}\n\n",
        "event: response.output_text.delta\ndata: {\"delta\":\"ris\"}\n\n",
        "event: response.output_item.added\ndata: {\"item\":{\"type\":\"function_call\",\"id\":\"fc\",\"call_id\":\"c\",\"name\":\"ls\"}}\n\n",
        "event: response.function_call_arguments.delta\ndata: {\"delta\":\"{\\\"a\\\":1}\"}\n\n",
        "event: response.output_item.done\ndata: {\"item\":{\"type\":\"function_call\",\"id\":\"fc\",\"arguments\":\"\"}}\n\n",
        "event: response.completed\ndata: {\"type\":\"response.completed\"}\n\ndata: [DONE]\n\n",
    ));
    insta::assert_snapshot!(shown(&reply), @r#"
    {"id":null,"model":null,"finish_reason":"tool_calls","usage":null,"ended":true,"error":null,"n_skipped":0}
    {"role":"assistant","content":"Paris","reasoning_content":"hm","reasoning_items":[{"type":"reasoning","id":"rs","content":[{"type":"reasoning_text","text":"hm"}]}],"tool_calls":[{"id":"c","type":"function","function":{"name":"ls","arguments":"{\"a\":1}"}}]}
    "#);
}

#[test]
fn pieces_go_to_the_item_and_the_part_that_they_name() {
    let call = |at: u64, name: &str| {
        json!({ "type": "response.output_item.added", "output_index": at,
            "item": { "type": "function_call", "call_id": name, "name": name, "arguments": "" } })
    };
    let arguments = |at: u64, delta: &str| json!({ "type": "response.function_call_arguments.delta", "output_index": at, "delta": delta });
    let text = |part: u64, delta: &str| json!({ "type": "response.output_text.delta", "output_index": 2, "content_index": part, "delta": delta });
    let calls = [call(0, "a"), call(1, "b")];
    let pieces = [(0, "[1"), (1, "[2"), (0, "]"), (1, "]")].map(|(at, piece)| arguments(at, piece));
    let words = ["One ", "and ", "two ", "three."];
    let texts = [0, 1, 0, 1]
        .into_iter()
        .zip(words)
        .map(|(part, word)| text(part, word));
    let events = calls.into_iter().chain(pieces).chain(texts);
    let lines: Vec<String> = events.map(|event| format!("data: {event}\n\n")).collect();
    let message = read(&lines.concat()).message.unwrap();
    let calls = message.tool_calls();
    let arguments = [calls[0].arguments.as_str(), calls[1].arguments.as_str()];
    assert_eq!(arguments, ["[1]", "[2]"]);
    assert_eq!(message.text(), "One two and three.");
}

#[test]
fn a_reply_without_end_is_kept_within_bounds() {
    let start = "data: {\"type\":\"response.output_item.added\",\"item\":{\"type\":\"function_call\",\"call_id\":\"c\"}}\n\n";
    let calls = read(&start.repeat(3_000)).message.unwrap().tool_calls();
    assert_eq!(calls.len(), 1_024);
    let piece = |at: usize| {
        let event = json!({ "type": "response.reasoning_text.delta", "output_index": 0, "content_index": at, "delta": "a" });
        format!("data: {event}\n\n")
    };
    let text: String = (0..3_000).chain([usize::MAX]).map(piece).collect();
    let message = Value::from(read(&text).message.unwrap());
    let parts = message["reasoning_items"][0]["content"].as_array().unwrap();
    assert_eq!(parts.len(), 1_024);
    assert_eq!(
        parts[1_023]["text"],
        "a".repeat(3_001 - 1_023),
        "none of it is lost"
    );
}

#[test]
fn a_replayed_turn_is_the_turn_that_was_read() {
    for stream in [TEXT, TOOLS] {
        let response = last_event(stream);
        let replayed = said(&response["output"]);
        assert_eq!(replayed, [whole(&response).message.unwrap()]);
    }
}

#[test]
fn what_is_no_item_is_refused_in_words() {
    let refused = |item: &Value| Api::Responses.item(item).unwrap_err().to_string();
    insta::assert_snapshot!(refused(&json!(7)), @"a message must be a JSON object, this one is a number");
    insta::assert_snapshot!(refused(&json!({ "content": [] })), @r#"a message must have a "role" that is a string"#);
    let text = Api::Responses.item(&json!("Hi")).unwrap();
    assert_eq!(text, [Message::user("Hi")], "`input` may be one text");
}

#[test]
fn the_end_of_a_stream_is_known_by_its_bytes() {
    let done = |text: &str| Api::Responses.is_done(text.as_bytes());
    assert!(done(TEXT) && done(TOOLS) && done("data: [DONE]\n\n") && !done(""));
    let n_done = (0..TEXT.len()).filter(|at| TEXT.is_char_boundary(*at) && done(&TEXT[..*at]));
    assert_eq!(
        n_done.count(),
        0,
        "only once the last event's blank line has come"
    );
}

proptest! {
    #[test]
    fn any_splitting_gives_the_same_reply(stream in select(vec![TEXT, TOOLS]), cuts in vec(0usize..9_000, 0..12)) {
        let split = read_sse::<ResponsesAccumulator>(pieces(stream.as_bytes(), &cuts));
        prop_assert_eq!(split, read(stream));
    }

    #[test]
    fn no_event_makes_it_panic(
        kinds in vec(select(vec!["response.created", "response.output_item.added", "response.output_item.done",
            "response.output_text.delta", "response.refusal.done", "response.function_call_arguments.delta",
            "response.reasoning_summary_text.delta", "response.completed", "error", "x"]), 1..4),
        data in crate::any_json::any_json(),
        bytes in vec(any::<u8>(), 0..80),
    ) {
        let mut stream: Vec<u8> = kinds.iter().flat_map(|kind| format!("event: {kind}\ndata: {data}\n\n").into_bytes()).collect();
        stream.extend(&bytes);
        Api::Responses.read_sse(&stream);
        Api::Responses.is_done(&stream);
        Api::Responses.read_json(data.to_string().as_bytes());
        Api::Responses.read_json(&bytes);
        let mut messages = Vec::new();
        for _ in 0..2 {
            let _ = Api::Responses.push(&mut messages, &data);
        }
        Api::Responses.system(&data);
        Api::Responses.tools(&data);
    }
}
