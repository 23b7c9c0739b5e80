//! Tests of what is sent and received.

use std::path::Path;

use metaclaw_test_kit::{Reply, Server};
use serde_json::json;

use super::VllmClient;
use crate::ApiKey;

/// A server that is content, and a client of it.
fn vllm() -> (VllmClient, Server) {
    // Another test of the same process may have installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = Server::new(|_| Reply::bytes(""));
    let client = reqwest::Client::builder().tls_certs_only([]).no_proxy();
    let key = Some(ApiKey::new("sk-a-long-secret-7890"));
    let url = format!("{}/v1/", server.url());
    (VllmClient::new(client.build().unwrap(), &url, key), server)
}

/// If vLLM is asked to load in place, it replaces the weights of running replies, and reads the folder again at each
/// token.
#[tokio::test]
async fn an_adapter_is_never_loaded_in_the_place_of_another() {
    let (client, server) = vllm();
    let folder = Path::new("/checkpoints/vllm/a~1-0");
    client.load_adapter("a~1-0", folder).await.unwrap();
    let asked = &server.asked()[0];
    assert_eq!(asked.method(), "POST");
    assert_eq!(asked.path(), "/v1/load_lora_adapter");
    // There is no other field, least of all `load_inplace`.
    let expected = json!({"lora_name": "a~1-0", "lora_path": "/checkpoints/vllm/a~1-0"});
    assert_eq!(asked.json(), expected);
}

#[tokio::test]
async fn an_adapter_is_unloaded_by_its_name() {
    let (client, server) = vllm();
    client.unload_adapter("a~1-0").await.unwrap();
    let asked = &server.asked()[0];
    assert_eq!(asked.method(), "POST");
    assert_eq!(asked.path(), "/v1/unload_lora_adapter");
    assert_eq!(asked.json(), json!({"lora_name": "a~1-0"}));
}
