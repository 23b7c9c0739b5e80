use proptest::{collection::vec, prelude::*};
use serde_json::json;

use super::{
    sampled::{GatheredIds, MAX_IDS},
    *,
};
use crate::{any_json::any_json, rewrite::rewritten, testing::pieces};

const STREAM: &str = include_str!("streamed.sse");

/// What the client requested for, and what it must not see.
const BOTH: RequestedIds = RequestedIds {
    logprobs: true,
    token_ids: true,
};

fn stripped(requested: RequestedIds, pieces: &[&[u8]]) -> String {
    let out = rewritten(stream(requested), pieces.iter().copied());
    String::from_utf8(out).unwrap()
}

/// What vLLM sends unasked, made of what it sends when it is requested.
fn unasked(stream: &str) -> String {
    let mut out = String::new();
    for event in stream.split_inclusive("\n\n") {
        let Some(data) = event.strip_prefix("data: {") else {
            out.push_str(event);
            continue;
        };
        let mut chunk: Value = serde_json::from_str(&format!("{{{data}")).unwrap();
        let mut chunk_of = |place: &str| chunk.pointer_mut(place).map(Value::take);
        chunk_of("/prompt_token_ids");
        chunk_of("/choices/0/token_ids");
        chunk_of("/choices/0/logprobs");
        let choice = &chunk["choices"][0];
        if choice["delta"] != json!({}) || !choice["finish_reason"].is_null() {
            out.extend(["data: ", &chunk.to_string(), "\n\n"]);
        }
    }
    out
}

#[test]
fn a_client_that_asked_for_nothing_sees_what_it_would_have_seen() {
    let seen = stripped(RequestedIds::default(), &[STREAM.as_bytes()]);
    assert_eq!(seen, unasked(STREAM));
    insta::assert_snapshot!(seen);
    let sampled = sampled_sse(STREAM.as_bytes()).unwrap();
    assert_eq!(sampled.prompt_ids, [151_644, 8_948, 198, 2_610]);
    assert_eq!(sampled.ids, [4_272, 7, 285, 151_645]);
    assert_eq!(sampled.logprobs, [-0.125, -1.5, -0.5, 0.0]);
}

#[test]
fn what_the_client_asked_for_itself_stays() {
    let seen = stripped(BOTH, &[STREAM.as_bytes()]);
    assert_eq!(seen, STREAM);
    let requested = RequestedIds {
        logprobs: true,
        ..RequestedIds::default()
    };
    let seen = stripped(requested, &[STREAM.as_bytes()]);
    assert!(seen.contains("\"logprob\":-0.125") && !seen.contains("[4272]"));
    assert!(!seen.contains("\"delta\":{}"), "unasked, it is not there");
    let ids = RequestedIds {
        token_ids: true,
        ..RequestedIds::default()
    };
    let seen = stripped(ids, &[STREAM.as_bytes()]);
    assert!(seen.contains("[4272]") && seen.contains("\"delta\":{}") && !seen.contains("0.125"));
    let request = json!({ "logprobs": true, "return_token_ids": false });
    assert_eq!(
        RequestedIds::from_fields(|name| request.get(name).cloned()),
        requested
    );
}

