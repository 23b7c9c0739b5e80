//! Tests of what is sent and received.

use std::path::Path;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinHandle,
};

use super::VllmClient;
use crate::ApiKey;

/// Creates a client of a server that answers one request like this; returns also the request line with the body.
async fn asked_once(answer: &'static str) -> (VllmClient, JoinHandle<(String, Value)>) {
    // Another test of the same process may have installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/", listener.local_addr().unwrap());
    let read = async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut came = Vec::new();
        let body = loop {
            socket.read_buf(&mut came).await.unwrap();
            let text = std::str::from_utf8(&came).unwrap();
            // The body arrives completely or not at all, because it is JSON.
            let body = text.split_once("\r\n\r\n").map(|(_, body)| body);
            if let Some(Ok(body)) = body.map(serde_json::from_str::<Value>) {
                break body;
            }
        };
        socket.write_all(answer.as_bytes()).await.unwrap();
        let line = String::from_utf8(came).unwrap();
        (line.lines().next().unwrap().to_owned(), body)
    };
    let client = reqwest::Client::builder().tls_certs_only([]).no_proxy();
    let key = Some(ApiKey::new("sk-a-long-secret-7890"));
    let client = VllmClient::new(client.build().unwrap(), &url, key);
    #[expect(clippy::disallowed_methods, reason = "the test awaits the handle")]
    let task = tokio::spawn(read);
    (client, task)
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// If vLLM is asked to load in place, it replaces the weights of running replies, and reads the folder again at each
/// token.
#[tokio::test]
async fn an_adapter_is_never_loaded_in_the_place_of_another() {
    let (client, asked) = asked_once(OK).await;
    let folder = Path::new("/checkpoints/vllm/a~1-0");
    client.load_adapter("a~1-0", folder).await.unwrap();
    let (line, body) = asked.await.unwrap();
    assert_eq!(line, "POST /v1/load_lora_adapter HTTP/1.1");
    // There is no other field, least of all `load_inplace`.
    let expected = json!({"lora_name": "a~1-0", "lora_path": "/checkpoints/vllm/a~1-0"});
    assert_eq!(body, expected);
}

#[tokio::test]
async fn an_adapter_is_unloaded_by_its_name() {
    let (client, asked) = asked_once(OK).await;
    client.unload_adapter("a~1-0").await.unwrap();
    let (line, body) = asked.await.unwrap();
    assert_eq!(line, "POST /v1/unload_lora_adapter HTTP/1.1");
    assert_eq!(body, json!({"lora_name": "a~1-0"}));
}
