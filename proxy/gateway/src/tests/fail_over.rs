//! Tests of fail-over: which upstreams are tried, when, and what the agent sees.

use tokio_util::task::TaskTracker;

use super::harness::{
    CHAT, Client, Exchange, Harness, SetUp, Upstream, completion, json_reply, post, post_chat,
};
use crate::{Api, Failure, Secret};

/// Makes a harness with a second upstream, which is tried after `llm` for the failures in `fail_over`.
async fn with_second(fail_over: &[Failure], keys: &[&str]) -> (Harness, Upstream) {
    let second = Upstream::start(&TaskTracker::new()).await;
    let mut set_up = SetUp::default();
    let upstreams = &mut set_up.config.upstreams;
    let url = format!("http://{}/v1", second.address);
    upstreams.entry("second".into()).or_default().url = url;
    let llm = upstreams.entry("llm".into()).or_default();
    llm.keys = keys.iter().map(|key| Secret::from(*key)).collect();
    set_up.config.routing.order = vec!["llm".into(), "second".into()];
    set_up.config.routing.fail_over = fail_over.to_vec();
    (Harness::with(set_up).await, second)
}

fn error(status: u16, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} No\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
    )
}

async fn ask(harness: &Harness) -> Client {
    harness.sent(&post_chat(CHAT)).await
}

/// Answers the next request at an upstream.
async fn answer(upstream: &mut Upstream, reply: &str) -> Exchange {
    let mut exchange = upstream.next().await;
    exchange.send(reply.as_bytes()).await;
    exchange
}

fn key(exchange: &Exchange) -> String {
    exchange.header("authorization").unwrap()
}

