//! A collector at the other end.

use axum::{Json, Router, extract::State, http::HeaderMap as Headers, routing::post};
use serde_json::json;
use tokio::{net::TcpListener, sync::mpsc, task::JoinSet};
use tracing_subscriber::{Layer, filter::filter_fn, layer::SubscriberExt};

use super::{span::Parent, *};

const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

type Received = mpsc::Sender<(Headers, Value)>;

async fn collect(State(received): State<Received>, headers: Headers, Json(body): Json<Value>) {
    received.send((headers, body)).await.unwrap();
}

/// A collector; its address, and what it gets.
async fn collector(tasks: &mut JoinSet<()>) -> (String, mpsc::Receiver<(Headers, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/", listener.local_addr().unwrap());
    let (sender, received) = mpsc::channel(16);
    let routes = Router::new()
        .route("/v1/traces", post(collect))
        .with_state(sender);
    tasks.spawn(async move { axum::serve(listener, routes).await.unwrap() });
    (base, received)
}

/// The line of a turn, as the gateway says it.
fn say(traceparent: Option<&str>, end: &str) {
    tracing::info!(
        target: "metaclaw::turn",
        api = "chat", agent = %"main", session = %"s", upstream = "llm", model = "big",
        adapter = None::<&str>, status = 200_u16, end = %end, first_byte_ms = Some(40_u64),
        total_ms = 900_u64, n_bytes = 1_234_u64, prompt_tokens = 9_u64,
        started_ms = 1_760_000_000_000_u64, traceparent, "turn"
    );
}

#[tokio::test]
async fn a_turn_arrives_at_the_collector_as_a_span_of_its_clients_trace() {
    let mut tasks = JoinSet::new();
    let (base, mut received) = collector(&mut tasks).await;
    let environment = Environment::of([
        ("OTEL_EXPORTER_OTLP_ENDPOINT", base.as_str()),
        (
            "OTEL_EXPORTER_OTLP_HEADERS",
            "authorization=Bearer x, x-scope=me",
        ),
        ("OTEL_SERVICE_NAME", "proxy-1"),
    ]);
    let (turns, exporter) = from(&environment).unwrap().unwrap();
    let subscriber =
        tracing_subscriber::registry().with(turns.with_filter(filter_fn(Turns::wants)));
    tracing::subscriber::with_default(subscriber, || {
        say(Some(SAMPLED), "Complete");
        tracing::info!("not a turn");
        say(Some(&SAMPLED.replace("-01", "-00")), "Complete");
        say(None, "Cut");
    });
    // The subscriber is gone: it ends when all is sent.
    exporter.run(CancellationToken::new()).await;

    let (headers, body) = received.recv().await.unwrap();
    assert_eq!(headers["authorization"], "Bearer x");
    let resource = &body["resourceSpans"][0];
    let name = &resource["resource"]["attributes"][0]["value"]["stringValue"];
    assert_eq!(name, "proxy-1");
    let mut spans = resource["scopeSpans"][0]["spans"].clone();
    let spans = spans.as_array_mut().unwrap();
    assert_eq!(spans.len(), 2, "one trace is not kept");
    assert_ne!(spans[1]["traceId"], spans[0]["traceId"]);
    assert_eq!(spans[1]["status"]["code"], 2);
    assert!(spans[1].get("parentSpanId").is_none());
    assert_eq!(spans[0]["spanId"].as_str().unwrap().len(), 16);
    spans[0]["spanId"] = "".into();
    let attribute = |(key, value): (&str, Value)| json!({"key": key, "value": value});
    let text = |text: &str| json!({"stringValue": text});
    let attributes = [
        ("metaclaw.agent", text("main")),
        ("gen_ai.conversation.id", text("s")),
        ("gen_ai.operation.name", text("chat")),
        ("gen_ai.provider.name", text("llm")),
        ("gen_ai.request.model", text("big")),
        ("http.response.status_code", json!({"intValue": "200"})),
        ("metaclaw.turn.end", text("Complete")),
        ("http.response.body.size", json!({"intValue": "1234"})),
        ("gen_ai.usage.input_tokens", json!({"intValue": "9"})),
    ];
    let expected = json!({
        "traceId": "4bf92f3577b34da6a3ce929d0e0e4736",
        "parentSpanId": "00f067aa0ba902b7",
        "spanId": "",
        "name": "chat big",
        "kind": 2,
        "startTimeUnixNano": "1760000000000000000",
        "endTimeUnixNano": "1760000000900000000",
        "attributes": attributes.map(attribute),
        "events": [{"name": "first byte", "timeUnixNano": "1760000000040000000"}],
        "status": {"code": 1},
    });
    assert_eq!(spans[0], expected);
}

#[test]
fn a_parent_is_read_as_w3c_writes_it() {
    let parent = Parent::read(SAMPLED).unwrap();
    assert_eq!(parent.trace, "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(
        (parent.span.as_str(), parent.is_sampled),
        ("00f067aa0ba902b7", true)
    );
    assert!(
        Parent::read(&SAMPLED.replacen("00", "cc", 1)).is_some(),
        "a later version"
    );
    assert!(Parent::read(&format!("{}-more", SAMPLED.replacen("00", "cc", 1))).is_some());
    for bad in [
        "",
        "00-1-2-01",
        &SAMPLED.to_uppercase(),
        &format!("{SAMPLED}-more"),
        &SAMPLED.replacen("00", "ff", 1),
    ] {
        assert_eq!(Parent::read(bad), None, "{bad}");
    }
    let nothing = format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32));
    assert_eq!(Parent::read(&nothing), None);
}

#[tokio::test]
async fn what_cannot_be_used_is_named_and_nothing_is_sent_unasked() {
    let of = |name: &'static str, value: &'static str| from(&Environment::of([(name, value)]));
    assert!(of("HOME", "/h").unwrap().is_none());
    let error = of("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317").unwrap_err();
    insta::assert_snapshot!(error, @r#"OTEL_EXPORTER_OTLP_ENDPOINT "collector:4317" is no http address, as in http://127.0.0.1:4318"#);
    let (_, exporter) = of("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://h/t")
        .unwrap()
        .unwrap();
    assert_eq!(exporter.url(), "http://h/t");
}
