//! Tests with a raw TCP server, because they depend on how a connection ends.

use std::sync::Once;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

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

/// Serves one connection: reads the request's head, sends `reply`, closes. Returns the address and what was read.
async fn once(reply: &'static str) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/", listener.local_addr().unwrap());
    let read = async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut head = vec![0; 65536];
        let n = socket.read(&mut head).await.unwrap();
        socket.write_all(reply.as_bytes()).await.unwrap();
        String::from_utf8_lossy(&head[..n]).into_owned()
    };
    #[expect(clippy::disallowed_methods, reason = "the test awaits the handle")]
    let task = tokio::spawn(read);
    (url, task)
}

fn step() -> OptimStepRequest {
    serde_json::from_str(r#"{"session_id":"0123abcd"}"#).unwrap()
}

const LONG: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_run_is_of_the_model_of_the_settings_unless_the_caller_says_otherwise() {
    for (asked, sent) in [("", "org/model"), ("base", "base")] {
        let (url, seen) = once("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{}").await;
        let request = CreateRequest {
            base_model: asked.to_owned(),
            ..CreateRequest::default()
        };
        let backend = backend_of(Some(url), LONG, Some("org/model"));
        backend.create_run(request).await.unwrap_err();
        let seen = seen.await.unwrap();
        let base_model = format!(r#""base_model":"{sent}""#);
        assert!(seen.contains(&base_model), "{seen}");
    }
}

#[tokio::test]
async fn the_key_and_the_path_are_sent() {
    let (url, seen) =
        once("HTTP/1.1 200 OK\r\ncontent-length: 22\r\n\r\n{\"status\":\"healthy\"}  ").await;
    let health = backend(Some(url), LONG).health().await.unwrap();
    assert_eq!(health.status, "healthy");
    let head = seen.await.unwrap();
    assert!(head.starts_with("GET /v1/health HTTP/1.1\r\n"), "{head}");
    assert!(
        head.contains("authorization: Bearer sk-a-long-secret-7890"),
        "{head}"
    );
}

#[tokio::test]
async fn a_refusal_is_read_and_not_ambiguous() {
    let (url, _seen) = once("HTTP/1.1 404 Not Found\r\ncontent-length: 97\r\n\r\n{\"error\":{\"message\":\"no run 0123abcd\",\"type\":\"invalid_request_error\",\"code\":\"run_not_found\"}}    ").await;
    let error = backend(Some(url), LONG)
        .optim_step(step())
        .await
        .unwrap_err();
    assert!(!error.is_ambiguous() && !error.is_unreachable());
    assert!(error.is_unknown_run());
    assert!(error.to_string().contains("no run 0123abcd"), "{error}");
}

#[tokio::test]
async fn a_cut_connection_is_ambiguous() {
    let (url, _seen) = once("").await;
    let error = backend(Some(url), LONG)
        .optim_step(step())
        .await
        .unwrap_err();
    assert!(error.is_ambiguous(), "{error:?}");
}

#[tokio::test]
async fn a_cut_answer_is_ambiguous() {
    let (url, _seen) = once("HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{\"step\"").await;
    let error = backend(Some(url), LONG)
        .optim_step(step())
        .await
        .unwrap_err();
    assert!(error.is_ambiguous(), "{error:?}");
}

#[tokio::test]
async fn a_server_error_is_ambiguous() {
    let (url, _seen) = once("HTTP/1.1 500 Oh\r\ncontent-length: 4\r\n\r\noops").await;
    let error = backend(Some(url), LONG)
        .optim_step(step())
        .await
        .unwrap_err();
    assert!(error.is_ambiguous());
    assert!(error.to_string().ends_with("oops"), "{error}");
}

#[tokio::test]
async fn silence_is_ambiguous_after_the_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let error = backend(Some(url), Duration::from_millis(50))
        .optim_step(step())
        .await
        .unwrap_err();
    assert!(matches!(error, BackendError::Timeout { .. }), "{error:?}");
    assert!(error.is_ambiguous());
}

#[tokio::test]
async fn nobody_there_is_unreachable_and_not_ambiguous() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    for url in [Some(url), None] {
        let error = backend(url, LONG).optim_step(step()).await.unwrap_err();
        assert!(error.is_unreachable() && !error.is_ambiguous(), "{error:?}");
    }
}

#[test]
fn a_key_is_never_shown() {
    assert_eq!(
        format!("{:?}", ApiKey::new("sk-a-long-secret-7890")),
        "sk-…7890"
    );
    assert_eq!(format!("{:?}", ApiKey::new("short")), "sk-…");
}

#[test]
fn a_reply_id_stays_one_segment() {
    assert_eq!(path_segment("chatcmpl-0a"), "chatcmpl-0a");
    assert_eq!(path_segment("../x y"), "%2E%2E%2Fx%20y");
}
