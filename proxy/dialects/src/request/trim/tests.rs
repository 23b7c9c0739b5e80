use bytes::Bytes;
use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};

use super::*;
use crate::{
    api::Api,
    request::splice::{Changes, splice},
};

fn parse(api: Api, raw: &str) -> ChatRequest {
    ChatRequest::parse(api, Bytes::copy_from_slice(raw.as_bytes())).unwrap()
}

fn limit(max_tokens: usize) -> PromptLimit {
    PromptLimit {
        max_tokens,
        system_bytes: 0,
        user_bytes: 0,
    }
}

/// A request with a conversation of these elements, trimmed to `max_tokens`.
fn sent(api: Api, items: &[String], max_tokens: usize) -> (String, Option<TrimmedPrompt>) {
    let field = match api {
        Api::Chat | Api::Messages => "messages",
        Api::Responses => "input",
    };
    let raw = format!(
        "{{\"model\" : \"m\", \"{field}\":[ {} ]}}",
        items.join(" , ")
    );
    let request = parse(api, &raw);
    let trimmed = request.trim(limit(max_tokens));
    let changes = Changes {
        dropped: trimmed.as_ref().map_or(&[], |it| &it.dropped),
        ..Changes::default()
    };
    let sent = splice(&request, changes).concat();
    (String::from_utf8(sent).unwrap(), trimmed)
}

/// About `n_tokens` of text.
fn words(n_tokens: usize) -> String {
    "word".repeat(n_tokens)
}

fn chat(role: &str, text: &str) -> String {
    json!({ "role": role, "content": text }).to_string()
}

/// What is left, by the first word of each message.
fn left(sent: &str) -> Vec<String> {
    let sent: Value = serde_json::from_str(sent).unwrap();
    let items = sent.get("messages").or_else(|| sent.get("input")).unwrap();
    let name = |item: &Value| match &item["content"] {
        Value::String(text) => text.split(' ').next().unwrap().to_owned(),
        _ => item.to_string(),
    };
    items.as_array().unwrap().iter().map(name).collect()
}

#[test]
fn the_oldest_messages_go_until_it_fits_and_all_else_stays_byte_for_byte() {
    let long = words(100);
    let items = [
        chat("system", "Be kind."),
        chat("user", &format!("one {long}")),
        chat("assistant", &format!("reply1 {long}")),
        chat("user", &format!("two {long}")),
        chat("assistant", &format!("reply2 {long}")),
        r#"{ "content":"three caf\u00e9", "role":"user" }"#.to_owned(),
    ];
    let (all, none) = sent(Api::Chat, &items, 10_000);
    assert_eq!((left(&all).len(), none), (6, None));
    let (some, trimmed) = sent(Api::Chat, &items, 350);
    assert_eq!(left(&some), ["Be", "two", "reply2", "three"]);
    let kept = [&items[0], &items[3], &items[4], &items[5]].map(String::as_str);
    assert_eq!(
        some,
        format!(
            "{{\"model\" : \"m\", \"messages\":[ {} ]}}",
            kept.join(" , ")
        )
    );
    let trimmed = trimmed.unwrap();
    assert_eq!(trimmed.n_dropped, 2);
    assert_eq!(trimmed.dropped.first(), Some(&(1..3)));
    assert_eq!(trimmed.dropped.len(), 1);
    assert!(trimmed.n_tokens > 400 && trimmed.n_left <= 350);
    // A reply alone would fit, but a conversation does not begin with one.
    let (less, trimmed) = sent(Api::Chat, &items, 150);
    assert_eq!(left(&less), ["Be", "three"]);
    assert_eq!(trimmed.unwrap().n_dropped, 4);
    let (least, trimmed) = sent(Api::Chat, &items, 1);
    assert_eq!(left(&least), ["Be", "three"]);
    assert!(trimmed.unwrap().n_left > 1, "and says what it has");
}

#[test]
fn lessons_count_and_stand_on_what_is_left() {
    let items = [
        chat("user", &format!("one {}", words(50))),
        chat("assistant", "reply"),
        chat("user", "two"),
    ];
    let raw = format!("{{\"messages\":[{}]}}", items.join(","));
    let request = parse(Api::Chat, &raw);
    assert_eq!(request.trim(limit(100)), None);
    let lessons = PromptLimit {
        system_bytes: 200,
        user_bytes: 4,
        ..limit(100)
    };
    let trimmed = request.trim(lessons).unwrap();
    let changes = Changes {
        system: Some("L"),
        user_line: Some("(short)"),
        dropped: &trimmed.dropped,
        ..Changes::default()
    };
    let sent = String::from_utf8(splice(&request, changes).concat()).unwrap();
    assert_eq!(
        sent,
        r#"{"messages":[{"role":"system","content":"L"},{"role":"user","content":"two\n\n(short)"}]}"#
    );
}

