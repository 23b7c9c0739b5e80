//! Tests of fail-over: which upstreams are tried, when, and what the agent sees.

use tokio_util::task::TaskTracker;

use super::harness::{
    CHAT, CHATS, Client, Exchange, Harness, SetUp, Upstream, completion, json_reply, post,
    post_chat, reply, says,
};
use crate::{Api, Failure};

/// Makes a harness with a second upstream, which is tried after `llm` for the failures in `fail_over`.
async fn with_second(fail_over: &[Failure], keys: &[&str]) -> (Harness, Upstream) {
    let second = Upstream::start(&TaskTracker::new()).await;
    let mut set_up = SetUp::default();
    set_up.with_second(&second, fail_over);
    set_up.llm().keys = keys.iter().map(|key| (*key).into()).collect();
    (Harness::with(set_up).await, second)
}

fn error(status: u16, headers: &str, body: &str) -> String {
    reply(&format!("{status} No"), headers, body)
}

async fn ask(harness: &Harness) -> Client {
    harness.sent(&post_chat(CHAT)).await
}

fn key(exchange: &Exchange) -> &str {
    exchange.header("authorization").unwrap()
}

#[tokio::test]
async fn a_failure_goes_to_the_next_upstream_only_where_its_class_is_named() {
    let (mut harness, mut second) = with_second(&[Failure::Overloaded], &[]).await;
    let mut client = ask(&harness).await;
    harness.upstream.answer(&error(503, "", "later")).await;
    let exchange = second.answer(&says("Paris")).await;
    assert_eq!(exchange.body(), CHAT);
    assert_eq!(client.read().await.text(), completion("Paris"));
    assert_eq!(harness.log.wait(1).await[0].served.upstream, "second");

    let broken = error(500, "x-own: 1\r\n", "broken");
    let (_, seen) = harness.exchange(&post_chat(CHAT), &broken).await;
    assert_eq!((seen.status(), seen.text()), (500, "broken"));
    assert_eq!(seen.header("x-own"), Some("1"));
    // An error that breaks off arrives as far as it came.
    let mut client = ask(&harness).await;
    let broken_off = "HTTP/1.1 500 No\r\ncontent-length: 9\r\n\r\nbro";
    drop(harness.upstream.answer(broken_off).await);
    let seen = client.read().await;
    assert_eq!((seen.status(), seen.content()), (500, ("bro", false)));
    assert!(second.is_unasked());
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_reply_is_a_failure_too() {
    let (mut harness, mut second) = with_second(&[Failure::Unreachable], &[]).await;
    let mut client = ask(&harness).await;
    drop(harness.upstream.next().await);
    second.answer(&says("Paris")).await;
    assert_eq!(client.read().await.text(), completion("Paris"));
}

#[tokio::test]
async fn where_all_fail_the_last_answer_of_an_upstream_arrives_byte_for_byte() {
    let classes = [Failure::RateLimit, Failure::Unreachable];
    let (mut harness, mut second) = with_second(&classes, &[]).await;
    let slow = "slow ".repeat(50_000);
    let long = format!("{{ \"error\" : {{\"message\":\"{slow}\"}} }}");
    let mut client = ask(&harness).await;
    let limited = error(429, "retry-after: 7\r\n", &long);
    harness.upstream.answer(&limited).await;
    // The second one does not even answer, so the first one's reply is more useful for the agent.
    drop(second.next().await);
    let seen = client.read().await;
    assert_eq!(seen.retry(), (429, Some("7")));
    assert_eq!(seen.content(), (&*long, true));
}

#[tokio::test]
async fn a_key_that_is_refused_rests_and_the_next_one_is_shown() {
    let (mut harness, mut second) = with_second(&[Failure::RateLimit], &["a", "b"]).await;
    let wait = error(429, "retry-after: 60\r\n", "{}");
    let mut client = ask(&harness).await;
    let first = harness.upstream.answer(&wait).await;
    let other = harness.upstream.answer(&says("x")).await;
    assert_eq!([key(&first), key(&other)], ["Bearer a", "Bearer b"]);
    client.read().await;
    for _ in 0..2 {
        let (exchange, _) = harness.exchange(&post_chat(CHAT), &says("x")).await;
        assert_eq!(key(&exchange), "Bearer b");
    }
    // Both were refused, so the next upstream is used, and at once while they pause.
    let mut client = ask(&harness).await;
    harness.upstream.answer(&wait).await;
    second.answer(&says("x")).await;
    client.read().await;
    let mut client = ask(&harness).await;
    second.answer(&says("x")).await;
    assert_eq!(client.read().await.status(), 200);
    assert!(harness.upstream.is_unasked());
}

#[tokio::test]
async fn without_fail_over_keys_still_take_turns_and_no_request_is_asked_twice() {
    let (mut harness, mut second) = with_second(&[], &["a", "b"]).await;
    let quota = r#"{"error":{"code":"insufficient_quota","message":"no credit"}}"#;
    // The third one has less to wait, a minute instead of hours.
    for (status, body, shown) in [
        (429, quota, "Bearer a"),
        (401, "", "Bearer b"),
        (429, quota, "Bearer b"),
    ] {
        let refused = error(status, "", body);
        let (exchange, seen) = harness.exchange(&post_chat(CHAT), &refused).await;
        assert_eq!((key(&exchange), seen.status()), (shown, status));
    }
    assert!(second.is_unasked() && harness.upstream.is_unasked());
}

/// Sends a request with the caller's own key. The first upstream cannot answer, and the next one does. Returns the key
/// that each of them gets.
async fn shown_to_both(own: &[&str]) -> [Option<String>; 2] {
    let (mut harness, mut second) = with_second(&[Failure::Overloaded], own).await;
    let headers = "authorization: Bearer theirs\r\ncookie: a=b\r\nx-goog-api-key: k\r\nx-amz-security-token: t\r\nopenai-organization: o\r\nx-own: 1\r\n";
    let mut client = harness.sent(&post(CHATS, headers, CHAT)).await;
    let first = harness.upstream.answer(&error(503, "", "later")).await;
    let next = second.answer(&says("Paris")).await;
    assert_eq!(client.read().await.status(), 200);
    for name in [
        "cookie",
        "x-goog-api-key",
        "x-amz-security-token",
        "openai-organization",
    ] {
        assert!(first.header(name).is_some(), "{name} is the first's");
        assert_eq!(next.header(name), None, "{name} is not the second's");
    }
    assert_eq!(next.header("x-own"), Some("1"));
    [first, next].map(|exchange| exchange.header("authorization").map(str::to_owned))
}

#[tokio::test]
async fn where_callers_show_a_key_of_ours_nothing_that_they_show_goes_up() {
    let mut harness = Harness::with(SetUp::with_key("ours")).await;
    let headers = "authorization: Bearer ours\r\ncookie: a=b\r\nx-auth-token: t\r\n";
    let exchange = harness.chat(headers, CHAT, "x").await;
    for name in ["authorization", "cookie", "x-auth-token"] {
        assert_eq!(exchange.header(name), None);
    }
}

#[tokio::test]
async fn what_the_caller_shows_is_shown_to_the_first_upstream_alone() {
    let theirs = Some("Bearer theirs".to_owned());
    assert_eq!(shown_to_both(&[]).await, [theirs, None]);
    // A key of ours at the first upstream does not send the caller's key to the second.
    let ours = Some("Bearer ours".to_owned());
    assert_eq!(shown_to_both(&["ours"]).await, [ours, None]);
}

#[tokio::test]
async fn what_the_caller_shows_goes_on_to_the_same_server_and_to_whoever_can_be_asked_first() {
    let mut set_up = SetUp::without_llm();
    let routing = &mut set_up.config.routing;
    routing.order = ["mail", "llm", "again"].map(Into::into).to_vec();
    routing.fail_over = vec![Failure::Overloaded];
    let mut first = Upstream::start(&TaskTracker::new()).await;
    let upstreams = &mut set_up.config.upstreams;
    for (name, model) in [("llm", "big"), ("again", "small")] {
        let upstream = upstreams.entry(name.into()).or_default();
        (upstream.url, upstream.model) = (first.url(), Some(model.into()));
    }
    let mail = upstreams.entry("mail".into()).or_default();
    (mail.url, mail.speaks) = ("http://127.0.0.1:9".into(), Some(vec![Api::Responses]));
    let harness = Harness::with(set_up).await;
    let request = post(CHATS, "authorization: Bearer theirs\r\n", CHAT);
    let mut client = harness.sent(&request).await;
    for reply in [error(503, "", "later"), json_reply("{}")] {
        assert_eq!(key(&first.answer(&reply).await), "Bearer theirs");
    }
    assert_eq!(client.read().await.status(), 200);
}

#[tokio::test]
async fn a_model_that_is_not_for_us_takes_no_key_away() {
    let (mut harness, mut second) = with_second(&[Failure::Auth], &["a"]).await;
    let refused = r#"{"error":{"message":"This model is not available in your region."}}"#;
    for _ in 0..2 {
        let not_here = error(403, "", refused);
        let (_, seen) = harness.exchange(&post_chat(CHAT), &not_here).await;
        assert_eq!(seen.text(), refused);
    }
    // A 403 without a reason pauses the key, and its upstream is skipped.
    let mut client = ask(&harness).await;
    harness.upstream.answer(&error(403, "", "{}")).await;
    second.answer(&says("x")).await;
    client.read().await;
    let mut client = ask(&harness).await;
    second.answer(&says("x")).await;
    assert_eq!(client.read().await.status(), 200);
    assert!(harness.upstream.is_unasked());
}
