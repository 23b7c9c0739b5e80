use bytes::Bytes;
use metaclaw_chat::Role;
use serde_json::json;

use super::*;
use crate::{api::Api, request::ChatRequest};

fn request(known: &KnownValues, system: &str, users: &str) -> ChatRequest {
    let body = json!({
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": users}],
        "tools": [{"type": "function", "function": {"name": "f", "description": "d".repeat(LONG)}}],
    });
    ChatRequest::parse_with(Api::Chat, Bytes::from(body.to_string()), known).unwrap()
}

#[test]
fn a_known_value_is_read_as_if_it_were_walked() {
    let known = KnownValues::default();
    let long = "é\"".repeat(LONG);
    let first = request(&known, &long, "one");
    // The same message begins at another byte.
    let second = request(&known, &long, &format!("two {long}"));
    assert_eq!(known.by_start.lock().unwrap().len(), 3);
    let plain = ChatRequest::parse(Api::Chat, second.raw().clone()).unwrap();
    for (read, walked) in second.messages().zip(plain.messages()) {
        assert_eq!((read.role(), read.text()), (walked.role(), walked.text()));
    }
    assert!(second.fields().eq(plain.fields()));
    let keys = |request: &ChatRequest| {
        let messages: Vec<_> = request.messages().collect();
        assert_eq!(messages[0].role(), Role::System);
        messages
            .iter()
            .map(|message| format!("{:?}", message.key()))
            .collect::<Vec<_>>()
    };
    let (first, second) = (keys(&first), keys(&second));
    assert!(
        first[0] == second[0] && first[0].starts_with("Long"),
        "{first:?}"
    );
    assert!(first[1].starts_with("Short") && second[1].starts_with("Long"));
}

#[test]
fn values_that_begin_alike_are_told_apart() {
    let known = KnownValues::default();
    let text = |end: &str| format!("{}{end}", "s".repeat(LONG));
    let ends = ["a", "b", "longer", "c", "d", "e", "a", "longer"];
    for end in ends {
        let read = request(&known, &text(end), "hi");
        assert_eq!(read.messages().next().unwrap().text(), text(end));
    }
    let lists = known.by_start.lock().unwrap();
    assert!(lists.iter().all(|(_, alike)| alike.len() <= ALIKE));
}

#[test]
fn what_is_cut_off_within_a_known_value_is_refused() {
    let known = KnownValues::default();
    let whole = request(&known, &"s".repeat(LONG), "hi").raw().clone();
    for end in [LONG / 2, LONG, whole.len() - 1] {
        assert!(ChatRequest::parse_with(Api::Chat, whole.slice(..end), &known).is_err());
    }
}

#[test]
fn the_number_of_known_values_is_bounded() {
    let known = KnownValues::default();
    for n in 0..STARTS + 2 {
        let text = format!("\"{n}{}\"", "x".repeat(LONG));
        known.note(&text, ValueKind::Field, &ItemSpans::default());
    }
    assert_eq!(known.by_start.lock().unwrap().len(), STARTS);
}

#[test]
fn a_field_is_not_taken_for_a_message() {
    let known = KnownValues::default();
    let message = json!({"role": "user", "content": "s".repeat(LONG)});
    let parse = |body: serde_json::Value| {
        ChatRequest::parse_with(Api::Chat, Bytes::from(body.to_string()), &known)
    };
    assert!(parse(json!({ "messages": message })).is_err());
    for body in [
        json!({ "messages": [message] }),
        json!({ "metadata": message, "messages": [message] }),
    ] {
        let request = parse(body).unwrap();
        assert_eq!(request.messages().next().unwrap().role(), Role::User);
    }
}

#[test]
fn values_with_the_same_beginning_are_hashed_in_vain_once_a_byte() {
    let known = KnownValues::default();
    let message = |n: usize| json!({"role": "user", "content": "s".repeat(n)});
    let parse = |messages: Vec<serde_json::Value>| {
        let body = json!({ "messages": messages }).to_string();
        let n_bytes = body.len();
        metaclaw_chat::work::looked_at();
        ChatRequest::parse_with(Api::Chat, Bytes::from(body), &known).unwrap();
        metaclaw_chat::work::looked_at() / n_bytes
    };
    parse((1..4).map(|n| message(n * 100_000)).collect());
    assert!(
        parse(
            (0..400)
                .map(|n| message(LONG + n))
                .chain([message(900_000)])
                .collect()
        ) < 6
    );
}
