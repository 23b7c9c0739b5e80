//! Tests that a turn of the real process arrives as a span at a collector.

use metaclaw_test_kit::{Reply, Server};
use metaclaw_tests::{
    external,
    home::Home,
    upstream::{Play, Upstream},
};
use serde_json::json;

#[tokio::test]
#[ignore = "needs a binary with the feature otel, cargo xtask test --all runs it"]
async fn a_turn_is_a_span_of_its_agents_trace() {
    let bin_dir = external::bin_dir();
    let collector = Server::new(|_| Reply::json("{}"));
    let upstream = Upstream::start(Play::Text("Noted."));
    let config = format!(
        "mode: skills_only\nproxy: {{port: 0}}\nllm: {{api_base: '{}/v1'}}\n",
        upstream.base_url
    );
    let home =
        Home::new(&bin_dir, &config).with_env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url());
    let proxy = home.start().await.unwrap();
    let has_otel = !home.log().contains("without the feature otel");
    assert!(has_otel, "metaclaw was built without the feature otel");
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let asked = [json!({"role": "user", "content": "A secret."})];
    let body = json!({"model": "big", "stream": true, "messages": asked});
    let header = ("traceparent", format!("00-{trace}-00f067aa0ba902b7-01"));
    let client = proxy.client();
    let asked = client.post("/v1/chat/completions", &body);
    let reply = asked.header(header.0, header.1).send().await.unwrap();
    assert!(reply.text().await.unwrap().ends_with("[DONE]\n\n"));
    // Spans that were not sent yet are sent at the end.
    proxy.stop().await.unwrap();

    let got = collector.asked_of("/v1/traces")[0].json();
    let span = &got["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
    assert_eq!(span["traceId"], trace);
    assert_eq!(span["parentSpanId"], "00f067aa0ba902b7");
    assert_eq!(span["name"], "request");
    assert!(
        span["events"].to_string().contains("prompt_tokens"),
        "{span}"
    );
    assert!(!got.to_string().contains("secret"), "{got}");
}
