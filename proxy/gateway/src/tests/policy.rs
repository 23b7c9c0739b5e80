//! Tests of our own policy model: adapters that change during requests, and a server that may be unreachable.

use std::time::Duration;

use metaclaw_chat::{AgentId, Span};
use metaclaw_test_kit::has;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    time::sleep,
};

use super::harness::{
    BRIEF, CHAT, CHATS, DONE, Harness, MESSAGES, SetUp, Upstream, begun, completion, conversation,
    delta, get, post, post_chat, reply, request, says,
};
use crate::{Endpoint, POLICY, UpstreamConfig};

/// Makes a harness with a policy server. The second value receives its requests.
async fn with_policy(set_up: SetUp) -> (Harness, Upstream) {
    let harness = Harness::with(set_up).await;
    let policy = harness.policy(Endpoint::with_system_append).await;
    (harness, policy)
}

/// Makes a harness with only the policy model.
async fn policy_alone() -> (Harness, Upstream) {
    with_policy(SetUp::without_llm()).await
}

/// Returns the body of a chat that the policy model answers, as it gets it.
async fn ask(harness: &Harness, policy: &mut Upstream, body: &str) -> Value {
    let mut client = harness.sent(&post_chat(body)).await;
    let exchange = policy.answer(&says("x")).await;
    assert!(client.read().await.is_whole);
    exchange.json()
}

async fn talk(harness: &Harness, policy: &mut Upstream, texts: &[&str]) -> Value {
    ask(harness, policy, &conversation(texts)).await
}

#[tokio::test]
async fn the_policy_is_asked_with_its_key_its_adapter_and_the_lessons_it_appends_itself() {
    let (mut harness, mut policy) = with_policy(SetUp::taught(&[BRIEF])).await;
    let mut client = harness.sent(&post_chat(CHAT)).await;
    let exchange = policy.answer(&says("x")).await;
    client.read().await;
    assert_eq!(exchange.line(), "POST /v1/chat/completions HTTP/1.1");
    assert_eq!(exchange.header("authorization"), Some("Bearer sk-trainer"));
    let body = exchange.json();
    assert_eq!(body["model"], "base");
    has(
        body["metaclaw_system_append"].as_str().unwrap(),
        ["Be brief."],
    );
    assert_eq!(body["messages"].as_array().unwrap().len(), 1);
    let served = &harness.log.wait(1).await[0].served;
    assert_eq!((&*served.upstream, &served.adapter), ("policy", &None));
    assert!(harness.upstream.is_unasked());
}

