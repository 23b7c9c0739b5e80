//! Tests of `max_context_tokens`: what a long prompt is sent without.

use metaclaw_test_kit::has;

use super::harness::{BRIEF, Harness, SetUp, post, says};

async fn harness(max_context_tokens: usize) -> Harness {
    let mut set_up = SetUp::taught(&[BRIEF]);
    set_up.config.max_context_tokens = max_context_tokens;
    Harness::with(set_up).await
}

fn chat() -> String {
    let long = "word ".repeat(400);
    format!(
        r#"{{"model":"m","messages":[{{"role":"system","content":"S"}},{{"role":"user","content":"one {long}"}},{{"role":"assistant","content":null,"tool_calls":[{{"id":"c1","type":"function","function":{{"name":"look","arguments":"{{}}"}}}}]}},{{"role":"tool","tool_call_id":"c1","content":"found {long}"}},{{"role":"assistant","content":"done"}},{{"role":"user","content":"caf\u00e9?"}}]}}"#
    )
}

#[tokio::test]
async fn a_long_prompt_is_sent_without_its_oldest_messages_and_logged_whole() {
    let mut harness = harness(500).await;
    let body = chat();
    let exchange = harness.chat("", &body, "x").await;
    let sent = exchange.body();
    let end = r#"},{"role":"user","content":"caf\u00e9?"}]}"#;
    assert!(sent.ends_with(end), "{sent}");
    assert!(!sent.contains("one word") && !sent.contains("c1"), "{sent}");
    has(sent, ["Be brief."]);
    let turn = &harness.log.wait(1).await[0];
    assert_eq!(turn.request.messages.len(), 6);
    assert!(turn.request.messages[1].text().starts_with("one word"));
    assert_eq!(harness.metrics.counts().trimmed_messages, 4);
}

#[tokio::test]
async fn a_prompt_that_fits_or_that_has_no_limit_is_sent_as_it_is() {
    for max_context_tokens in [0, 5_000] {
        let mut harness = harness(max_context_tokens).await;
        let exchange = harness.chat("", &chat(), "x").await;
        assert!(exchange.body().contains("one word"));
        assert_eq!(harness.metrics.counts().trimmed_messages, 0);
    }
}

#[tokio::test]
async fn the_other_apis_are_cut_in_their_own_words() {
    let long = "word ".repeat(400);
    let mut harness = harness(200).await;
    let messages = format!(
        r#"{{"model":"m","max_tokens":9,"messages":[{{"role":"user","content":"one {long}"}},{{"role":"assistant","content":"ok"}},{{"role":"user","content":"two"}}]}}"#
    );
    let input = format!(
        r#"{{"model":"m","input":[{{"role":"user","content":"one {long}"}},{{"type":"function_call","call_id":"c","name":"look","arguments":"{{}}"}},{{"type":"function_call_output","call_id":"c","output":"x"}},{{"role":"user","content":"two"}}]}}"#
    );
    let user = r#"[{"role":"user","content":"two"}]"#;
    for (path, body, kept) in [
        ("/v1/messages", messages, "messages"),
        ("/v1/responses", input, "input"),
    ] {
        let request = post(path, "", &body);
        let (exchange, _) = harness.exchange(&request, &says("x")).await;
        has(exchange.body(), [format!("\"{kept}\":{user}")]);
    }
}