#[test]
fn calls_and_their_results_go_together_in_each_api() {
    let long = words(100);
    let items = [
        chat("user", &format!("do {long}")),
        r#"{"role":"assistant","tool_calls":[{"id":"a"},{"id":"b"}]}"#.to_owned(),
        chat("tool", &format!("a {long}")),
        chat("tool", &format!("b {long}")),
        r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c"}]}"#.to_owned(),
        chat("tool", "c"),
    ];
    let (some, trimmed) = sent(Api::Chat, &items, 250);
    assert_eq!(trimmed.unwrap().dropped, vec![1..4]);
    assert_eq!(left(&some).len(), 3, "{some}");

    let messages = [
        chat("user", "go"),
        r#"{"role":"assistant","content":[{"type":"tool_use","id":"a"}]}"#.to_owned(),
        format!(
            r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"a","content":"{long}"}}]}}"#
        ),
        r#"{"role":"assistant","content":[{"type":"tool_use","id":"b"}]}"#.to_owned(),
        r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"b","content":"x"},{"type":"text","text":"and now this"}]}"#.to_owned(),
    ];
    let (some, trimmed) = sent(Api::Messages, &messages, 60);
    assert_eq!(trimmed.unwrap().dropped, vec![1..3]);
    assert!(
        some.contains("go") && some.contains("and now this"),
        "{some}"
    );

    let input = [
        chat("user", "first"),
        r#"{"type":"reasoning","summary":[]}"#.to_owned(),
        r#"{"type":"function_call","call_id":"a","name":"x","arguments":"{}"}"#.to_owned(),
        r#"{"type":"function_call","call_id":"b","name":"x","arguments":"{}"}"#.to_owned(),
        format!(r#"{{"type":"function_call_output","call_id":"a","output":"{long}"}}"#),
        chat("user", "between"),
        format!(r#"{{"type":"function_call_output","call_id":"b","output":"{long}"}}"#),
        chat("user", "last"),
    ];
    let (some, trimmed) = sent(Api::Responses, &input, 60);
    assert_eq!(trimmed.unwrap().dropped, vec![0..7]);
    assert_eq!(left(&some), ["last"]);
}

#[test]
fn what_has_nothing_to_drop_passes() {
    let long = words(100);
    let (_, trimmed) = sent(Api::Chat, &[chat("user", &long)], 10);
    assert_eq!(trimmed, None);
    let raw = format!(r#"{{"input":"{long}"}}"#);
    assert_eq!(parse(Api::Responses, &raw).trim(limit(10)), None);
    let raw = r#"{"previous_response_id":"r"}"#;
    assert_eq!(parse(Api::Responses, raw).trim(limit(1)), None);
}

/// A conversation of rounds: a user's message, then calls with their results, then a reply.
fn any_rounds() -> impl Strategy<Value = Vec<usize>> {
    vec(0_usize..4, 1..12)
}

proptest! {
    #[test]
    fn no_result_is_without_its_call_and_the_last_words_stay(
        rounds in any_rounds(),
        max_tokens in 0_usize..600,
    ) {
        let mut items = vec![chat("system", "S")];
        let mut n_calls = 0;
        for n in &rounds {
            items.push(chat("user", &format!("ask {}", words(20))));
            for _ in 0..*n {
                n_calls += 1;
                items.push(format!(r#"{{"role":"assistant","tool_calls":[{{"id":"c{n_calls}"}}]}}"#));
                let text = words(10);
                items.push(format!(r#"{{"role":"tool","tool_call_id":"c{n_calls}","content":"{text}"}}"#));
            }
            items.push(chat("assistant", "done"));
        }
        items.push(chat("user", "last"));
        let (some, trimmed) = sent(Api::Chat, &items, max_tokens);
        let some: Value = serde_json::from_str(&some).unwrap();
        let some = some["messages"].as_array().unwrap();
        let n_dropped = trimmed.as_ref().map_or(0, |it| it.n_dropped);
        prop_assert_eq!(some.len() + n_dropped, items.len());
        prop_assert_eq!(&some[0]["content"], "S");
        prop_assert_eq!(&some[1]["role"], "user");
        prop_assert_eq!(&some[some.len() - 1]["content"], "last");
        for (before, after) in some.iter().zip(&some[1..]) {
            let calls = &before["tool_calls"][0]["id"];
            prop_assert_eq!(calls, &after["tool_call_id"]);
        }
        if let Some(trimmed) = trimmed {
            prop_assert!(trimmed.n_tokens > max_tokens);
            prop_assert!(trimmed.n_left <= max_tokens || some.len() == 2);
        }
    }
}
