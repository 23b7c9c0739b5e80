use metaclaw_chat::{Message, ToolCall, Usage};
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};

use super::*;
use crate::{
    Api,
    reply::read_sse,
    testing::{pieces, shown},
};

fn stream(chunks: &[Value]) -> String {
    let event = |text: String, chunk: &Value| text + &format!("data: {chunk}\n\n");
    chunks.iter().fold(String::new(), event)
}

fn delta(delta: &Value) -> Value {
    json!({ "id": "chatcmpl-1", "model": "m", "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] })
}

fn text(reply: &Reply) -> Option<String> {
    let message = reply.message.as_ref()?;
    Some(message.text().into_owned())
}

#[test]
fn a_streamed_text_is_the_text_read_whole() {
    let streamed = stream(&[
        delta(&json!({ "role": "assistant", "content": "" })),
        delta(&json!({ "content": "Par" })),
        delta(&json!({ "content": "is", "reasoning_content": null })),
        json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] }),
        json!({ "choices": [], "usage": { "prompt_tokens": 12, "completion_tokens": 2, "prompt_tokens_details": { "cached_tokens": 8 } } }),
    ]) + "data: [DONE]\n\n";
    let reply = Api::Chat.read_sse(streamed.as_bytes());
    insta::assert_snapshot!(shown(&reply), @r#"
    {"id":"chatcmpl-1","model":"m","finish_reason":"stop","usage":"12 (8 cached) + 2","ended":true,"error":null,"n_skipped":0}
    {"role":"assistant","content":"Paris","reasoning_content":null}
    "#);
    assert!(reply.is_whole());
    let whole = json!({ "id": "chatcmpl-1", "model": "m", "choices": [{ "index": 0, "finish_reason": "stop",
        "message": { "role": "assistant", "content": "Paris" } }], "usage": { "prompt_tokens": 12,
        "completion_tokens": 2, "prompt_tokens_details": { "cached_tokens": 8 } } });
    let whole = Api::Chat.read_json(whole.to_string().as_bytes());
    assert_eq!(text(&whole).unwrap(), "Paris");
    assert_eq!((whole.id, whole.usage), (reply.id, reply.usage));
}

