//! Tests of answers, of how connections end, and of the errors that callers get for it.

use std::sync::Once;

use metaclaw_test_kit::{Reply, Server, gone};

use super::*;

fn backend(url: Option<String>, timeout: Duration) -> RemoteBackend {
    backend_of(url, timeout, None)
}

fn backend_of(url: Option<String>, timeout: Duration, base_model: Option<&str>) -> RemoteBackend {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        rustls::crypto::ring::default_provider()
            .install_default()
            .unwrap();
    });
    let key = Some(ApiKey::new("sk-a-long-secret-7890"));
    RemoteBackend::new(RemoteConfig {
        client: reqwest::Client::builder()
            .tls_certs_only([])
            .build()
            .unwrap(),
        endpoint: Arc::new(move || {
            Some(Endpoint {
                url: url.clone()?,
                key: key.clone(),
            })
        }),
        timeout,
        base_model: base_model.map(str::to_owned),
    })
}

fn step() -> OptimStepRequest {
    serde_json::from_str(r#"{"session_id":"0123abcd"}"#).unwrap()
}

const LONG: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_run_is_of_the_model_of_the_settings_unless_the_caller_says_otherwise() {
    for (asked, sent) in [("", "org/model"), ("base", "base")] {
        let server = Server::scripted([Reply::json("{}")]);
        let request = CreateRequest {
            base_model: asked.to_owned(),
            ..CreateRequest::default()
        };
        let backend = backend_of(Some(server.url()), LONG, Some("org/model"));
        backend.create_run(request).await.unwrap_err();
        assert_eq!(server.asked()[0].json()["base_model"], sent);
    }
}

#[tokio::test]
async fn the_key_and_the_path_are_sent() {
    let server = Server::scripted([Reply::json(r#"{"status":"healthy"}"#)]);
    // A slash at the end and the version are left out.
    let url = format!("{}/v1/", server.url());
    let health = backend(Some(url), LONG).health().await.unwrap();
    assert_eq!(health.status, "healthy");
    let head = &server.asked()[0].head;
    assert!(head.starts_with("GET /v1/health HTTP/1.1\r\n"), "{head}");
    let header = "authorization: Bearer sk-a-long-secret-7890";
    assert!(head.contains(header), "{head}");
}

/// What a step comes to where it is answered so.
async fn failed(reply: Reply) -> BackendError {
    let server = Server::scripted([reply]);
    let backend = backend(Some(server.url()), LONG);
    backend.optim_step(step()).await.unwrap_err()
}

#[tokio::test]
async fn a_refusal_is_read_and_not_ambiguous() {
    let body = r#"{"error":{"message":"no run 0123abcd","type":"invalid_request_error","code":"run_not_found"}}"#;
    let error = failed(Reply::status(404, body)).await;
    assert!(!error.is_ambiguous() && !error.is_unreachable());
    assert!(error.is_unknown_run());
    assert!(error.to_string().contains("no run 0123abcd"), "{error}");
}

#[tokio::test]
async fn a_cut_connection_a_cut_answer_and_a_server_error_are_ambiguous() {
    let cut = Reply::json(r#"{"step": 1, "skipped": false}"#).cut(7);
    for reply in [Reply::hang_up(), cut] {
        let error = failed(reply).await;
        assert!(error.is_ambiguous(), "{error:?}");
    }
    let error = failed(Reply::status(500, "oops")).await;
    assert!(error.is_ambiguous());
    assert!(error.to_string().ends_with("oops"), "{error}");
}

#[tokio::test]
async fn silence_is_ambiguous_after_the_deadline() {
    let server = Server::scripted([Reply::silence()]);
    let error = backend(Some(server.url()), Duration::from_millis(50))
        .optim_step(step())
        .await
        .unwrap_err();
    assert!(matches!(error, BackendError::Timeout { .. }), "{error:?}");
    assert!(error.is_ambiguous());
}

#[tokio::test]
async fn nobody_there_is_unreachable_and_not_ambiguous() {
    for url in [Some(gone()), None] {
        let error = backend(url, LONG).optim_step(step()).await.unwrap_err();
        assert!(error.is_unreachable() && !error.is_ambiguous(), "{error:?}");
    }
}

#[test]
fn a_key_is_never_shown() {
    let key = ApiKey::new("sk-a-long-secret-7890");
    assert_eq!(format!("{key:?}"), "sk-…7890");
    assert_eq!(format!("{:?}", ApiKey::new("short")), "sk-…");
}

#[test]
fn a_reply_id_stays_one_segment() {
    assert_eq!(path_segment("chatcmpl-0a"), "chatcmpl-0a");
    assert_eq!(path_segment("../x y"), "%2E%2E%2Fx%20y");
}