#[tokio::test]
async fn a_failure_goes_to_the_next_upstream_only_where_its_class_is_named() {
    let (mut harness, mut second) = with_second(&[Failure::Overloaded], &[]).await;
    let mut client = ask(&harness).await;
    answer(&mut harness.upstream, &error(503, "", "later")).await;
    let exchange = answer(&mut second, &json_reply(&completion("Paris"))).await;
    assert_eq!(exchange.body(), CHAT);
    assert_eq!(client.read().await.text(), completion("Paris"));
    assert_eq!(harness.log.wait(1).await[0].served.upstream, "second");

    let mut client = ask(&harness).await;
    answer(&mut harness.upstream, &error(500, "x-own: 1\r\n", "broken")).await;
    let seen = client.read().await;
    assert_eq!((seen.status(), seen.text()), (500, "broken"));
    assert_eq!(seen.header("x-own").as_deref(), Some("1"));
    assert!(second.is_unasked());
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_reply_is_a_failure_too() {
    let (mut harness, mut second) = with_second(&[Failure::Unreachable], &[]).await;
    let mut client = ask(&harness).await;
    drop(harness.upstream.next().await);
    answer(&mut second, &json_reply(&completion("Paris"))).await;
    assert_eq!(client.read().await.text(), completion("Paris"));
}

#[tokio::test]
async fn where_all_fail_the_last_answer_of_an_upstream_arrives_byte_for_byte() {
    let classes = [Failure::RateLimit, Failure::Unreachable];
    let (mut harness, mut second) = with_second(&classes, &[]).await;
    let long = format!(
        "{{ \"error\" : {{\"message\":\"{}\"}} }}",
        "slow ".repeat(50_000)
    );
    let mut client = ask(&harness).await;
    answer(
        &mut harness.upstream,
        &error(429, "retry-after: 7\r\n", &long),
    )
    .await;
    // The second one does not even answer, so the first one's reply is more useful for the agent.
    drop(second.next().await);
    let seen = client.read().await;
    assert_eq!((seen.status(), seen.text()), (429, long.as_str()));
    assert_eq!(seen.header("retry-after").as_deref(), Some("7"));
    assert!(seen.is_whole);
}

#[tokio::test]
async fn a_key_that_is_refused_rests_and_the_next_one_is_shown() {
    let (mut harness, mut second) = with_second(&[Failure::RateLimit], &["a", "b"]).await;
    let mut client = ask(&harness).await;
    let wait = error(429, "retry-after: 60\r\n", "{}");
    let first = answer(&mut harness.upstream, &wait).await;
    let other = answer(&mut harness.upstream, &json_reply(&completion("x"))).await;
    assert_eq!(
        (key(&first), key(&other)),
        ("Bearer a".into(), "Bearer b".into())
    );
    client.read().await;
    for _ in 0..2 {
        let mut client = ask(&harness).await;
        let reply = json_reply(&completion("x"));
        assert_eq!(
            key(&answer(&mut harness.upstream, &reply).await),
            "Bearer b"
        );
        client.read().await;
    }
    // Both were refused, so the next upstream is used, and at once while they pause.
    let mut client = ask(&harness).await;
    answer(&mut harness.upstream, &wait).await;
    answer(&mut second, &json_reply(&completion("x"))).await;
    client.read().await;
    let mut client = ask(&harness).await;
    answer(&mut second, &json_reply(&completion("x"))).await;
    assert_eq!(client.read().await.status(), 200);
    assert!(harness.upstream.is_unasked());
}

#[tokio::test]
async fn without_fail_over_keys_still_take_turns_and_no_request_is_asked_twice() {
    let (mut harness, mut second) = with_second(&[], &["a", "b"]).await;
    let quota = r#"{"error":{"code":"insufficient_quota","message":"no credit"}}"#;
    let mut shown = Vec::new();
    for reply in [
        error(429, "", quota),
        error(401, "", ""),
        error(429, "", quota),
    ] {
        let mut client = ask(&harness).await;
        let exchange = answer(&mut harness.upstream, &reply).await;
        shown.push(key(&exchange));
        assert!(client.read().await.status() >= 400);
    }
    // The third one has less to wait, a minute instead of hours.
    assert_eq!(shown, ["Bearer a", "Bearer b", "Bearer b"]);
    assert!(second.is_unasked() && harness.upstream.is_unasked());
}

#[tokio::test]
async fn an_error_that_breaks_off_arrives_as_far_as_it_came() {
    let (mut harness, mut second) = with_second(&[Failure::Overloaded], &[]).await;
    let mut client = ask(&harness).await;
    let reply = "HTTP/1.1 500 No\r\ncontent-length: 9\r\n\r\nbro";
    drop(answer(&mut harness.upstream, reply).await);
    let seen = client.read().await;
    assert_eq!(
        (seen.status(), seen.text(), seen.is_whole),
        (500, "bro", false)
    );
    assert!(second.is_unasked());
}

/// Sends a request with the caller's own key. The first upstream cannot answer, and the next one does.
async fn shown_to_both(harness: &mut Harness, second: &mut Upstream) -> [Option<String>; 2] {
    let mut client = harness.client().await;
    let headers = "authorization: Bearer theirs\r\ncookie: a=b\r\nx-goog-api-key: k\r\nx-amz-security-token: t\r\nopenai-organization: o\r\nx-own: 1\r\n";
    let request = post("/v1/chat/completions", headers, CHAT);
    client.send(&request).await;
    let first = answer(&mut harness.upstream, &error(503, "", "later")).await;
    let next = answer(second, &json_reply(&completion("Paris"))).await;
    assert_eq!(client.read().await.status(), 200);
    for name in [
        "cookie",
        "x-goog-api-key",
        "x-amz-security-token",
        "openai-organization",
    ] {
        assert!(
            first.header(name).is_some(),
            "{name} is meant for the first"
        );
        assert_eq!(next.header(name), None, "{name} is not the second's");
    }
    assert_eq!(next.header("x-own").as_deref(), Some("1"));
    [first, next].map(|exchange| exchange.header("authorization"))
}

#[tokio::test]
async fn where_callers_show_a_key_of_ours_nothing_that_they_show_goes_up() {
    let mut set_up = SetUp::default();
    set_up.config.proxy.api_key = Some(Secret::from("ours"));
    let mut harness = Harness::with(set_up).await;
    let headers = "authorization: Bearer ours\r\ncookie: a=b\r\nx-auth-token: t\r\n";
    let exchange = harness.chat(headers, CHAT, "x").await;
    for name in ["authorization", "cookie", "x-auth-token"] {
        assert_eq!(exchange.header(name), None);
    }
}

#[tokio::test]
async fn what_the_caller_shows_is_shown_to_the_first_upstream_alone() {
    let (mut harness, mut second) = with_second(&[Failure::Overloaded], &[]).await;
    let [first, next] = shown_to_both(&mut harness, &mut second).await;
    assert_eq!(first.as_deref(), Some("Bearer theirs"));
    assert_eq!(next, None, "it is another's");
    // A key of ours at the first upstream does not send the caller's key to the second.
    let (mut harness, mut second) = with_second(&[Failure::Overloaded], &["ours"]).await;
    let [first, next] = shown_to_both(&mut harness, &mut second).await;
    assert_eq!((first.as_deref(), next), (Some("Bearer ours"), None));
}

#[tokio::test]
async fn what_the_caller_shows_goes_on_to_the_same_server_and_to_whoever_can_be_asked_first() {
    let mut set_up = SetUp::default();
    let routing = &mut set_up.config.routing;
    routing.order = ["mail", "llm", "again"].map(Into::into).to_vec();
    routing.fail_over = vec![Failure::Overloaded];
    let first = Upstream::start(&TaskTracker::new()).await;
    let upstreams = &mut set_up.config.upstreams;
    let url = format!("http://{}/v1", first.address);
    for (name, model) in [("llm", "big"), ("again", "small")] {
        let upstream = upstreams.entry(name.into()).or_default();
        (upstream.url, upstream.model) = (url.clone(), Some(model.into()));
    }
    let mail = upstreams.entry("mail".into()).or_default();
    (mail.url, mail.speaks) = ("http://127.0.0.1:9".into(), Some(vec![Api::Responses]));
    set_up.no_llm = true;
    let mut harness = Harness::with(set_up).await;
    harness.upstream = first;
    let mut client = harness.client().await;
    let headers = "authorization: Bearer theirs\r\n";
    client
        .send(&post("/v1/chat/completions", headers, CHAT))
        .await;
    for reply in [error(503, "", "later"), json_reply("{}")] {
        let exchange = answer(&mut harness.upstream, &reply).await;
        assert_eq!(key(&exchange), "Bearer theirs");
    }
    assert_eq!(client.read().await.status(), 200);
}

#[tokio::test]
async fn a_model_that_is_not_for_us_takes_no_key_away() {
    let (mut harness, mut second) = with_second(&[Failure::Auth], &["a"]).await;
    let refused = r#"{"error":{"message":"This model is not available in your region."}}"#;
    for _ in 0..2 {
        let mut client = ask(&harness).await;
        answer(&mut harness.upstream, &error(403, "", refused)).await;
        assert_eq!(client.read().await.text(), refused);
    }
    // A 403 without a reason pauses the key, and its upstream is skipped.
    let mut client = ask(&harness).await;
    answer(&mut harness.upstream, &error(403, "", "{}")).await;
    answer(&mut second, &json_reply(&completion("x"))).await;
    client.read().await;
    let mut client = ask(&harness).await;
    answer(&mut second, &json_reply(&completion("x"))).await;
    assert_eq!(client.read().await.status(), 200);
    assert!(harness.upstream.is_unasked());
}