#[test]
fn tool_calls_grow_by_their_index() {
    let call = |call: Value| delta(&json!({ "tool_calls": [call] }));
    let streamed = stream(&[
        delta(&json!({ "role": "assistant", "content": null })),
        call(
            json!({ "index": 0, "id": "call_1", "type": "function", "function": { "name": "exec", "arguments": "" } }),
        ),
        call(
            json!({ "index": 1, "id": "call_2", "type": "function", "function": { "name": "read", "arguments": "{" } }),
        ),
        call(json!({ "index": 0, "function": { "name": "exec", "arguments": "{\"command\":" } })),
        call(json!({ "index": 1, "function": { "arguments": "}" } })),
        call(json!({ "index": 0, "id": "", "function": { "arguments": "\"ls\"}" } })),
    ]);
    let message = Api::Chat.read_sse(streamed.as_bytes()).message.unwrap();
    insta::assert_snapshot!(Value::from(message), @r#"{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"exec","arguments":"{\"command\":\"ls\"}"}},{"id":"call_2","type":"function","function":{"name":"read","arguments":"{}"}}]}"#);
}

#[test]
fn calls_are_told_apart_by_their_ids_without_an_index_or_all_with_index_0() {
    let call = |call: Value| delta(&json!({ "tool_calls": [call] }));
    let at_0 = |id: &str, city: &str| {
        let function =
            json!({ "name": "weather", "arguments": format!("{{\"city\":\"{city}\"}}") });
        call(json!({ "index": 0, "id": id, "type": "function", "function": function }))
    };
    let without = [
        call(json!({ "id": "a", "function": { "name": "x", "arguments": "{}" } })),
        call(json!({ "id": "b", "function": { "name": "y", "arguments": "{" } })),
        call(json!({ "function": { "arguments": "}" } })),
    ];
    let read = |chunks: &[Value]| {
        let message = Api::Chat
            .read_sse(stream(chunks).as_bytes())
            .message
            .unwrap();
        let shown = |call: &ToolCall| format!("{} {} {}", call.id, call.name, call.arguments);
        message.tool_calls().iter().map(shown).collect::<Vec<_>>()
    };
    assert_eq!(read(&without), ["a x {}", "b y {}"]);
    let both = [at_0("a", "Paris"), at_0("b", "Rome")];
    assert_eq!(
        read(&both),
        [
            r#"a weather {"city":"Paris"}"#,
            r#"b weather {"city":"Rome"}"#
        ]
    );
}

#[test]
fn what_was_said_stands_and_nothing_undoes_it() {
    let usage = json!({ "prompt_tokens": 1, "completion_tokens": 2 });
    let call = |name: &str| json!([{ "index": 0, "id": "a", "function": { "name": name, "arguments": "" } }]);
    let chunk =
        |id: &str, delta: Value| json!({ "id": id, "model": "m", "choices": [{ "delta": delta }] });
    let mut counted = chunk("r2", json!({ "content": null, "tool_calls": call("g") }));
    counted["usage"] = usage;
    let streamed = stream(&[
        chunk("", json!({ "role": "assistant", "content": "x" })),
        chunk("r1", json!({ "tool_calls": call("f") })),
        counted,
        chunk("r3", json!({})),
    ]);
    let reply = Api::Chat.read_sse(streamed.as_bytes());
    assert_eq!(reply.id.as_deref(), Some("r1"));
    assert_eq!(reply.usage.map(|usage| usage.completion_tokens), Some(2));
    let message = reply.message.unwrap();
    assert_eq!(message.text(), "x");
    assert_eq!(message.tool_calls()[0].name, "f");
}

#[test]
fn gaps_are_counted_and_an_event_behind_the_end_is_none() {
    let long = format!("data: {}\n\n", "x".repeat(crate::sse::MAX_EVENT));
    let behind = "data: [DONE]\n\ndata: {\"error\":\"late\"}";
    let reply = Api::Chat.read_sse((long + behind).as_bytes());
    assert_eq!((reply.n_skipped, reply.error), (1, None));
}

#[test]
fn usage_is_found_where_moonshot_has_it() {
    let usage = json!({ "prompt_tokens": 9, "completion_tokens": 2, "cached_tokens": 8 });
    let last = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop", "usage": usage }] });
    let expected = Usage {
        prompt_tokens: 9,
        completion_tokens: 2,
        cached_tokens: 8,
    };
    let reply = Api::Chat.read_sse(stream(&[last]).as_bytes());
    assert_eq!(reply.usage, Some(expected));
    let deepseek = json!({ "usage": { "prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 8 } });
    let reply = Api::Chat.read_json(deepseek.to_string().as_bytes());
    assert_eq!(reply.usage, Some(expected));
}

#[test]
fn half_an_emoji_costs_neither_a_calls_arguments_nor_a_whole_reply() {
    let piece = |text: &str| {
        let function = format!("{{\"name\":\"f\",\"arguments\":\"{text}\"}}");
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"index\":0,\"function\":{function}}}]}}}}]}}\n\n"
        )
    };
    let streamed = piece("{\\\"a\\\":\\\"\\ud83d") + &piece("\\ude00\\\"}");
    let calls = Api::Chat
        .read_sse(streamed.as_bytes())
        .message
        .unwrap()
        .tool_calls();
    assert_eq!(calls[0].arguments, "{\"a\":\"\u{fffd}\u{fffd}\"}");

    let whole = br#"{"choices":[{"message":{"role":"assistant","content":"a\ud83d"}}]}"#;
    let text = |api: Api, bytes: &[u8]| api.read_json(bytes).message.unwrap().text().into_owned();
    assert_eq!(text(Api::Chat, whole), "a\u{fffd}");
    let whole = b"{\"content\":[{\"type\":\"text\",\"text\":\"a\xf0\x9f\"}]}";
    assert_eq!(text(Api::Messages, whole), "a\u{fffd}");
    let whole = br#"{"status":"completed","output":[{"role":"assistant","content":"a\ud83d"}]}"#;
    assert_eq!(text(Api::Responses, whole), "a\u{fffd}");
}

#[test]
fn a_torn_stream_gives_what_came_and_says_it_is_not_whole() {
    let streamed = stream(&[delta(&json!({ "content": "Par" }))]) + "data: {\"choices\":[{\"del";
    let reply = Api::Chat.read_sse(streamed.as_bytes());
    assert_eq!(text(&reply).unwrap(), "Par");
    assert!(!reply.is_whole());
    assert_eq!(Api::Chat.read_sse(b""), Reply::default());
    assert_eq!(Api::Chat.read_json(b"<html>"), Reply::default());
}

#[test]
fn only_the_first_choice_is_read_and_an_error_inside_a_stream_is_kept() {
    let streamed = stream(&[
        json!({ "choices": [{ "index": 1, "delta": { "content": "no" } }, { "index": 0, "delta": { "content": "yes" } }] }),
        json!({ "error": { "message": "overloaded" } }),
    ]);
    let reply = Api::Chat.read_sse(streamed.as_bytes());
    assert_eq!(text(&reply).unwrap(), "yes");
    assert_eq!(reply.error, Some(json!({ "message": "overloaded" })));
}

/// Where something may stand in a completion: the object, and the name in it.
const FIELDS: [(&str, &str); 8] = [
    ("", "id"),
    ("", "error"),
    ("", "choices"),
    ("", "usage"),
    ("/usage", "prompt_tokens"),
    ("/usage", "cached_tokens"),
    ("/choices/0", "message"),
    ("/choices/0", "finish_reason"),
];

proptest! {
    #[test]
    fn any_splitting_gives_the_same_reply(texts in vec("[a-z \"\\\\é]{0,8}", 1..8), cuts in vec(0usize..2000, 0..10)) {
        let chunks: Vec<_> = texts.iter().map(|text| delta(&json!({ "content": text }))).collect();
        let bytes = stream(&chunks).into_bytes();
        let split = read_sse::<ChatAccumulator>(pieces(&bytes, &cuts));
        prop_assert_eq!(text(&split), Some(texts.concat()));
        prop_assert_eq!(split, Api::Chat.read_sse(&bytes));
    }

    /// Whatever stands where, it is read as if it had been read to its depth.
    #[test]
    fn a_whole_reply_is_what_its_values_say(fields in vec((select(FIELDS.to_vec()), crate::any_json::any_json()), 0..6)) {
        let mut body = json!({ "choices": [{}], "usage": {} });
        for ((object, name), value) in fields {
            match body.pointer_mut(object) {
                Some(Value::Object(object)) => object.insert(name.to_owned(), value),
                Some(_) | None => None,
            };
        }
        let body = body.to_string();
        let reply = Api::Chat.read_json(body.as_bytes());
        let body: Value = serde_json::from_str(&body).unwrap();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let choice = &body["choices"][0];
        prop_assert_eq!(&reply.id, &text(&body["id"]));
        prop_assert_eq!(reply.finish_reason, text(&choice["finish_reason"]).map(|word| finish_reason(&word)));
        prop_assert_eq!(reply.message, Message::try_from(choice["message"].clone()).ok());
        prop_assert_eq!(reply.error, body.get("error").filter(|error| !error.is_null()).cloned());
        prop_assert_eq!(reply.usage, Usage::read(&body["usage"]));
    }

    #[test]
    fn no_event_makes_it_panic(data in "[\\[\\]{}\":,a-z0-9]{0,60}") {
        Api::Chat.read_sse(format!("data: {data}\n\n").as_bytes());
    }
}

#[test]
fn what_stands_behind_the_end_mark_is_no_part_of_the_reply() {
    let said = |text: &str| stream(&[delta(&json!({ "content": text }))]);
    let reply = Api::Chat.read_sse((said("a") + "data: [DONE]\n\n" + &said("b")).as_bytes());
    assert_eq!(reply.message.unwrap().text(), "a");
    assert!(Api::Chat.is_done(b"data: [DONE]\n\n"));
    // The line, or the event, may go on.
    for tail in [
        "data: [DONE]",
        "data: [DONE]\n",
        "data: a\ndata: [DONE]\n\n",
        "data: \"[DONE]\"\n\n",
    ] {
        assert!(!Api::Chat.is_done(tail.as_bytes()), "{tail:?}");
    }
}
