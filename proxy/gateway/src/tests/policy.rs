//! Tests of our own policy model: adapters that change during requests, and a server that may be unreachable.

use metaclaw_chat::{AgentId, Span};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::harness::{
    CHAT, Harness, STREAM, SetUp, Upstream, chunk, completion, conversation, delta, json_reply,
    post, post_chat,
};
use crate::{Endpoint, POLICY, Secret, UpstreamConfig};

/// Makes a harness with a policy server. The second value receives its requests.
async fn with_policy(set_up: SetUp) -> (Harness, Upstream) {
    let harness = Harness::with(set_up).await;
    let policy = Upstream::start(&harness.tasks).await;
    let url = format!("http://{}", policy.address);
    let endpoint = Endpoint::new(&url, Some(Secret::from("sk-trainer")), "base").unwrap();
    harness
        .serving
        .set_policy(Some(endpoint.with_system_append()));
    (harness, policy)
}

async fn ask(harness: &Harness, policy: &mut Upstream, body: &str) -> String {
    let mut client = harness.sent(&post_chat(body)).await;
    let mut exchange = policy.next().await;
    exchange.say("x").await;
    assert!(client.read().await.is_whole);
    exchange.body().to_owned()
}

fn model(body: &str) -> String {
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    body["model"].as_str().unwrap().to_owned()
}

/// Makes a harness with only the policy model.
async fn policy_alone() -> (Harness, Upstream) {
    let set_up = SetUp {
        no_llm: true,
        ..SetUp::default()
    };
    with_policy(set_up).await
}

#[tokio::test]
async fn the_policy_is_asked_with_its_key_its_adapter_and_the_lessons_it_appends_itself() {
    let set_up = SetUp {
        lessons: vec![("_default/WISHES.md", "- Be brief.\n")],
        ..SetUp::default()
    };
    let (mut harness, mut policy) = with_policy(set_up).await;
    let mut client = harness.sent(&post_chat(CHAT)).await;
    let mut exchange = policy.next().await;
    exchange.say("x").await;
    client.read().await;
    assert!(
        exchange
            .head
            .starts_with("POST /v1/chat/completions HTTP/1.1\r\n")
    );
    assert_eq!(
        exchange.header("authorization").as_deref(),
        Some("Bearer sk-trainer")
    );
    let body: serde_json::Value = serde_json::from_str(exchange.body()).unwrap();
    assert_eq!(body["model"], "base");
    assert!(
        body["metaclaw_system_append"]
            .as_str()
            .unwrap()
            .contains("Be brief.")
    );
    assert_eq!(body["messages"].as_array().unwrap().len(), 1);
    let turn = &harness.log.wait(1).await[0];
    assert_eq!(
        (
            turn.served.upstream.as_str(),
            turn.served.adapter.as_deref()
        ),
        ("policy", None)
    );
    assert!(harness.upstream.is_unasked());
}

