//! The recorded cases, through a whole proxy: in the form in which the upstream answers, whatever the caller
//! asked for, and with the status that the caller sees.

#[path = "../../../dialects/testdata/corpus.rs"]
mod recorded;

use recorded::{Answer, Case, cases, differs};

use super::harness::{Harness, post, reply};
use crate::{Provider, UpstreamConfig};

async fn before(case: &Case) -> Harness {
    let mut llm = UpstreamConfig {
        speaks: Some(vec![case.upstream]),
        ..UpstreamConfig::default()
    };
    if case.is_anthropic {
        llm.dialect = Provider::Anthropic;
    }
    Harness::before(llm).await
}

fn request(case: &Case) -> Vec<u8> {
    post(case.caller.path(), "", &case.request.to_string())
}

/// The answer on the wire.
fn answer(case: &Case, answer: &Answer) -> Vec<u8> {
    let body = answer.bytes(case.upstream);
    let kind = if answer.is_events() {
        "text/event-stream"
    } else {
        "application/json"
    };
    let head = reply("200 OK", "", &" ".repeat(body.len()));
    let head = head.trim_end().replace("application/json", kind);
    [head.as_bytes(), b"\r\n\r\n", &body].concat()
}

#[tokio::test]
async fn every_recorded_case_goes_through_the_proxy_as_it_says() {
    for (name, case) in cases() {
        let told = case.told(&name);
        let mut harness = before(&case).await;
        if let Some(words) = &case.refused {
            let seen = harness.refused(&request(&case)).await;
            assert_eq!(seen.status(), 400, "{told}");
            assert!(seen.text().contains(words), "{told}\n{}", seen.text());
        }
        for answer in &case.answers {
            let mut client = harness.sent(&request(&case)).await;
            let mut exchange = harness.upstream.next().await;
            let sent = exchange.json();
            let expected = case.sent.as_ref();
            let why = expected.and_then(|expected| differs(expected, &sent));
            assert_eq!(why, None, "{told}\n{sent:#}");
            exchange.send(&self::answer(&case, answer)).await;
            drop(exchange);
            let seen = client.read().await;
            let kind = seen.header("content-type").unwrap_or_default();
            let is_events = kind.starts_with("text/event-stream");
            let is_error = seen.status() >= 400;
            assert!(
                is_error || is_events == case.wants_stream(),
                "{told}\n{}",
                seen.head
            );
            let why = case.differs(seen.status(), &seen.body, is_events);
            assert_eq!(why, None, "{told}\n{}", seen.head);
        }
    }
}
