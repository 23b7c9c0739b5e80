//! Tests with a collector.

use metaclaw_test_kit::{Reply, Server};
use serde_json::json;
use tracing_subscriber::layer::SubscriberExt as _;

use super::*;

const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn request(traceparent: Option<&str>, agent: &str) {
    let mut headers = HeaderMap::new();
    if let Some(parent) = traceparent {
        headers.insert("traceparent", parent.parse().unwrap());
    }
    let span = tracing::info_span!("request", api = "chat", agent = tracing::field::Empty);
    set_parent(&span, &headers);
    span.record("agent", agent);
    let _entered = span.entered();
    tracing::info!(target: "metaclaw::turn", end = "Complete", prompt_tokens = 9_u64, "turn");
    tracing::info!("something with a word of the conversation");
    tracing::info_span!("another").in_scope(|| {});
}

#[test]
fn a_request_arrives_at_the_collector_as_a_span_of_its_clients_trace() {
    let collector = Server::new(|_| Reply::json("{}"));
    let base = format!("{}/", collector.url());
    let environment = Environment::from_pairs([
        ("OTEL_EXPORTER_OTLP_ENDPOINT", base.as_str()),
        (
            "OTEL_EXPORTER_OTLP_HEADERS",
            "authorization=Bearer x, x-scope=me",
        ),
        ("OTEL_SERVICE_NAME", "proxy-1"),
    ]);
    let (layer, traces) = layer(&environment).unwrap();
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::with_default(subscriber, || {
        request(Some(SAMPLED), "main");
        request(Some(&SAMPLED.replace("-01", "-00")), "unheard");
        request(None, "alone");
    });
    traces.end();

    let got = &collector.asked_of("/v1/traces")[0];
    assert_eq!(got.header("authorization"), Some("Bearer x"));
    assert_eq!(got.header("content-type"), Some("application/json"));
    let body = got.json();
    let resource = &body["resourceSpans"][0];
    let attributes = resource["resource"]["attributes"].as_array().unwrap();
    let name = json!({"key": "service.name", "value": {"stringValue": "proxy-1"}});
    assert!(attributes.contains(&name), "{attributes:?}");
    let spans = resource["scopeSpans"][0]["spans"].as_array().unwrap();
    assert_eq!(spans.len(), 2, "one trace is not kept: {spans:#?}");
    assert_eq!(spans[0]["name"], "request");
    assert_eq!(spans[0]["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(spans[0]["parentSpanId"], "00f067aa0ba902b7");
    let text = |key: &str, text: &str| json!({"key": key, "value": {"stringValue": text}});
    let attributes = spans[0]["attributes"].as_array().unwrap();
    assert!(
        attributes.contains(&text("agent", "main")),
        "{attributes:?}"
    );
    let events = spans[0]["events"].as_array().unwrap();
    assert_eq!(events.len(), 1, "{events:?}");
    let attributes = events[0]["attributes"].as_array().unwrap();
    assert!(
        attributes.contains(&text("end", "Complete")),
        "{attributes:?}"
    );
    assert_ne!(spans[1]["traceId"], spans[0]["traceId"]);
}

#[test]
fn what_cannot_be_used_is_named_and_nothing_is_sent_unasked() {
    let of = |name: &'static str, value: &'static str| {
        endpoint(&Environment::from_pairs([(name, value)]))
    };
    assert!(of("HOME", "/h").unwrap().is_none());
    let error = of("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317").unwrap_err();
    insta::assert_snapshot!(error, @r#"OTEL_EXPORTER_OTLP_ENDPOINT "collector:4317" is no http address, as in http://127.0.0.1:4318"#);
    let named = of("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://h/t").unwrap();
    assert_eq!(named.unwrap().as_str(), "http://h/t");
    let environment = Environment::from_pairs([("OTEL_EXPORTER_OTLP_HEADERS", "nothing")]);
    assert!(headers(&environment).is_err());
}
