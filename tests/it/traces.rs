//! Tests that a turn of the real process arrives as a span at a collector.

use axum::{Json, Router, extract::State, routing::post};
use metaclaw_tests::{
    external,
    home::Home,
    upstream::{Play, Upstream},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::mpsc, task::JoinSet};

async fn collect(State(received): State<mpsc::Sender<Value>>, Json(body): Json<Value>) {
    received.send(body).await.unwrap();
}

#[tokio::test]
#[ignore = "needs a binary with the feature otel, cargo xtask test --all runs it"]
async fn a_turn_is_a_span_of_its_agents_trace() {
    let bin_dir = external::bin_dir();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let collector = format!("http://{}", listener.local_addr().unwrap());
    let (sender, mut received) = mpsc::channel(16);
    let routes = Router::new()
        .route("/v1/traces", post(collect))
        .with_state(sender);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { axum::serve(listener, routes).await.unwrap() });

    let upstream = Upstream::start(Play::Text("Noted.")).await;
    let config = format!(
        "mode: skills_only\nproxy: {{port: 0}}\nllm: {{api_base: '{}/v1'}}\n",
        upstream.base_url
    );
    let home = Home::new(&bin_dir, &config).with_env("OTEL_EXPORTER_OTLP_ENDPOINT", collector);
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

    let got = received.recv().await.unwrap();
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
