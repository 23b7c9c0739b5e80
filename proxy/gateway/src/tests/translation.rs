//! Tests of callers and upstreams with different APIs.

use metaclaw_dialects::Api;
use metaclaw_test_kit::has;
use metaclaw_turns::StreamEnd;
use tokio_util::task::TaskTracker;

use super::harness::{
    BRIEF, CHAT, CHATS, Client, DONE, Harness, NO_ROUTE, STREAM, SetUp, Upstream, chunk,
    completion, delta, json_reply, post, post_chat, reply, says, streamed,
};
use crate::{Endpoint, Failure, Provider, UpstreamConfig};

const MESSAGES: &str = r#"{"model":"m","max_tokens":50,"system":"Be kind.","messages":[{"role":"user","content":"What is the capital of France?"}]}"#;
const SAID: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[{"type":"text","text":"Paris"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":9,"output_tokens":2}}"#;

fn anthropic() -> UpstreamConfig {
    UpstreamConfig {
        dialect: Provider::Anthropic,
        keys: vec!["sk-ant".into()],
        ..UpstreamConfig::default()
    }
}

fn speaks(api: Api) -> UpstreamConfig {
    UpstreamConfig {
        speaks: Some(vec![api]),
        ..UpstreamConfig::default()
    }
}

async fn ask_messages(harness: &Harness) -> Client {
    let headers = "x-api-key: own\r\nanthropic-version: 2023-06-01\r\n";
    let request = post("/v1/messages?beta=true", headers, MESSAGES);
    harness.sent(&request).await
}

/// Checks that a client gets a message that says this.
async fn hears(mut client: Client, text: &str) {
    let answer = client.read().await.json();
    assert_eq!(answer["content"][0]["text"], text);
    assert_eq!(answer["type"], "message");
    assert_eq!(answer["stop_reason"], "end_turn");
}

#[tokio::test]
async fn a_chat_goes_to_an_upstream_that_speaks_messages_and_its_answer_comes_back_as_one() {
    let mut harness = Harness::before(anthropic()).await;
    // Half of a surrogate pair, as clients cut emojis, is no reason to refuse.
    let chat = CHAT
        .replace(r#""stream":true,"#, "")
        .replace("France?", r"France? \ud83d");
    let request = post(CHATS, "accept-encoding: gzip\r\n", &chat);
    let (exchange, seen) = harness.exchange(&request, &json_reply(SAID)).await;
    assert_eq!(exchange.path(), "/v1/messages");
    for (name, sent) in [
        ("x-api-key", "sk-ant"),
        ("anthropic-version", "2023-06-01"),
        ("accept-encoding", "identity"),
        ("content-length", &exchange.body.len().to_string()),
    ] {
        assert_eq!(exchange.header(name), Some(sent), "{name}");
    }
    let asked = exchange.json();
    assert!(asked["max_tokens"].is_u64(), "{asked}");
    let answer = seen.json();
    assert_eq!(answer["choices"][0]["message"]["content"], "Paris");
    assert_eq!(answer["usage"]["prompt_tokens"], 9);
    assert!(seen.is_whole);
    let turn = &harness.log.wait(1).await[0];
    assert_eq!(turn.reply.as_ref().unwrap().text(), "Paris");
    assert_eq!(turn.meta.end, StreamEnd::Complete);
    assert_eq!(turn.meta.usage.unwrap().completion_tokens, 2);
}

/// `SAID` as events.
fn said_in_events() -> Vec<String> {
    [
        r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":9,"output_tokens":1}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Par"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"is"}}"#,
        r#"{"type":"content_block_stop","index":0}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":2}}"#,
        r#"{"type":"message_stop"}"#,
    ]
    .map(|data| {
        let name = data.split('"').nth(3).unwrap();
        format!("event: {name}\ndata: {data}\n\n")
    })
    .to_vec()
}

#[tokio::test]
async fn a_stream_is_put_in_other_words_as_it_comes() {
    let mut harness = Harness::before(anthropic()).await;
    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    exchange.send(STREAM).await;
    let events = said_in_events();
    for event in &events[..3] {
        // Half an event is not enough yet.
        let (first, rest) = event.split_at(event.len() / 2);
        exchange.send(&chunk(first)).await;
        exchange.send(&chunk(rest)).await;
    }
    client.until(r#""Par""#).await;
    exchange.end(&events[3..].concat()).await;
    let seen = client.read().await;
    assert!(seen.is_whole && seen.text().ends_with(DONE), "{seen:?}");
    assert!(!seen.text().contains("message_start"));
    assert_eq!(seen.header("content-length"), None);
    let turn = &harness.log.wait(1).await[0];
    assert_eq!(turn.reply.as_ref().unwrap().text(), "Paris");
    assert_eq!(turn.meta.end, StreamEnd::Complete);
    assert_eq!(turn.meta.reply_id.as_deref(), Some("msg_1"));
}

#[tokio::test]
async fn a_cut_stays_a_cut_in_other_words() {
    let mut harness = Harness::before(anthropic()).await;
    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    let some = said_in_events()[..3].concat();
    exchange.send(&format!("{STREAM}{}", chunk(&some))).await;
    client.until(r#""Par""#).await;
    drop(exchange);
    let seen = client.read().await;
    assert!(
        !seen.is_whole && !seen.text().contains("[DONE]"),
        "{seen:?}"
    );
    assert_eq!(harness.log.wait(1).await[0].meta.end, StreamEnd::Cut);

    let (mut client, mut exchange) = harness.ask(&post_chat(CHAT)).await;
    exchange.send(&json_reply(SAID)[..150]).await;
    drop(exchange);
    let seen = client.read().await;
    assert_eq!(seen.status(), 502);
    has(seen.text(), ["it broke off"]);
}

#[tokio::test]
async fn an_error_is_said_in_the_callers_words_with_its_status_and_its_wait() {
    let mut harness = Harness::before(anthropic()).await;
    let body = r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}"#;
    let limited = reply("429 No", "retry-after: 7\r\n", body);
    let (_, seen) = harness.exchange(&post_chat(CHAT), &limited).await;
    assert_eq!(seen.retry(), (429, Some("7")));
    assert_eq!(seen.refusal().1, "slow down");
    assert!(
        seen.is_whole && seen.json().get("type").is_none(),
        "{seen:?}"
    );
}

#[tokio::test]
async fn what_cannot_be_said_is_refused_by_field() {
    let mut harness = Harness::before(anthropic()).await;
    let with = |field: &str| post_chat(&CHAT.replace(r#""stream":true"#, field));
    let seen = harness.refused(&with(r#""n":2"#)).await;
    assert_eq!(seen.status(), 400);
    let error = &seen.json()["error"];
    assert_eq!([&error["param"], &error["code"]], ["n", "not_translatable"]);
    let seen = harness.refused(&with(r#""temperature":1e999"#)).await;
    assert_eq!(seen.status(), 400);
    has(seen.text(), ["a number"]);
    assert!(harness.upstream.is_unasked());
}

#[tokio::test]
async fn a_chat_cannot_go_to_an_upstream_that_speaks_responses_alone() {
    let mut harness = Harness::before(speaks(Api::Responses)).await;
    let seen = harness.refused(&post_chat(CHAT)).await;
    assert_eq!(seen.status(), 404);
    insta::assert_snapshot!(seen.text(), @r#"{"error":{"message":"upstream llm does not speak this API (/v1/chat/completions), and it cannot be put in the words of those that it speaks: let the agent speak one of them, or, if the upstream speaks more, say so in upstreams.llm.speaks","type":"invalid_request_error","param":null,"code":"api_not_spoken"}}"#);
    assert!(harness.upstream.is_unasked());
}

#[tokio::test]
async fn messages_go_to_an_upstream_that_speaks_chat_alone() {
    let mut harness = Harness::before(speaks(Api::Chat)).await;
    let client = ask_messages(&harness).await;
    let exchange = harness.upstream.answer(&says("Paris")).await;
    assert_eq!(exchange.path(), CHATS);
    // The caller's own key is sent in the header of OpenAI's servers.
    assert_eq!(exchange.header("authorization"), Some("Bearer own"));
    assert_eq!(exchange.json()["messages"][0]["role"], "system");
    hears(client, "Paris").await;
    let turn = &harness.log.wait(1).await[0];
    assert_eq!(turn.reply.as_ref().unwrap().text(), "Paris");
}

#[tokio::test]
async fn an_upstream_that_nobody_described_is_asked_in_the_callers_words_first() {
    let mut harness = Harness::start().await;
    let client = ask_messages(&harness).await;
    let exchange = harness.upstream.answer(NO_ROUTE).await;
    assert_eq!(exchange.path(), "/v1/messages?beta=true");
    assert_eq!(exchange.body(), MESSAGES);
    let exchange = harness.upstream.answer(&says("Paris")).await;
    assert_eq!(exchange.path(), CHATS);
    hears(client, "Paris").await;
    // From now on this happens at once.
    let client = ask_messages(&harness).await;
    let exchange = harness.upstream.answer(&says("Paris")).await;
    assert_eq!(exchange.path(), CHATS);
    hears(client, "Paris").await;
}

#[tokio::test]
async fn a_route_that_was_no_guess_is_asked_for_once_and_a_missing_model_is_no_missing_route() {
    let mut harness = Harness::start().await;
    let missing = reply("404 Not Found", "", "{}");
    let (_, seen) = harness.exchange(&post_chat(CHAT), &missing).await;
    assert_eq!(seen.status(), 404);
    let body = r#"{"type":"error","error":{"type":"not_found_error","message":"model: m"}}"#;
    let mut client = ask_messages(&harness).await;
    harness.upstream.answer(&reply("404 No", "", body)).await;
    assert_eq!(client.read().await.text(), body);
    assert!(harness.upstream.is_unasked());
}

async fn with_policy() -> (Harness, Upstream) {
    let set_up = SetUp {
        lessons: vec![BRIEF],
        ..SetUp::without_llm()
    };
    let harness = Harness::with(set_up).await;
    let policy = harness.policy(Endpoint::with_system_append).await;
    (harness, policy)
}

const CALL: &str = r#"<think>ls it is</think><tool_call>\n{\"name\": \"exec\", \"arguments\": {\"command\": \"ls\"}}\n</tool_call>"#;
const WITH_TOOL: &str = r#"{"model":"m","messages":[{"role":"user","content":"List the files."}],"tools":[{"type":"function","function":{"name":"exec","parameters":{}}}]}"#;

#[tokio::test]
async fn calls_that_the_policy_model_writes_as_text_become_calls() {
    let (harness, mut policy) = with_policy().await;
    let mut client = harness.sent(&post_chat(WITH_TOOL)).await;
    policy.answer(&says(CALL)).await;
    let choice = &client.read().await.json()["choices"][0];
    let message = &choice["message"];
    assert_eq!(message["tool_calls"][0]["function"]["name"], "exec");
    assert_eq!(message["reasoning_content"], "ls it is");
    assert_eq!(choice["finish_reason"], "tool_calls");

    let in_stream = WITH_TOOL.replacen('{', r#"{"stream":true,"#, 1);
    let mut client = harness.sent(&post_chat(&in_stream)).await;
    let (first, rest) = CALL.split_at(30);
    let first = chunk(&delta(first));
    let rest = streamed(&format!("{}{DONE}", delta(rest)));
    policy
        .answer(&rest.replacen(STREAM, &format!("{STREAM}{first}"), 1))
        .await;
    let seen = client.read().await;
    assert!(seen.is_whole && seen.text().ends_with(DONE), "{seen:?}");
    has(seen.text(), [r#""tool_calls""#]);
    assert!(!seen.text().contains("<tool_call>") && !seen.text().contains("<think>"));
    // The log has what the model said.
    for turn in harness.log.wait(2).await {
        has(turn.reply.unwrap().text(), ["<tool_call>"]);
    }
}

#[tokio::test]
async fn messages_are_answered_by_the_policy_model_with_its_lessons() {
    let (harness, mut policy) = with_policy().await;
    let client = ask_messages(&harness).await;
    let exchange = policy.answer(&says("Paris")).await;
    assert_eq!(exchange.path(), CHATS);
    assert_eq!(exchange.header("x-api-key"), None);
    assert_eq!(exchange.json()["model"], "base");
    has(exchange.body(), ["Be brief."]);
    hears(client, "Paris").await;
    let mut client = ask_messages(&harness).await;
    let long = r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#;
    policy.answer(&reply("400 No", "", long)).await;
    let seen = client.read().await;
    assert_eq!(
        (seen.status(), &seen.json()["type"]),
        (400, &"error".into())
    );
    let without_system = MESSAGES.replace(r#""system":"Be kind.","#, "");
    let request = post("/v1/messages", "", &without_system);
    let _client = harness.sent(&request).await;
    has(policy.next().await.body(), ["Be brief."]);
}

#[tokio::test]
async fn other_upstreams_keep_their_text_unless_configured() {
    for tool_calls_in_text in [false, true] {
        let mut harness = Harness::before(UpstreamConfig {
            tool_calls_in_text,
            ..UpstreamConfig::default()
        })
        .await;
        let (_, seen) = harness.exchange(&post_chat(WITH_TOOL), &says(CALL)).await;
        assert_eq!(seen.text() != completion(CALL), tool_calls_in_text);
        let calls = &seen.json()["choices"][0]["message"]["tool_calls"];
        assert_eq!(calls.is_array(), tool_calls_in_text);
    }
}

/// Makes a gateway with an upstream for chat completions, and Anthropic behind it.
async fn with_claude(fail_over: &[Failure]) -> (Harness, Upstream) {
    let claude = Upstream::start(&TaskTracker::new()).await;
    let mut set_up = SetUp::before(speaks(Api::Chat));
    let second = set_up.with_second(&claude, fail_over);
    *second = UpstreamConfig {
        url: format!("http://{}", claude.address),
        ..anthropic()
    };
    (Harness::with(set_up).await, claude)
}

#[tokio::test]
async fn routes_beside_the_chats_go_where_their_api_is_spoken() {
    let (mut harness, mut claude) = with_claude(&[]).await;
    let count = post("/v1/messages/count_tokens", "", MESSAGES);
    let mut client = harness.sent(&count).await;
    let counted = r#"{"input_tokens":9}"#;
    let exchange = claude.answer(&json_reply(counted)).await;
    assert_eq!(exchange.path(), "/v1/messages/count_tokens");
    assert_eq!(exchange.header("x-api-key"), Some("sk-ant"));
    assert_eq!(client.read().await.text(), counted);
    let embeddings = post("/v1/embeddings", "", "{}");
    let (exchange, _) = harness.exchange(&embeddings, &json_reply("{}")).await;
    assert_eq!(exchange.path(), "/v1/embeddings");
}

#[tokio::test]
async fn an_error_that_came_with_status_200_is_failed_over_where_the_reply_is_translated() {
    let (mut harness, mut claude) = with_claude(&[Failure::RateLimit]).await;
    let limited = json_reply(r#"{"error":{"code":429,"message":"slow down"}}"#);
    let mut client = ask_messages(&harness).await;
    harness.upstream.answer(&limited).await;
    claude.answer(&json_reply(SAID)).await;
    assert_eq!(client.read().await.text(), SAID);

    // In the caller's own API the reply passes unread.
    let without_stream = post_chat(&CHAT.replace(r#""stream":true,"#, ""));
    let (_, seen) = harness.exchange(&without_stream, &limited).await;
    assert_eq!(seen.status(), 200);
    assert!(claude.is_unasked());
}

#[tokio::test]
async fn anthropics_own_chat_completions_take_its_key_as_openai_does() {
    let mut harness = Harness::before(UpstreamConfig {
        speaks: Some(vec![Api::Chat, Api::Messages]),
        ..anthropic()
    })
    .await;
    let exchange = harness.chat("", CHAT, "x").await;
    assert_eq!(exchange.header("authorization"), Some("Bearer sk-ant"));
    assert_eq!(exchange.header("x-api-key"), None);
    assert_eq!(exchange.body(), CHAT);
}