#[test]
fn an_unstreamed_reply_is_stripped_too() {
    let body = r#"{"id":"chatcmpl-1","choices":[{"index":0,"message":{"role":"assistant","content":"Hi","token_ids":[1]},"logprobs":{"content":[{"token":"Hi","logprob":-0.25,"bytes":null,"top_logprobs":[]}]},"finish_reason":"stop","token_ids":[13048]},
  {"index":1,"message":{"content":"Ho"},"logprobs" : {"content":[{"token":"Ho","logprob":-2}]},"token_ids":[ 9 ]}],"prompt_logprobs":null,"prompt_token_ids":[1,2],"kv_transfer_params":null}"#;
    let stripped = reply(RequestedIds::default(), body.as_bytes());
    insta::assert_snapshot!(String::from_utf8(stripped.unwrap()).unwrap(), @r#"
    {"id":"chatcmpl-1","choices":[{"index":0,"message":{"role":"assistant","content":"Hi","token_ids":[1]},"logprobs":null,"finish_reason":"stop","token_ids":null},
      {"index":1,"message":{"content":"Ho"},"logprobs" : null,"token_ids":null}],"prompt_logprobs":null,"prompt_token_ids":null,"kv_transfer_params":null}
    "#);
    let sampled = sampled_json(body.as_bytes()).unwrap();
    assert_eq!(
        (sampled.prompt_ids, sampled.ids, sampled.logprobs),
        (vec![1, 2], vec![13_048], vec![-0.25])
    );
    assert_eq!(reply(BOTH, body.as_bytes()), None);
    let plain =
        br#"{"choices":[{"index":0,"token_ids":null,"logprobs":null}],"prompt_token_ids":null}"#;
    assert_eq!(reply(RequestedIds::default(), plain), None);
    assert_eq!(sampled_json(plain), None);
}

#[test]
fn what_is_not_whole_is_not_handed_on() {
    let sampled = |stream: &str| sampled_sse(stream.as_bytes());
    assert!(sampled(STREAM).is_some());
    assert_eq!(sampled(&STREAM.replace(",\"token_ids\":[7]", "")), None);
    assert_eq!(sampled(&STREAM.replace("[7]", "[-7]")), None);
    assert_eq!(sampled(&STREAM.replace("-1.5e0", "-1.5e300")), None);
    assert_eq!(sampled(&STREAM.replace("-1.5e0", "-9999.0")), None);
    assert_eq!(sampled(&STREAM.replace("\"logprob\":-1.5e0,", "")), None);
    assert_eq!(sampled(&STREAM.replace("prompt_token_ids", "x")), None);
    assert_eq!(sampled(""), None);
    let long = format!(
        "data: \"{}\"\n\n{STREAM}",
        "x".repeat(crate::sse::MAX_EVENT)
    );
    assert_eq!(sampled(&long), None, "an event was too long to be read");
    let n_ids = "1,".repeat(MAX_IDS) + "1";
    assert_eq!(sampled(&STREAM.replace("[7]", &format!("[{n_ids}]"))), None);
}

#[test]
fn a_chunk_that_never_came_is_missed_by_the_count() {
    let held_back = STREAM
        .split_inclusive("\n\n")
        .find(|it| it.contains("\"delta\":{}"));
    let older = STREAM.replace(held_back.unwrap(), "");
    assert_eq!(sampled_sse(older.as_bytes()), None);
    let uncounted = older.replace("\"usage\":", "\"x\":");
    assert!(
        sampled_sse(uncounted.as_bytes()).is_some(),
        "nobody can know"
    );
    let other = "data: {\"choices\":[{\"index\":1,\"token_ids\":[7]}]}\n\n";
    let of_two = format!("{other}{}", STREAM.replace(":4}}", ":5}}"));
    assert_eq!(sampled_sse(of_two.as_bytes()).unwrap().ids.len(), 4);
}

#[test]
fn a_server_that_refuses_names_the_field() {
    let said = br#"{"object":"error","message":"[{'type': 'extra_forbidden', 'loc': ('body', 'return_token_ids'), 'msg': 'Extra inputs are not permitted', 'input': True}]","type":"BadRequestError","param":null,"code":400}"#;
    assert!(RequestedIds::default().is_blamed(said));
    assert!(!BOTH.is_blamed(said), "the client's own");
    let other = br#"{"error":{"message":"This model's maximum context length is 4096 tokens.","type":"BadRequestError","param":null,"code":400}}"#;
    assert!(!RequestedIds::default().is_blamed(other));
    let logprobs = br#"{"error":{"message":"logprobs is not supported","code":400}}"#;
    assert!(RequestedIds::default().is_blamed(logprobs));
    let requested = RequestedIds {
        logprobs: true,
        ..RequestedIds::default()
    };
    assert!(!requested.is_blamed(logprobs));
}

