//! Tests of callers and upstreams with different APIs.

use metaclaw_turns::StreamEnd;

use super::harness::{
    CHAT, Client, Exchange, Harness, STREAM, SetUp, Upstream, chunk, completion, delta, json_reply,
    post, post_chat,
};
use crate::{Api, Endpoint, Failure, Provider, Secret, UpstreamConfig};

const MESSAGES: &str = r#"{"model":"m","max_tokens":50,"system":"Be kind.","messages":[{"role":"user","content":"What is the capital of France?"}]}"#;
const SAID: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[{"type":"text","text":"Paris"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":9,"output_tokens":2}}"#;

async fn before(llm: UpstreamConfig) -> Harness {
    let mut set_up = SetUp::default();
    set_up.config.upstreams.insert("llm".into(), llm);
    Harness::with(set_up).await
}

fn anthropic() -> UpstreamConfig {
    UpstreamConfig {
        dialect: Provider::Anthropic,
        keys: vec![Secret::from("sk-ant")],
        ..UpstreamConfig::default()
    }
}

fn path(exchange: &Exchange) -> &str {
    exchange.head.split(' ').nth(1).unwrap()
}

async fn ask_messages(harness: &Harness) -> Client {
    let mut client = harness.client().await;
    let headers = "x-api-key: own\r\nanthropic-version: 2023-06-01\r\n";
    client
        .send(&post("/v1/messages?beta=true", headers, MESSAGES))
        .await;
    client
}

fn value(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap()
}

#[tokio::test]
async fn a_chat_goes_to_an_upstream_that_speaks_messages_and_its_answer_comes_back_as_one() {
    let mut harness = before(anthropic()).await;
    // Half of a surrogate pair, as clients cut emojis, is no reason to refuse.
    let chat = CHAT.replace(r#""stream":true,"#, "");
    let chat = chat.replace("France?", r"France? \ud83d");
    let request = post("/v1/chat/completions", "accept-encoding: gzip\r\n", &chat);
    let (exchange, seen) = harness.exchange(&request, &json_reply(SAID)).await;
    assert_eq!(path(&exchange), "/v1/messages");
    for (name, sent) in [
        ("x-api-key", "sk-ant"),
        ("anthropic-version", "2023-06-01"),
        ("accept-encoding", "identity"),
    ] {
        assert_eq!(exchange.header(name).as_deref(), Some(sent), "{name}");
    }
    let asked = value(exchange.body());
    assert!(asked["max_tokens"].is_u64(), "{asked}");
    let length: usize = exchange.header("content-length").unwrap().parse().unwrap();
    assert_eq!(length, exchange.body.len());
    let answer = value(seen.text());
    assert_eq!(answer["choices"][0]["message"]["content"], "Paris");
    assert_eq!(answer["usage"]["prompt_tokens"], 9);
    assert!(seen.is_whole);
    let turn = &harness.log.wait(1).await[0];
    assert_eq!(turn.reply.as_ref().unwrap().text(), "Paris");
    assert_eq!(
        (turn.meta.end, turn.meta.usage.unwrap().completion_tokens),
        (StreamEnd::Complete, 2)
    );
}

fn event(name: &str, data: &str) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

fn said_in_events() -> Vec<String> {
    vec![
        event(
            "message_start",
            r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":9,"output_tokens":1}}}"#,
        ),
        event(
            "content_block_start",
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        ),
        event(
            "content_block_delta",
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Par"}}"#,
        ),
        event(
            "content_block_delta",
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"is"}}"#,
        ),
        event(
            "content_block_stop",
            r#"{"type":"content_block_stop","index":0}"#,
        ),
        event(
            "message_delta",
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":2}}"#,
        ),
        event("message_stop", r#"{"type":"message_stop"}"#),
    ]
}

#[tokio::test]
async fn a_stream_is_put_in_other_words_as_it_comes() {
    let mut harness = before(anthropic()).await;
    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    exchange.send(STREAM.as_bytes()).await;
    let events = said_in_events();
    for event in &events[..3] {
        // Half an event is not enough yet.
        let (first, rest) = event.split_at(event.len() / 2);
        exchange.send(chunk(first).as_bytes()).await;
        exchange.send(chunk(rest).as_bytes()).await;
    }
    client.until(r#""Par""#).await;
    exchange
        .send(format!("{}0\r\n\r\n", chunk(&events[3..].concat())).as_bytes())
        .await;
    let seen = client.read().await;
    assert!(
        seen.is_whole && seen.text().ends_with("data: [DONE]\n\n"),
        "{}",
        seen.text()
    );
    assert!(!seen.text().contains("message_start") && seen.header("content-length").is_none());
    let turn = &harness.log.wait(1).await[0];
    assert_eq!(turn.reply.as_ref().unwrap().text(), "Paris");
    assert_eq!(turn.meta.end, StreamEnd::Complete);
    assert_eq!(turn.meta.reply_id.as_deref(), Some("msg_1"));
}

#[tokio::test]
async fn a_cut_stays_a_cut_in_other_words() {
    let mut harness = before(anthropic()).await;
    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    let some = said_in_events()[..3].concat();
    exchange
        .send(format!("{STREAM}{}", chunk(&some)).as_bytes())
        .await;
    client.until(r#""Par""#).await;
    drop(exchange);
    let seen = client.read().await;
    assert!(
        !seen.is_whole && !seen.text().contains("[DONE]"),
        "{}",
        seen.text()
    );
    assert_eq!(harness.log.wait(1).await[0].meta.end, StreamEnd::Cut);

    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    exchange.send(&json_reply(SAID).as_bytes()[..150]).await;
    drop(exchange);
    let seen = client.read().await;
    assert_eq!(seen.status(), 502);
    assert!(seen.text().contains("it broke off"), "{}", seen.text());
}

#[tokio::test]
async fn an_error_is_said_in_the_callers_words_with_its_status_and_its_wait() {
    let mut harness = before(anthropic()).await;
    let body = r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}"#;
    let reply = format!(
        "HTTP/1.1 429 No\r\nretry-after: 7\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let (_, seen) = harness.exchange(&post_chat(CHAT), &reply).await;
    assert_eq!(
        (seen.status(), seen.header("retry-after").as_deref()),
        (429, Some("7"))
    );
    assert_eq!(value(seen.text())["error"]["message"], "slow down");
    assert!(
        seen.is_whole && !seen.text().contains(r#""type":"error""#),
        "{}",
        seen.text()
    );
}

#[tokio::test]
async fn what_cannot_be_said_is_refused_by_field() {
    let mut harness = before(anthropic()).await;
    let twice = CHAT.replace(r#""stream":true"#, r#""n":2"#);
    let seen = harness.refused(&post_chat(&twice)).await;
    assert_eq!(seen.status(), 400);
    let error = &value(seen.text())["error"];
    assert_eq!(
        (&error["param"], &error["code"]),
        (&"n".into(), &"not_translatable".into())
    );
    let huge = CHAT.replace(r#""stream":true"#, r#""temperature":1e999"#);
    let seen = harness.refused(&post_chat(&huge)).await;
    assert!(
        seen.status() == 400 && seen.text().contains("a number"),
        "{}",
        seen.text()
    );
    assert!(harness.upstream.is_unasked());
}

#[tokio::test]
async fn a_chat_cannot_go_to_an_upstream_that_speaks_responses_alone() {
    let llm = UpstreamConfig {
        speaks: Some(vec![Api::Responses]),
        ..UpstreamConfig::default()
    };
    let mut harness = before(llm).await;
    let seen = harness.refused(&post_chat(CHAT)).await;
    assert_eq!(seen.status(), 404);
    insta::assert_snapshot!(seen.text(), @r#"{"error":{"message":"upstream llm does not speak this API (/v1/chat/completions), and it cannot be put in the words of those that it speaks: let the agent speak one of them, or, if the upstream speaks more, say so in upstreams.llm.speaks","type":"invalid_request_error","param":null,"code":"api_not_spoken"}}"#);
    assert!(harness.upstream.is_unasked());
}

#[tokio::test]
async fn messages_go_to_an_upstream_that_speaks_chat_alone() {
    let llm = UpstreamConfig {
        speaks: Some(vec![Api::Chat]),
        ..UpstreamConfig::default()
    };
    let mut harness = before(llm).await;
    let mut client = ask_messages(&harness).await;
    let mut exchange = harness.upstream.next().await;
    assert_eq!(path(&exchange), "/v1/chat/completions");
    // The caller's own key is sent in the header of OpenAI's servers.
    assert_eq!(
        exchange.header("authorization").as_deref(),
        Some("Bearer own")
    );
    let asked = value(exchange.body());
    assert_eq!(asked["messages"][0]["role"], "system");
    exchange.say("Paris").await;
    let answer = value(client.read().await.text());
    assert_eq!(answer["content"][0]["text"], "Paris");
    assert_eq!(
        (&answer["type"], &answer["stop_reason"]),
        (&"message".into(), &"end_turn".into())
    );
    assert_eq!(
        harness.log.wait(1).await[0].reply.as_ref().unwrap().text(),
        "Paris"
    );
}

const NO_ROUTE: &str = "HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 22\r\n\r\n{\"detail\":\"Not Found\"}";

#[tokio::test]
async fn an_upstream_that_nobody_described_is_asked_in_the_callers_words_first() {
    let mut harness = before(UpstreamConfig::default()).await;
    let mut client = ask_messages(&harness).await;
    let mut exchange = harness.upstream.next().await;
    assert_eq!(path(&exchange), "/v1/messages?beta=true");
    assert_eq!(exchange.body(), MESSAGES);
    exchange.send(NO_ROUTE.as_bytes()).await;
    let mut exchange = harness.upstream.next().await;
    assert_eq!(path(&exchange), "/v1/chat/completions");
    exchange.say("Paris").await;
    assert_eq!(
        value(client.read().await.text())["content"][0]["text"],
        "Paris"
    );
    // From now on this happens at once.
    let mut client = ask_messages(&harness).await;
    let mut exchange = harness.upstream.next().await;
    assert_eq!(path(&exchange), "/v1/chat/completions");
    exchange.say("Paris").await;
    assert_eq!(client.read().await.status(), 200);
}

#[tokio::test]
async fn a_route_that_was_no_guess_is_asked_for_once() {
    let mut harness = before(UpstreamConfig::default()).await;
    let missing = json_reply("{}").replace("200 OK", "404 Not Found");
    let (_, seen) = harness.exchange(&post_chat(CHAT), &missing).await;
    assert_eq!(seen.status(), 404);
    assert!(harness.upstream.is_unasked());
}

#[tokio::test]
async fn a_model_that_is_missing_is_no_missing_route() {
    let mut harness = before(UpstreamConfig::default()).await;
    let mut client = ask_messages(&harness).await;
    let body = r#"{"type":"error","error":{"type":"not_found_error","message":"model: m"}}"#;
    let reply = format!(
        "HTTP/1.1 404 No\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    harness.upstream.next().await.send(reply.as_bytes()).await;
    assert_eq!(client.read().await.text(), body);
    assert!(harness.upstream.is_unasked());
}

async fn with_policy() -> (Harness, Upstream) {
    let set_up = SetUp {
        no_llm: true,
        lessons: vec![("_default/WISHES.md", "- Be brief.\n")],
        ..SetUp::default()
    };
    let harness = Harness::with(set_up).await;
    let policy = Upstream::start(&harness.tasks).await;
    let url = format!("http://{}", policy.address);
    let endpoint = Endpoint::new(&url, None, "base").unwrap();
    harness
        .serving
        .set_policy(Some(endpoint.with_system_append()));
    (harness, policy)
}

const CALL: &str = r#"<think>ls it is</think><tool_call>\n{\"name\": \"exec\", \"arguments\": {\"command\": \"ls\"}}\n</tool_call>"#;
const WITH_TOOL: &str = r#"{"model":"m","messages":[{"role":"user","content":"List the files."}],"tools":[{"type":"function","function":{"name":"exec","parameters":{}}}]}"#;

#[tokio::test]
async fn calls_that_the_policy_model_writes_as_text_become_calls() {
    let (harness, mut policy) = with_policy().await;
    let mut client = harness.sent(&post_chat(WITH_TOOL)).await;
    let mut exchange = policy.next().await;
    exchange.say(CALL).await;
    let seen = client.read().await;
    let choice = &value(seen.text())["choices"][0];
    assert_eq!(
        choice["message"]["tool_calls"][0]["function"]["name"],
        "exec"
    );
    assert_eq!(choice["message"]["reasoning_content"], "ls it is");
    assert_eq!(choice["finish_reason"], "tool_calls");

    let mut client = harness
        .sent(&post_chat(
            &WITH_TOOL.replace(r#""tools""#, r#""stream":true,"tools""#),
        ))
        .await;
    let mut exchange = policy.next().await;
    let (first, rest) = CALL.split_at(30);
    let done = "data: [DONE]\n\n";
    let chunks = [delta(first), delta(rest), done.to_owned()]
        .map(|text| chunk(&text))
        .concat();
    exchange
        .send(format!("{STREAM}{chunks}0\r\n\r\n").as_bytes())
        .await;
    let seen = client.read().await;
    assert!(
        seen.is_whole && seen.text().ends_with(done),
        "{}",
        seen.text()
    );
    assert!(seen.text().contains(r#""tool_calls""#), "{}", seen.text());
    assert!(!seen.text().contains("<tool_call>") && !seen.text().contains("<think>"));
    // The log has what the model said.
    let turns = harness.log.wait(2).await;
    assert!(
        turns
            .iter()
            .all(|turn| turn.reply.as_ref().unwrap().text().contains("<tool_call>"))
    );
}

#[tokio::test]
async fn messages_are_answered_by_the_policy_model_with_its_lessons() {
    let (harness, mut policy) = with_policy().await;
    let mut client = ask_messages(&harness).await;
    let mut exchange = policy.next().await;
    assert_eq!(path(&exchange), "/v1/chat/completions");
    assert_eq!(exchange.header("x-api-key"), None);
    let asked = value(exchange.body());
    assert_eq!(asked["model"], "base");
    assert!(exchange.body().contains("Be brief."), "{asked}");
    exchange.say("Paris").await;
    assert_eq!(
        value(client.read().await.text())["content"][0]["text"],
        "Paris"
    );
    let mut client = ask_messages(&harness).await;
    let long = r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#;
    let reply = format!(
        "HTTP/1.1 400 No\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{long}",
        long.len()
    );
    policy.next().await.send(reply.as_bytes()).await;
    let seen = client.read().await;
    assert_eq!(
        (seen.status(), &value(seen.text())["type"]),
        (400, &"error".into())
    );
    let without_system = MESSAGES.replace(r#""system":"Be kind.","#, "");
    let _client = harness
        .sent(&post("/v1/messages", "", &without_system))
        .await;
    let exchange = policy.next().await;
    assert!(exchange.body().contains("Be brief."), "{}", exchange.body());
}

#[tokio::test]
async fn other_upstreams_keep_their_text_unless_configured() {
    let mut harness = Harness::start().await;
    let reply = json_reply(&completion(CALL));
    let (_, seen) = harness.exchange(&post_chat(WITH_TOOL), &reply).await;
    assert_eq!(seen.text(), completion(CALL));
    let llm = UpstreamConfig {
        tool_calls_in_text: true,
        ..UpstreamConfig::default()
    };
    let mut harness = before(llm).await;
    let (_, seen) = harness.exchange(&post_chat(WITH_TOOL), &reply).await;
    assert!(value(seen.text())["choices"][0]["message"]["tool_calls"].is_array());
}

#[tokio::test]
async fn routes_beside_the_chats_go_where_their_api_is_spoken() {
    let other = Upstream::start(&tokio_util::task::TaskTracker::new()).await;
    let mut set_up = SetUp::default();
    let claude = UpstreamConfig {
        url: format!("http://{}", other.address),
        ..anthropic()
    };
    set_up.config.upstreams.insert("claude".into(), claude);
    let llm = set_up.config.upstreams.entry("llm".into()).or_default();
    llm.speaks = Some(vec![Api::Chat]);
    set_up.config.routing.order = vec!["llm".into(), "claude".into()];
    let mut harness = Harness::with(set_up).await;
    let mut other = other;
    let mut client = harness
        .sent(&post("/v1/messages/count_tokens", "", MESSAGES))
        .await;
    let mut exchange = other.next().await;
    assert_eq!(path(&exchange), "/v1/messages/count_tokens");
    assert_eq!(exchange.header("x-api-key").as_deref(), Some("sk-ant"));
    exchange.answer(r#"{"input_tokens":9}"#).await;
    assert_eq!(client.read().await.text(), r#"{"input_tokens":9}"#);
    let (exchange, _) = harness
        .exchange(&post("/v1/embeddings", "", "{}"), &json_reply("{}"))
        .await;
    assert_eq!(path(&exchange), "/v1/embeddings");
}

#[tokio::test]
async fn an_error_that_came_with_status_200_is_failed_over_where_the_reply_is_translated() {
    let mut other = Upstream::start(&tokio_util::task::TaskTracker::new()).await;
    let mut set_up = SetUp::default();
    let claude = UpstreamConfig {
        url: format!("http://{}", other.address),
        ..anthropic()
    };
    set_up.config.upstreams.insert("claude".into(), claude);
    let llm = set_up.config.upstreams.entry("llm".into()).or_default();
    llm.speaks = Some(vec![Api::Chat]);
    set_up.config.routing.order = vec!["llm".into(), "claude".into()];
    set_up.config.routing.fail_over = vec![Failure::RateLimit];
    let mut harness = Harness::with(set_up).await;
    let limited = json_reply(r#"{"error":{"code":429,"message":"slow down"}}"#);

    let mut client = ask_messages(&harness).await;
    harness.upstream.next().await.send(limited.as_bytes()).await;
    other.next().await.answer(SAID).await;
    assert_eq!(client.read().await.text(), SAID);

    // In the caller's own API the reply passes unread.
    let without_stream = CHAT.replace(r#""stream":true,"#, "");
    let (_, seen) = harness
        .exchange(&post_chat(&without_stream), &limited)
        .await;
    assert_eq!(seen.status(), 200);
    assert!(other.is_unasked());
}

#[tokio::test]
async fn anthropics_own_chat_completions_take_its_key_as_openai_does() {
    let llm = UpstreamConfig {
        speaks: Some(vec![Api::Chat, Api::Messages]),
        ..anthropic()
    };
    let mut harness = before(llm).await;
    let exchange = harness.chat("", CHAT, "x").await;
    assert_eq!(
        exchange.header("authorization").as_deref(),
        Some("Bearer sk-ant")
    );
    assert_eq!(
        (exchange.header("x-api-key"), exchange.body()),
        (None, CHAT)
    );
}
