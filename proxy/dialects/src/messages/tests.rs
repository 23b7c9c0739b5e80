use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};

use super::*;
use crate::{
    Api,
    reply::read_sse,
    testing::{lines, pieces, shown},
};

const TEXT: &str = include_str!("streams/text.sse");
const TOOLS: &str = include_str!("streams/thinking_and_tools.sse");
const SEARCH: &str = include_str!("streams/web_search.sse");

fn read(stream: &str) -> Reply {
    Api::Messages.read_sse(stream.as_bytes())
}

#[test]
fn a_streamed_text_is_the_text_read_whole() {
    let reply = read(TEXT);
    insta::assert_snapshot!(shown(&reply), @r#"
    {"id":"msg_01XFDUDYJgAACzvnptvVoYEL","model":"claude-sonnet-4-5-20250929","finish_reason":"stop","usage":"25 (0 cached) + 15","ended":true,"error":null,"n_skipped":0}
    {"role":"assistant","content":"Hello, \"Zoë\"!"}
    "#);
    let whole = json!({ "id": "msg_01XFDUDYJgAACzvnptvVoYEL", "type": "message", "role": "assistant",
        "model": "claude-sonnet-4-5-20250929", "content": [{ "type": "text", "text": "Hello, \"Zoë\"!" }],
        "stop_reason": "end_turn", "stop_sequence": null, "usage": { "input_tokens": 25, "output_tokens": 15 } });
    let whole = Api::Messages.read_json(whole.to_string().as_bytes());
    let ended = true;
    assert_eq!(Reply { ended, ..whole }, reply);
}

#[test]
fn thinking_and_calls_are_as_chat_has_them() {
    let reply = read(TOOLS);
    insta::assert_snapshot!(shown(&reply), @r#"
    {"id":"msg_014p7gG3wDgGV9EUtLvnow3U","model":"claude-opus-4-6","finish_reason":"tool_calls","usage":"12154 (11840 cached) + 89","ended":true,"error":null,"n_skipped":0}
    {"role":"assistant","content":"Checking both.","reasoning_content":"The user wants the weather in two cities.","thinking_blocks":[{"type":"thinking","thinking":"The user wants the weather in two cities.","signature":"EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pk="},{"type":"redacted_thinking","data":"EmwKAhgBEgy3va3pzix/LafPsn4aDFIT2Xlxh0L5L8rLVyIwxtE3rAFBa8cr3qpP"}],"tool_calls":[{"id":"toolu_01T1x1fJ34qAmk2tNTrN7Up6","type":"function","function":{"name":"get_weather","arguments":"{\"location\": \"San Francisco, CA\"}"}},{"id":"toolu_01A09q90qw90lq917835lq9","type":"function","function":{"name":"list_cities","arguments":"{}"}}]}
    "#);
    let message = reply.message.unwrap();
    assert_eq!(message.text(), "Checking both.");
    assert_eq!(message.tool_calls().len(), 2);
}

#[test]
fn the_providers_own_tools_stay_among_the_content_and_cited_text_is_one_text() {
    let reply = read(SEARCH);
    insta::assert_snapshot!(shown(&reply), @r#"
    {"id":"msg_01G","model":"claude-sonnet-4-5","finish_reason":"stop","usage":"10682 (0 cached) + 510","ended":true,"error":null,"n_skipped":0}
    {"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_014h","name":"web_search","input":{"query":"weather NYC"}},{"type":"web_search_tool_result","tool_use_id":"srvtoolu_014h","content":[{"type":"web_search_result","title":"Weather","url":"https://example.com","encrypted_content":"Ev0DCio","page_age":null}]},{"type":"text","text":"It is 14 degrees."}]}
    "#);
    let message = reply.message.unwrap();
    assert_eq!(
        (message.text().as_ref(), message.tool_calls().len()),
        ("It is 14 degrees.", 0)
    );
}

#[test]
fn a_torn_stream_gives_what_came_and_says_it_is_not_whole() {
    let torn = &TOOLS[..TOOLS.find(" \\\"San Fran").unwrap()];
    let reply = read(torn);
    assert!(!reply.is_whole());
    let calls = reply.message.unwrap().tool_calls();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].arguments, "{\"location\":");
    assert_eq!(read(""), Reply::default());
    assert_eq!(Api::Messages.read_json(b"<html>"), Reply::default());
}

#[test]
fn an_error_inside_a_stream_and_an_error_instead_of_a_reply_are_kept() {
    let error = json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } });
    let begun = &TEXT[..TEXT.find("event: content_block_stop").unwrap()];
    let reply = read(&format!("{begun}event: error\ndata: {error}\n\n"));
    assert_eq!(reply.error, Some(error["error"].clone()));
    assert_eq!(reply.message.unwrap().text(), "Hello, \"Zoë\"!");
    let whole = Api::Messages.read_json(error.to_string().as_bytes());
    assert_eq!(
        (whole.message, whole.error),
        (None, Some(error["error"].clone()))
    );
}

