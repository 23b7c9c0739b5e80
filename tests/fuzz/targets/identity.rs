//! Identity: any caller gets the same identity in the next try, never that of an agent that the key does not allow, and
//! no header of the proxy is sent upstream.
#![no_main]

use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use metaclaw_chat::{AgentId, Chain, ChainHash, Message, Said};
use metaclaw_dialects::{Api, request::ChatRequest};
use metaclaw_fuzz::{Input, api};
use metaclaw_gateway::fuzzing::{self, Who};
use serde_json::Value;

/// Headers that identify the caller, the proxy's first.
const NAMES: [&str; 23] = [
    "x-turn-type",
    "x-session-done",
    "x-memory-scope",
    "x-workspace-id",
    "x-agent-id",
    "authorization",
    "x-api-key",
    "api-key",
    "connection",
    "te",
    "x-session-id",
    "session_id",
    "session-id",
    "thread-id",
    "x-claude-code-session-id",
    "x-claude-code-agent-id",
    "x-parent-session-id",
    "x-openai-subagent",
    "x-codex-turn-metadata",
    "x-user-id",
    "x-session-affinity",
    "traceparent",
    "user-agent",
];
/// The first so many of these headers, which no upstream gets if callers use the proxy's keys.
const N_OURS: usize = 10;

fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let choice = input.byte();
    let n_headers = input.byte() % 8;
    let mut headers = HeaderMap::new();
    for _ in 0..n_headers {
        let name = NAMES[usize::from(input.byte()) % NAMES.len()];
        let length = usize::from(input.byte() % 80);
        if let Ok(value) = HeaderValue::from_bytes(input.take(length)) {
            headers.append(HeaderName::from_static(name), value);
        }
    }
    let body = input.rest();
    let api = api(choice >> 2);
    compare_chains(api, body);

    let up = fuzzing::upwards(headers.clone());
    for name in &NAMES[..N_OURS] {
        assert!(!up.contains_key(*name), "{name} goes upstream");
    }
    let ours: Vec<AgentId> = ["main", "work"]
        .iter()
        .map(|name| name.parse().expect("a name"))
        .collect();
    let of: &[AgentId] = if choice & 1 == 0 { &ours } else { &[] };
    let who = Who::new(of, choice & 2 != 0).expect("the patterns compile");
    let first = who.asks(api, &headers, body);
    let again = who.asks(api, &headers, body);
    match (first, again) {
        (Ok(first), Ok(again)) => {
            assert!(of.is_empty() || of.contains(&first.agent), "{first:?}");
            assert_eq!(
                (&first.agent, first.chain, first.is_main, first.is_last),
                (&again.agent, again.chain, again.is_main, again.is_last)
            );
            let start = ChainHash::start(&first.agent);
            // Conversations without the owner's words look alike, so each counts as a different one.
            if first.chain != start {
                assert_eq!(first.session, again.session, "a retry is the same session");
            }
        }
        (Err(first), Err(again)) => assert_eq!(first, again),
        (first, again) => panic!("{first:?}, then {again:?}"),
    }
});

/// The hashes computed while the agent waits must equal those of the messages themselves, because the log uses them to
/// find a turn's place in its session.
fn compare_chains(api: Api, body: &[u8]) {
    let start = ChainHash::start(&AgentId::default_agent());
    let Ok(request) = ChatRequest::parse(api, body.to_vec().into()) else {
        return;
    };
    let Ok(value) = serde_json::from_slice::<Value>(body) else {
        // It may contain a number beyond f64, or half a surrogate pair.
        return;
    };
    let Some(messages) = messages(api, &value) else {
        return;
    };
    let mut chain = Chain::new(start);
    let mut chains = vec![start];
    for message in &messages {
        chains.push(chain.push(Said::of_message(message)));
    }
    assert_eq!(request.chains(start), chains, "{api:?} {messages:?}");
    assert_eq!(request.to_messages().as_ref(), Some(&messages), "{api:?}");
}

/// Returns the conversation in the form of chat completions.
fn messages(api: Api, body: &Value) -> Option<Vec<Message>> {
    let (beside, items) = match api {
        Api::Chat => (None, "messages"),
        Api::Messages => (Some("system"), "messages"),
        Api::Responses => (Some("instructions"), "input"),
    };
    let system = beside.and_then(|field| api.system(&body[field]));
    let mut messages: Vec<Message> = system.into_iter().collect();
    match &body[items] {
        Value::Array(items) => {
            for item in items {
                api.push(&mut messages, item).ok()?;
            }
        }
        Value::String(text) if api == Api::Responses => messages.push(Message::user(text.as_str())),
        _ => {}
    }
    Some(messages)
}