#[test]
fn no_more_than_a_limit_of_ids_is_kept() {
    let sampled = |n_prompt: usize, n_said: usize| {
        let ids = |n: usize| "1,".repeat(n) + "1";
        let logprobs = "{\"logprob\":0},".repeat(n_said) + "{\"logprob\":0}";
        let body = format!(
            "{{\"prompt_token_ids\":[{}],\"choices\":[{{\"token_ids\":[{}],\"logprobs\":{{\"content\":[{logprobs}]}}}}]}}",
            ids(n_prompt),
            ids(n_said)
        );
        let mut gathered = GatheredIds::default();
        gathered.add(body.as_bytes());
        (
            gathered.prompt_ids.len(),
            gathered.logprobs.len(),
            gathered.has_gap,
        )
    };
    assert_eq!(sampled(0, 0), (1, 1, false));
    assert_eq!(sampled(MAX_IDS, 0), (0, 1, true), "the prompt");
    assert_eq!(sampled(0, MAX_IDS), (1, MAX_IDS, true), "what was said");
    let lone = "{\"logprob\":0},".repeat(MAX_IDS) + "{\"logprob\":0}";
    let body = format!("{{\"choices\":[{{\"logprobs\":{{\"content\":[{lone}]}}}}]}}");
    let mut gathered = GatheredIds::default();
    gathered.add(body.as_bytes());
    assert!(gathered.has_gap, "log-probabilities without ids");
}

proptest! {
    #[test]
    fn any_splitting_gives_the_same_bytes(cuts in vec(any::<usize>(), 0..12)) {
        let whole = stripped(RequestedIds::default(), &[STREAM.as_bytes()]);
        prop_assert_eq!(stripped(RequestedIds::default(), &pieces(STREAM.as_bytes(), &cuts)), whole);
    }

    #[test]
    fn nothing_but_what_was_asked_for_changes(chunk in any_json(), choice in any_json(), bytes in vec(any::<u8>(), 0..60)) {
        let mut chunk = chunk;
        if let Some(chunk) = chunk.as_object_mut() {
            chunk.insert("choices".into(), json!([choice]));
        }
        let stripped = reply(RequestedIds::default(), chunk.to_string().as_bytes());
        if let Some(stripped) = stripped {
            chunk.as_object_mut().unwrap().entry("prompt_token_ids").and_modify(|ids| *ids = Value::Null);
            if let Some(choice) = chunk["choices"][0].as_object_mut() {
                for name in ["token_ids", "logprobs"] {
                    choice.entry(name).and_modify(|value| *value = Value::Null);
                }
            }
            prop_assert_eq!(String::from_utf8(stripped).unwrap(), chunk.to_string());
        }
        reply(RequestedIds::default(), &bytes);
    }
}

#[test]
fn a_reply_under_a_grammar_is_told_from_a_free_one() {
    let is_constrained = |body: &str| {
        let body: Value = serde_json::from_str(body).unwrap();
        super::is_constrained(|name| body.get(name).cloned())
    };
    for constrained in [
        r#"{"tool_choice":"required"}"#,
        r#"{"tool_choice":{"type":"function","function":{"name":"f"}}}"#,
        r#"{"tool_choice":{"type":"any"}}"#,
        r#"{"response_format":{"type":"json_object"}}"#,
        r#"{"text":{"format":{"type":"json_schema"}}}"#,
        r#"{"structured_outputs":{"regex":"a"}}"#,
        r#"{"guided_choice":["a"]}"#,
    ] {
        assert!(is_constrained(constrained), "{constrained}");
    }
    for free in [
        "{}",
        r#"{"tool_choice":"auto","response_format":{"type":"text"}}"#,
        r#"{"tool_choice":{"type":"auto"},"text":{"verbosity":"low"}}"#,
        r#"{"tool_choice":null,"response_format":null,"structured_outputs":null}"#,
    ] {
        assert!(!is_constrained(free), "{free}");
    }
}