#[tokio::test]
async fn what_a_request_leaves_to_the_server_is_drawn_as_configured_and_so_recorded() {
    let mut set_up = SetUp::default();
    set_up.config.serving.temperature = Some(0.3);
    set_up.config.serving.top_p = Some(1.0);
    let (harness, mut policy) = with_policy(set_up).await;
    let given = [
        (json!({}), (json!(0.3), json!(1.0))),
        (json!({"temperature": null}), (json!(0.3), json!(1.0))),
        (
            json!({"temperature": 0, "top_p": 0.9}),
            (json!(0), json!(0.9)),
        ),
    ];
    for (n, (own, expected)) in given.into_iter().enumerate() {
        let mut body =
            json!({"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]});
        body.as_object_mut()
            .unwrap()
            .extend(own.as_object().unwrap().clone());
        let asked: Value =
            serde_json::from_str(&ask(&harness, &mut policy, &body.to_string()).await).unwrap();
        let sampling = |body: &Value| (body["temperature"].as_f64(), body["top_p"].as_f64());
        let expected = (expected.0.as_f64(), expected.1.as_f64());
        assert_eq!(sampling(&asked), expected, "{own}");
        let turn = &harness.log.wait(n + 1).await[n];
        let params = Value::Object(turn.request.params.clone());
        assert_eq!(sampling(&params), expected, "{own}");
    }
}

#[tokio::test]
async fn no_other_upstream_is_asked_with_the_policy_models_sampling() {
    let mut set_up = SetUp::default();
    set_up.config.serving.temperature = Some(0.3);
    let mut harness = Harness::with(set_up).await;
    let mut client = harness.sent(&post_chat(CHAT)).await;
    let mut exchange = harness.upstream.next().await;
    exchange.say("x").await;
    client.read().await;
    assert_eq!(exchange.body(), CHAT);
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
    let mut exchange = policy.next().await;
    let begun = format!("{STREAM}{}", chunk(&delta("Par")));
    exchange.send(begun.as_bytes()).await;
    client.until("Par").await;
    let go_on = conversation(&["one", "x", "two"]);
    for (choice, model_asked) in [(None, "base"), (Some("good"), "good"), (None, "base")] {
        harness.serving.choose(&agent, choice);
        assert_eq!(
            model(&ask(&harness, &mut policy, &go_on).await),
            model_asked
        );
        assert!(
            harness
                .idle_adapters
                .lock()
                .unwrap()
                .iter()
                .all(|it| it != "ruined")
        );
    }
    let end = format!("{}0\r\n\r\n", chunk("data: [DONE]\n\n"));
    exchange.send(end.as_bytes()).await;
    let seen = client.read().await;
    assert!(
        seen.is_whole && seen.text().contains("Par"),
        "{}",
        seen.text()
    );
    let turns = harness.log.wait(4).await;
    let adapters: Vec<_> = turns
        .iter()
        .map(|it| it.served.adapter.as_deref())
        .collect();
    assert_eq!(adapters, [None, Some("good"), None, Some("ruined")]);
}

#[tokio::test]
async fn a_session_stays_on_its_adapter_and_the_last_one_out_unloads_it() {
    let mut set_up = SetUp::default();
    set_up.config.serving.pin_idle = metaclaw_chat::Span::millis(300);
    let (harness, mut policy) = with_policy(set_up).await;
    let agent = AgentId::default_agent();
    harness.serving.set(&agent, Some("a1"));
    assert_eq!(
        model(&ask(&harness, &mut policy, &conversation(&["one"])).await),
        "a1"
    );
    harness.serving.set(&agent, Some("a2"));
    assert_eq!(
        model(&ask(&harness, &mut policy, &conversation(&["one", "x", "two"])).await),
        "a1"
    );
    assert_eq!(
        model(&ask(&harness, &mut policy, &conversation(&["other"])).await),
        "a2"
    );
    assert!(harness.idle_adapters.lock().unwrap().is_empty());
    let adapters: Vec<_> = harness
        .log
        .wait(3)
        .await
        .into_iter()
        .map(|turn| turn.served.adapter)
        .collect();
    assert_eq!(
        adapters.iter().map(Option::as_deref).collect::<Vec<_>>(),
        [Some("a1"), Some("a1"), Some("a2")]
    );
    tokio::time::sleep(std::time::Duration::from_millis(350)).await;
    let after = conversation(&["one", "x", "two", "x", "three"]);
    assert_eq!(model(&ask(&harness, &mut policy, &after).await), "a2");
    assert_eq!(*harness.idle_adapters.lock().unwrap(), ["a1"]);
}

#[tokio::test]
async fn while_the_policy_is_down_the_fall_back_answers() {
    let (mut harness, policy) = with_policy(SetUp::default()).await;
    drop(policy);
    harness.serving.set_policy(None);
    let exchange = harness.chat("", CHAT, "x").await;
    assert_eq!(exchange.body(), CHAT);
    assert_eq!(harness.log.wait(1).await[0].served.upstream, "llm");
}

#[tokio::test]
async fn without_a_fall_back_the_caller_is_told_when_to_come_again() {
    let (harness, mut policy) = policy_alone().await;
    let mut client = harness.sent(&post_chat(CHAT)).await;
    let mut exchange = policy.next().await;
    // A running stream is cut, and the agent sees the cut.
    exchange
        .send(format!("{STREAM}{}", chunk(&delta("Par"))).as_bytes())
        .await;
    client.until("Par").await;
    drop(exchange);
    assert!(!client.read().await.is_whole);
    // A stream that has not begun, and all later ones, get a reply that asks to try again.
    let mut client = harness.sent(&post_chat(CHAT)).await;
    drop(policy.next().await);
    let seen = client.read().await;
    assert_eq!(
        (seen.status(), seen.header("retry-after").as_deref()),
        (503, Some("5"))
    );
    harness.serving.set_policy(None);
    let seen = harness.refused(&post_chat(CHAT)).await;
    assert_eq!(
        (seen.status(), seen.header("retry-after").as_deref()),
        (503, Some("5"))
    );
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
        let request =
            format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n");
        let seen = harness.refused(request.as_bytes()).await;
        assert_eq!(seen.status(), 404, "{method} {path}: {}", seen.text());
    }
    assert!(policy.is_unasked());
    let mut client = harness
        .sent(b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await;
    let mut exchange = policy.next().await;
    exchange.answer("{}").await;
    assert_eq!(client.read().await.text(), "{}");
}

#[tokio::test]
async fn a_session_is_not_idle_while_its_reply_is_under_way() {
    let mut set_up = SetUp::default();
    set_up.config.serving.pin_idle = metaclaw_chat::Span::millis(200);
    let (harness, mut policy) = with_policy(set_up).await;
    let agent = AgentId::default_agent();
    harness.serving.set(&agent, Some("a1"));
    let request = post("/v1/chat/completions", "x-session-id: s\r\n", CHAT);
    let mut long = harness.client().await;
    long.send(&request).await;
    let mut writing = policy.next().await;
    writing
        .send(format!("{STREAM}{}", chunk(&delta("Par"))).as_bytes())
        .await;
    long.until("Par").await;
    harness.serving.set(&agent, Some("a2"));
    tokio::time::sleep(std::time::Duration::from_millis(250)).await;
    let mut other = harness.client().await;
    other.send(&request).await;
    assert_eq!(model(policy.next().await.body()), "a1");
}

#[tokio::test]
async fn a_reply_of_the_policy_names_its_adapter_whatever_its_server_says() {
    let (harness, mut policy) = with_policy(SetUp::default()).await;
    let mut named = async |reply: &str| {
        let mut client = harness.sent(&post_chat(CHAT)).await;
        policy.next().await.send(reply.as_bytes()).await;
        client.read().await.header("x-metaclaw-adapter")
    };
    let agent = AgentId::default_agent();
    harness.serving.set(&agent, Some("main@5"));
    let reply = json_reply(&completion("x"));
    assert_eq!(named(&reply).await.as_deref(), Some("main@5"));
    let other = reply.replacen("\r\n", "\r\nx-metaclaw-adapter: other\r\n", 1);
    assert_eq!(named(&other).await.as_deref(), Some("main@5"));
    harness.serving.withdraw("main@5");
    assert_eq!(named(&reply).await, None, "the base");
}

const TOO_LONG: &str = r#"{ "error": {"message":"this model's context is 8192 tokens","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"} }"#;

fn bad_request(body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

#[tokio::test]
async fn a_prompt_that_is_too_long_for_the_policy_goes_to_the_fall_back() {
    let (mut harness, mut policy) = with_policy(SetUp::default()).await;
    let mut client = harness.sent(&post_chat(CHAT)).await;
    policy
        .next()
        .await
        .send(bad_request(TOO_LONG).as_bytes())
        .await;
    let mut exchange = harness.upstream.next().await;
    assert_eq!(exchange.body(), CHAT);
    exchange.say("x").await;
    assert_eq!(client.read().await.text(), completion("x"));
    assert_eq!(harness.log.wait(1).await[0].served.upstream, "llm");
    // Any other mistake is the caller's, and would be one at another upstream too.
    let mut client = harness.sent(&post_chat(CHAT)).await;
    policy.next().await.send(bad_request("{}").as_bytes()).await;
    assert_eq!(client.read().await.text(), "{}");
    assert!(harness.upstream.is_unasked());
}

/// Makes a refusal of a server that is used through an account.
fn refused(status: u16) -> String {
    let body = r#"{"error":{"message":"no","type":"server_error"}}"#;
    let length = body.len();
    format!(
        "HTTP/1.1 {status} No\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

#[tokio::test]
async fn what_an_account_is_refused_goes_to_the_fall_back_and_what_our_trainer_refuses_does_not() {
    for status in [429, 502, 503] {
        let (mut harness, mut policy) = with_policy(SetUp::default()).await;
        let mut client = harness.sent(&post_chat(CHAT)).await;
        policy.next().await.send(refused(status).as_bytes()).await;
        assert_eq!(client.read().await.status(), status);
        assert!(harness.upstream.is_unasked(), "{status}");

        let url = format!("http://{}", policy.address);
        let endpoint = Endpoint::new(&url, None, "base").unwrap();
        harness.serving.set_policy(Some(endpoint.by_account()));
        let mut client = harness.sent(&post_chat(CHAT)).await;
        policy.next().await.send(refused(status).as_bytes()).await;
        let mut exchange = harness.upstream.next().await;
        exchange.say("x").await;
        assert_eq!(client.read().await.text(), completion("x"), "{status}");
    }
}

#[tokio::test]
async fn without_a_fall_back_the_agent_hears_that_its_prompt_is_too_long() {
    let (harness, mut policy) = policy_alone().await;
    let mut client = harness.sent(&post_chat(CHAT)).await;
    policy
        .next()
        .await
        .send(bad_request(TOO_LONG).as_bytes())
        .await;
    let seen = client.read().await;
    assert_eq!((seen.status(), seen.text()), (400, TOO_LONG));
}

/// Makes the trainer's answer to a conversation or field that it does not support, by its code.
fn cannot(code: &str) -> String {
    format!(
        r#"{{"error":{{"message":"not here","type":"invalid_request_error","param":"messages","code":"{code}"}}}}"#
    )
}

#[tokio::test]
async fn what_the_policy_cannot_do_goes_to_the_fall_back_in_both_apis() {
    let (mut harness, mut policy) = with_policy(SetUp::default()).await;
    for code in [
        "template_refused",
        "unsupported_value",
        "unsupported_parameter",
        "unknown_parameter",
    ] {
        let mut client = harness.sent(&post_chat(CHAT)).await;
        let mut asked = policy.next().await;
        asked.send(bad_request(&cannot(code)).as_bytes()).await;
        let mut exchange = harness.upstream.next().await;
        assert_eq!(exchange.body(), CHAT, "{code}");
        exchange.say("x").await;
        assert_eq!(client.read().await.text(), completion("x"), "{code}");
    }
    let messages = r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}"#;
    let mut client = harness.sent(&post("/v1/messages", "", messages)).await;
    let mut asked = policy.next().await;
    let refused = bad_request(&cannot("template_refused"));
    asked.send(refused.as_bytes()).await;
    let mut exchange = harness.upstream.next().await;
    exchange.answer(r#"{"type":"message","content":[]}"#).await;
    assert_eq!(client.read().await.status(), 200);
}

#[tokio::test]
async fn without_a_fall_back_the_agent_hears_what_the_policy_cannot_do() {
    let (harness, mut policy) = policy_alone().await;
    let mut client = harness.sent(&post_chat(CHAT)).await;
    let body = cannot("template_refused");
    policy
        .next()
        .await
        .send(bad_request(&body).as_bytes())
        .await;
    let seen = client.read().await;
    assert_eq!((seen.status(), seen.text()), (400, &*body));
}

const IMAGE: &str = r#"{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}]}"#;

#[tokio::test]
async fn an_image_goes_to_the_fall_back_or_is_refused_in_words() {
    let (mut harness, mut policy) = with_policy(SetUp::default()).await;
    let exchange = harness.chat("", IMAGE, "a dot").await;
    assert_eq!(exchange.body(), IMAGE);
    assert!(policy.is_unasked());
    let (harness, mut policy) = policy_alone().await;
    let seen = harness.refused(&post_chat(IMAGE)).await;
    assert_eq!(seen.status(), 400);
    insta::assert_snapshot!(seen.text(), @r#"{"error":{"message":"this conversation holds an image or a file, and the policy model reads text alone: leave it out, or set llm.api_base to a model that takes it","type":"invalid_request_error","param":"messages","code":"text_only_model"}}"#);
    assert!(policy.is_unasked());
}

/// Makes a harness that checks its policy model ten times per second, and the model's server, which accepts nothing by
/// itself.
async fn with_listener(no_llm: bool) -> (Harness, TcpListener) {
    let mut set_up = SetUp {
        no_llm,
        ..SetUp::default()
    };
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
    let (mut harness, hung) = with_listener(false).await;
    // The system accepts the connection for it, and it says nothing.
    for _ in 0..2 {
        assert_eq!(harness.chat("", CHAT, "x").await.body(), CHAT);
    }
    assert!(harness.serving.is_silent());
    let ready = b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let seen = harness.refused(ready).await;
    assert_eq!(seen.status(), 200, "another answers in its place");
    harness.tasks.spawn(async move {
        while let Ok((mut stream, _)) = hung.accept().await {
            let mut asked = [0; 4 << 10];
            if stream.read(&mut asked).await.is_ok_and(|n| n > 0) {
                let reply = json_reply(&completion("policy"));
                stream.write_all(reply.as_bytes()).await.ok();
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
    let (harness, hung) = with_listener(true).await;
    let mut client = harness.sent(&post_chat(CHAT)).await;
    let (mut stream, _) = hung.accept().await.unwrap();
    let mut asked = [0; 4 << 10];
    assert_ne!(stream.read(&mut asked).await.unwrap(), 0);
    let begun = format!("{STREAM}{}", chunk(&delta("Par")));
    stream.write_all(begun.as_bytes()).await.unwrap();
    client.until("Par").await;
    let waits = harness.refused(&post_chat(CHAT)).await;
    assert_eq!(waits.status(), 503);
    assert_eq!(waits.header("retry-after").as_deref(), Some("5"));
    let ready = b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let told = harness.refused(ready).await;
    assert_eq!(told.status(), 503);
    assert!(told.text().contains("does not answer"), "{}", told.text());
    let seen = client.read().await;
    assert_eq!((seen.text(), seen.is_whole), (&*delta("Par"), false));
}

/// Its adapter has learned one of the wishes. Any other model needs it in the prompt.
#[tokio::test]
async fn a_line_is_left_out_only_where_weights_answer_that_do_without() {
    let set_up = SetUp {
        lessons: vec![("_default/WISHES.md", "- Be brief.\n- In French.\n")],
        ..SetUp::default()
    };
    let (mut harness, mut policy) = with_policy(set_up).await;
    let agent = AgentId::default_agent();
    let brief = harness.library.wishes(&agent)[0].id();
    harness.library.set_untold("a1", [brief]);
    let is_told = |body: &str| ["Be brief.", "In French."].map(|wish| body.contains(wish));
    harness.serving.set(&agent, Some("a1"));
    let body = ask(&harness, &mut policy, &conversation(&["one"])).await;
    assert_eq!(is_told(&body), [false, true]);
    harness.serving.withdraw("a1");
    let next = conversation(&["one", "x", "two"]);
    let body = ask(&harness, &mut policy, &next).await;
    assert_eq!(is_told(&body), [true, true], "the base in its place");
    harness.serving.set(&agent, Some("a1"));
    harness.serving.set_policy(None);
    let mut client = harness.sent(&post_chat(&conversation(&["other"]))).await;
    let mut exchange = harness.upstream.next().await;
    exchange.say("x").await;
    client.read().await;
    assert_eq!(is_told(exchange.body()), [true, true], "the fall-back");
    let told: Vec<usize> = harness
        .log
        .wait(3)
        .await
        .iter()
        .map(|turn| turn.served.wish_ids.len())
        .collect();
    assert_eq!(told, [1, 2, 2]);
}