#[test]
fn an_empty_turn_is_one_and_no_turn_is_none() {
    let empty = json!({ "type": "message", "content": [], "stop_reason": "end_turn" });
    let message = |body: &Value| Api::Messages.read_json(body.to_string().as_bytes()).message;
    insta::assert_snapshot!(lines(&[message(&empty).unwrap()]), @r#"{"role":"assistant","content":""}"#);
    assert_eq!(message(&json!({ "input_tokens": 7 })), None);
}

#[test]
fn servers_that_leave_out_types_and_starts_are_read_all_the_same() {
    let reply = read(concat!(
        "event: content_block_delta\ndata: {\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"hm\"}}\n\n",
        "event: content_block_delta\ndata: {\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"Pa\"}}\n\n",
        "event: content_block_delta\ndata: {\"delta\":{\"type\":\"text_delta\",\"text\":\"ris\"}}\n\n",
        "event: message_stop\ndata: {}\n\n",
    ));
    insta::assert_snapshot!(lines(&[reply.message.unwrap()]), @r#"{"role":"assistant","content":"Paris","reasoning_content":"hm","thinking_blocks":[{"type":"thinking","thinking":"hm"}]}"#);
    assert!(reply.ended);
}

#[test]
fn a_reply_without_end_is_kept_within_bounds() {
    let start =
        "data: {\"type\":\"content_block_start\",\"content_block\":{\"type\":\"tool_use\"}}\n\n";
    let calls = read(&start.repeat(3_000)).message.unwrap().tool_calls();
    assert_eq!(calls.len(), 1_024);
}

#[test]
fn every_stop_reason_has_its_word() {
    for (reason, word) in [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
        ("pause_turn", "pause_turn"),
    ] {
        assert_eq!(finish_reason(reason), word);
    }
}

#[test]
fn a_replayed_turn_is_the_turn_that_was_read() {
    let content = json!([
        { "type": "thinking", "thinking": "hm", "signature": "Eq" },
        { "type": "text", "text": "Looking." },
        { "type": "tool_use", "id": "t", "name": "ls", "input": { "path": "." } },
    ]);
    let reply = json!({ "type": "message", "role": "assistant", "content": content });
    let reply = Api::Messages.read_json(reply.to_string().as_bytes());
    let item = json!({ "role": "assistant", "content": content });
    assert_eq!(Api::Messages.item(&item).unwrap(), [reply.message.unwrap()]);
}

#[test]
fn what_is_no_message_is_refused_in_words() {
    let refused = |item: &Value| Api::Messages.item(item).unwrap_err().to_string();
    insta::assert_snapshot!(refused(&json!("hi")), @"a message must be a JSON object, this one is a string");
    insta::assert_snapshot!(refused(&json!({ "content": [] })), @r#"a message must have a "role" that is a string"#);
}

#[test]
fn the_end_of_a_stream_is_known_by_its_bytes() {
    let done = |text: &str| Api::Messages.is_done(text.as_bytes());
    assert!(done(TEXT) && done(TOOLS) && !done("") && done("data: [DONE]\n\n"));
    let n_done = (0..TEXT.len()).filter(|at| TEXT.is_char_boundary(*at) && done(&TEXT[..*at]));
    assert_eq!(
        n_done.count(),
        0,
        "only once the last event's blank line has come"
    );
}

#[test]
fn the_last_event_is_known_by_its_name_or_by_its_type() {
    #[rustfmt::skip]
    let cases = [
        (true, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"),
        (true, "event:message_stop\r\ndata:{\"a\":1}\r\n\r\n"),
        (true, "data: { \"type\" : \"message_stop\", \"a\": {} }\n\n"),
        (true, "event: ping\ndata: {}\n\ndata: {\"type\":\"message_stop\"}\r\r"),
        (false, ""),
        (false, "\n\n"),
        (false, "event: message_stop\n"),
        (false, "event: message_stop\ndata: {\"type\":\"message_stop\"}"),
        (false, "event: message_stop\ndata: {\"type\":\n"),
        (false, "event: message_stop\ndata: {}\n\nevent: ping\ndata: {}\n\n"),
        (false, "data: {\"text\":\"\\\"type\\\":\\\"message_stop\\\"\"}\n\n"),
        (false, "message_stop\"}\n\n"),
    ];
    for (is_end, tail) in cases {
        assert_eq!(Api::Messages.is_done(tail.as_bytes()), is_end, "{tail:?}");
    }
}

proptest! {
    #[test]
    fn any_splitting_gives_the_same_reply(stream in select(vec![TEXT, TOOLS, SEARCH]), cuts in vec(0usize..9_000, 0..12)) {
        let split = read_sse::<MessagesAccumulator>(pieces(stream.as_bytes(), &cuts));
        prop_assert_eq!(split, read(stream));
    }

    #[test]
    fn no_event_makes_it_panic(
        kind in select(vec!["message_start", "content_block_start", "content_block_delta", "message_delta", "error", "x"]),
        data in crate::any_json::any_json(),
        bytes in vec(any::<u8>(), 0..80),
    ) {
        let mut stream = format!("event: {kind}\ndata: {data}\n\n").into_bytes();
        stream.extend(&bytes);
        Api::Messages.read_sse(&stream);
        Api::Messages.is_done(&stream);
        Api::Messages.read_json(data.to_string().as_bytes());
        Api::Messages.read_json(&bytes);
        let _ = Api::Messages.item(&data);
        Api::Messages.system(&data);
        Api::Messages.tools(&data);
    }
}