#[tokio::test]
async fn what_a_request_leaves_to_the_server_is_drawn_as_configured_and_so_recorded() {
    let mut set_up = SetUp::default();
    set_up.config.serving.temperature = Some(0.3);
    set_up.config.serving.top_p = Some(1.0);
    let (harness, mut policy) = with_policy(set_up).await;
    let given = [
        (json!({}), [0.3, 1.0]),
        (json!({"temperature": null}), [0.3, 1.0]),
        (json!({"temperature": 0, "top_p": 0.9}), [0.0, 0.9]),
    ];
    for (n, (own, expected)) in given.into_iter().enumerate() {
        let mut body =
            json!({"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]});
        let fields = body.as_object_mut().unwrap();
        fields.extend(own.as_object().unwrap().clone());
        let asked = ask(&harness, &mut policy, &body.to_string()).await;
        let turn = &harness.log.wait(n + 1).await[n];
        for body in [asked, Value::Object(turn.request.params.clone())] {
            let sampling = ["temperature", "top_p"].map(|name| body[name].as_f64());
            assert_eq!(json!(sampling), json!(expected), "{own}");
        }
    }
}

#[tokio::test]
async fn no_other_upstream_is_asked_with_the_policy_models_sampling() {
    let mut set_up = SetUp::default();
    set_up.config.serving.temperature = Some(0.3);
    let mut harness = Harness::with(set_up).await;
    assert_eq!(harness.chat("", CHAT, "x").await.body(), CHAT);
    let turn = &harness.log.wait(1).await[0];
    assert_eq!(turn.request.params.get("temperature"), None);
}

/// Once, there was no way back from weights that had changed too much.
#[tokio::test]
async fn an_adapter_that_the_owner_chooses_serves_at_once_and_cuts_no_reply() {
    let (harness, mut policy) = with_policy(SetUp::default()).await;
    let agent = AgentId::default_agent();
    harness.serving.set(&agent, Some("ruined"));
    let mut client = harness.sent(&post_chat(&conversation(&["one"]))).await;
    let mut exchange = policy.answer(&begun("Par")).await;
    client.until("Par").await;
    for (choice, asked) in [(None, "base"), (Some("good"), "good"), (None, "base")] {
        harness.serving.choose(&agent, choice);
        let body = talk(&harness, &mut policy, &["one", "x", "two"]).await;
        assert_eq!(body["model"], asked);
        let idle = harness.idle_adapters.lock().unwrap().clone();
        assert!(!idle.contains(&"ruined".to_owned()));
    }
    exchange.end(DONE).await;
    let seen = client.read().await;
    assert!(seen.is_whole);
    has(seen.text(), ["Par"]);
    let adapters = harness.turns(4, |turn| turn.served.adapter).await;
    let expected = [None, Some("good"), None, Some("ruined")];
    assert_eq!(adapters, expected.map(|name| name.map(str::to_owned)));
}

#[tokio::test]
async fn a_session_stays_on_its_adapter_and_the_last_one_out_unloads_it() {
    let mut set_up = SetUp::default();
    set_up.config.serving.pin_idle = Span::millis(300);
    let (harness, mut policy) = with_policy(set_up).await;
    let agent = AgentId::default_agent();
    harness.serving.set(&agent, Some("a1"));
    assert_eq!(talk(&harness, &mut policy, &["one"]).await["model"], "a1");
    harness.serving.set(&agent, Some("a2"));
    let later = talk(&harness, &mut policy, &["one", "x", "two"]).await;
    assert_eq!(later["model"], "a1");
    assert_eq!(talk(&harness, &mut policy, &["other"]).await["model"], "a2");
    assert!(harness.idle_adapters.lock().unwrap().is_empty());
    let adapters = harness.turns(3, |turn| turn.served.adapter.unwrap()).await;
    assert_eq!(adapters, ["a1", "a1", "a2"]);
    sleep(Duration::from_millis(350)).await;
    let after = talk(&harness, &mut policy, &["one", "x", "two", "x", "three"]).await;
    assert_eq!(after["model"], "a2");
    assert_eq!(*harness.idle_adapters.lock().unwrap(), ["a1"]);
}

#[tokio::test]
async fn while_the_policy_is_down_the_fall_back_answers() {
    let (mut harness, policy) = with_policy(SetUp::default()).await;
    drop(policy);
    harness.serving.set_policy(None);
    assert_eq!(harness.chat("", CHAT, "x").await.body(), CHAT);
    assert_eq!(harness.log.wait(1).await[0].served.upstream, "llm");
}

#[tokio::test]
async fn without_a_fall_back_the_caller_is_told_when_to_come_again() {
    let (harness, mut policy) = policy_alone().await;
    let mut client = harness.sent(&post_chat(CHAT)).await;
    // A running stream is cut, and the agent sees the cut.
    let exchange = policy.answer(&begun("Par")).await;
    client.until("Par").await;
    drop(exchange);
    assert!(!client.read().await.is_whole);
    // A stream that has not begun, and all later ones, get a reply that asks to try again.
    let mut client = harness.sent(&post_chat(CHAT)).await;
    drop(policy.next().await);
    assert_eq!(client.read().await.retry(), (503, Some("5")));
    harness.serving.set_policy(None);
    let seen = harness.refused(&post_chat(CHAT)).await;
    assert_eq!(seen.retry(), (503, Some("5")));
    insta::assert_snapshot!(seen.text(), @r#"{"error":{"message":"the policy model is not being served right now; it is being (re)started, try again","type":"server_error","param":null,"code":"policy_unavailable"}}"#);
}

#[tokio::test]
async fn callers_reach_the_trainers_chats_and_models_and_nothing_else_of_it() {
    let (harness, mut policy) = policy_alone().await;
    for (method, path) in [
        ("POST", "/v1/train/optim_step"),
        ("GET", "/v1/sampled/chatcmpl-1"),
        ("DELETE", "/v1/adapters/a1"),
        ("POST", "/v1/models"),
        ("GET", "/v1/models/../sampled/chatcmpl-1"),
    ] {
        let seen = harness.refused(&request(method, path, "", "")).await;
        assert_eq!(seen.status(), 404, "{method} {path}: {}", seen.text());
    }
    assert!(policy.is_unasked());
    let mut client = harness.sent(&get("/v1/models", "")).await;
    policy.next().await.answer("{}").await;
    assert_eq!(client.read().await.text(), "{}");
}

#[tokio::test]
async fn a_session_is_not_idle_while_its_reply_is_under_way() {
    let mut set_up = SetUp::default();
    set_up.config.serving.pin_idle = Span::millis(200);
    let (harness, mut policy) = with_policy(set_up).await;
    let agent = AgentId::default_agent();
    harness.serving.set(&agent, Some("a1"));
    let request = post(CHATS, "x-session-id: s\r\n", CHAT);
    let mut long = harness.sent(&request).await;
    let _writing = policy.answer(&begun("Par")).await;
    long.until("Par").await;
    harness.serving.set(&agent, Some("a2"));
    sleep(Duration::from_millis(250)).await;
    let _other = harness.sent(&request).await;
    assert_eq!(policy.next().await.json()["model"], "a1");
}

#[tokio::test]
async fn a_reply_of_the_policy_names_its_adapter_whatever_its_server_says() {
    let (harness, mut policy) = with_policy(SetUp::default()).await;
    let mut named = async |reply: &str| {
        let mut client = harness.sent(&post_chat(CHAT)).await;
        policy.answer(reply).await;
        let seen = client.read().await;
        seen.header("x-metaclaw-adapter").map(str::to_owned)
    };
    harness
        .serving
        .set(&AgentId::default_agent(), Some("main@5"));
    let reply = says("x");
    let other = reply.replacen("\r\n", "\r\nx-metaclaw-adapter: other\r\n", 1);
    for reply in [&reply, &other] {
        assert_eq!(named(reply).await.as_deref(), Some("main@5"));
    }
    harness.serving.withdraw("main@5");
    assert_eq!(named(&reply).await, None, "the base");
}

/// Makes the trainer's refusal of a conversation or field, by its code.
fn cannot(code: &str) -> String {
    let body = format!(
        r#"{{ "error": {{"message":"not here","type":"invalid_request_error","param":"messages","code":"{code}"}} }}"#
    );
    reply("400 Bad Request", "", &body)
}

/// What the policy model cannot do, and what is too long for it.
const UNABLE: [&str; 5] = [
    "context_length_exceeded",
    "template_refused",
    "unsupported_value",
    "unsupported_parameter",
    "unknown_parameter",
];

#[tokio::test]
async fn what_the_policy_cannot_do_goes_to_the_fall_back_in_both_apis() {
    let (mut harness, mut policy) = with_policy(SetUp::default()).await;
    for (n, code) in UNABLE.into_iter().enumerate() {
        let mut client = harness.sent(&post_chat(CHAT)).await;
        policy.answer(&cannot(code)).await;
        let exchange = harness.upstream.answer(&says("x")).await;
        assert_eq!(exchange.body(), CHAT, "{code}");
        assert_eq!(client.read().await.text(), completion("x"), "{code}");
        assert_eq!(harness.log.wait(n + 1).await[n].served.upstream, "llm");
    }
    // Any other mistake is the caller's, and would be one at another upstream too.
    let mut client = harness.sent(&post_chat(CHAT)).await;
    policy.answer(&reply("400 Bad Request", "", "{}")).await;
    assert_eq!(client.read().await.text(), "{}");
    assert!(harness.upstream.is_unasked());
    let mut client = harness.sent(&post("/v1/messages", "", MESSAGES)).await;
    policy.answer(&cannot("template_refused")).await;
    let message = r#"{"type":"message","content":[]}"#;
    harness.upstream.next().await.answer(message).await;
    assert_eq!(client.read().await.status(), 200);
}

#[tokio::test]
async fn without_a_fall_back_the_agent_hears_what_the_policy_cannot_do() {
    let (harness, mut policy) = policy_alone().await;
    for code in ["context_length_exceeded", "template_refused"] {
        let mut client = harness.sent(&post_chat(CHAT)).await;
        policy.answer(&cannot(code)).await;
        let seen = client.read().await;
        assert_eq!(seen.status(), 400);
        assert!(cannot(code).ends_with(&format!("\r\n\r\n{}", seen.text())));
    }
}

#[tokio::test]
async fn what_an_account_is_refused_goes_to_the_fall_back_and_what_our_trainer_refuses_does_not() {
    let body = r#"{"error":{"message":"no","type":"server_error"}}"#;
    for status in [429, 502, 503] {
        let refusal = reply(&format!("{status} No"), "", body);
        let (mut harness, mut policy) = with_policy(SetUp::default()).await;
        let mut client = harness.sent(&post_chat(CHAT)).await;
        policy.answer(&refusal).await;
        assert_eq!(client.read().await.status(), status);
        assert!(harness.upstream.is_unasked(), "{status}");

        let mut policy = harness.policy(Endpoint::by_account).await;
        let mut client = harness.sent(&post_chat(CHAT)).await;
        policy.answer(&refusal).await;
        harness.upstream.answer(&says("x")).await;
        assert_eq!(client.read().await.text(), completion("x"), "{status}");
    }
}

const IMAGE: &str = r#"{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}]}"#;

#[tokio::test]
async fn an_image_goes_to_the_fall_back_or_is_refused_in_words() {
    let (mut harness, mut policy) = with_policy(SetUp::default()).await;
    assert_eq!(harness.chat("", IMAGE, "a dot").await.body(), IMAGE);
    assert!(policy.is_unasked());
    let (harness, mut policy) = policy_alone().await;
    let seen = harness.refused(&post_chat(IMAGE)).await;
    assert_eq!(seen.status(), 400);
    insta::assert_snapshot!(seen.text(), @r#"{"error":{"message":"this conversation holds an image or a file, and the policy model reads text alone: leave it out, or set llm.api_base to a model that takes it","type":"invalid_request_error","param":"messages","code":"text_only_model"}}"#);
    assert!(policy.is_unasked());
}

/// Makes a harness that checks its policy model ten times per second, and the model's server, which accepts nothing by
/// itself.
async fn with_listener(mut set_up: SetUp) -> (Harness, TcpListener) {
    let deadlines = UpstreamConfig {
        connect: Span::millis(100),
        ..UpstreamConfig::default()
    };
    set_up.config.upstreams.insert(POLICY.into(), deadlines);
    let harness = Harness::with(set_up).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let endpoint = Endpoint::new(&url, None, "base").unwrap();
    harness.serving.set_policy(Some(endpoint));
    (harness, listener)
}

#[tokio::test]
async fn a_trainer_that_hangs_is_passed_over_until_it_answers_again() {
    let (mut harness, hung) = with_listener(SetUp::default()).await;
    // The system accepts the connection for it, and it says nothing.
    for _ in 0..2 {
        assert_eq!(harness.chat("", CHAT, "x").await.body(), CHAT);
    }
    assert!(harness.serving.is_silent());
    let seen = harness.refused(&get("/readyz", "")).await;
    assert_eq!(seen.status(), 200, "another answers in its place");
    harness.tasks.spawn(async move {
        while let Ok((mut stream, _)) = hung.accept().await {
            let mut asked = [0; 4 << 10];
            if stream.read(&mut asked).await.is_ok_and(|n| n > 0) {
                stream.write_all(says("policy").as_bytes()).await.ok();
            }
        }
    });
    while harness.serving.is_silent() {
        tokio::task::yield_now().await;
    }
    let seen = harness.refused(&post_chat(CHAT)).await;
    assert_eq!(seen.text(), completion("policy"));
}

#[tokio::test]
async fn what_waits_for_a_trainer_that_hangs_is_told_to_come_again_and_its_stream_is_cut() {
    let (harness, hung) = with_listener(SetUp::without_llm()).await;
    let mut client = harness.sent(&post_chat(CHAT)).await;
    let (mut stream, _) = hung.accept().await.unwrap();
    let mut asked = [0; 4 << 10];
    assert_ne!(stream.read(&mut asked).await.unwrap(), 0);
    stream.write_all(begun("Par").as_bytes()).await.unwrap();
    client.until("Par").await;
    let waits = harness.refused(&post_chat(CHAT)).await;
    assert_eq!(waits.retry(), (503, Some("5")));
    let ready = harness.refused(&get("/readyz", "")).await;
    assert_eq!(ready.status(), 503);
    has(ready.text(), ["does not answer"]);
    assert_eq!(client.read().await.content(), (&*delta("Par"), false));
}

/// Its adapter has learned one of the wishes. Any other model needs it in the prompt.
#[tokio::test]
async fn a_line_is_left_out_only_where_weights_answer_that_do_without() {
    let wishes = ("_default/WISHES.md", "- Be brief.\n- In French.\n");
    let (mut harness, mut policy) = with_policy(SetUp::taught(&[wishes])).await;
    let agent = AgentId::default_agent();
    let brief = harness.library.wishes(&agent)[0].id();
    harness.library.set_untold("a1", [brief]);
    let tells = |body: &Value| {
        let body = body.to_string();
        ["Be brief.", "In French."].map(|wish| body.contains(wish))
    };
    harness.serving.set(&agent, Some("a1"));
    let body = talk(&harness, &mut policy, &["one"]).await;
    assert_eq!(tells(&body), [false, true]);
    harness.serving.withdraw("a1");
    let body = talk(&harness, &mut policy, &["one", "x", "two"]).await;
    assert_eq!(tells(&body), [true, true], "the base in its place");
    harness.serving.set(&agent, Some("a1"));
    harness.serving.set_policy(None);
    let exchange = harness.talk("", &["other"]).await;
    assert_eq!(tells(&exchange.json()), [true, true], "the fall-back");
    let told = harness.turns(3, |turn| turn.served.wish_ids.len()).await;
    assert_eq!(told, [1, 2, 2]);
}
