//! Tests of Amazon Bedrock: what a signed request is like on the wire. No account was used.

use metaclaw_aws::CredentialSource;
use metaclaw_test_kit::has;

use super::harness::{CHAT, Harness, SetUp, get, post, post_chat};
use crate::{Secret, UpstreamConfig};

const CHATS: &str = "http://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1";
const MESSAGES: &str = "http://bedrock-runtime.eu-west-1.amazonaws.com/anthropic";

async fn before(url: &str, keys: Vec<Secret>, has_credentials: bool) -> Harness {
    let mut set_up = SetUp::before(UpstreamConfig {
        url: url.to_owned(),
        keys,
        ..UpstreamConfig::default()
    });
    let variable = |name: &str| match name {
        "AWS_ACCESS_KEY_ID" => Some("AKIDEXAMPLE"),
        "AWS_SECRET_ACCESS_KEY" => Some("secret"),
        "AWS_SESSION_TOKEN" => Some("token"),
        _ => None,
    };
    if has_credentials {
        set_up.config.aws = CredentialSource::from_variables(variable, None);
    }
    Harness::with(set_up).await
}

#[tokio::test]
async fn a_chat_at_bedrock_is_signed_and_carries_nothing_of_the_callers() {
    let mut harness = before(CHATS, Vec::new(), true).await;
    let headers = "authorization: Bearer sk-callers\r\nx-api-key: sk-callers\r\n";
    let exchange = harness.chat(headers, CHAT, "x").await;
    let line = format!("POST {CHATS}/chat/completions HTTP/1.1");
    assert!(exchange.head.starts_with(&line), "{}", exchange.head);
    let signature = exchange.header("authorization").unwrap();
    let start = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/";
    assert!(signature.starts_with(start), "{signature}");
    has(signature, ["/eu-west-1/bedrock/aws4_request"]);
    assert!(exchange.header("x-amz-date").is_some());
    assert_eq!(exchange.header("x-amz-security-token"), Some("token"));
    assert!(!exchange.head.contains("sk-callers"));
    assert_eq!(exchange.body(), CHAT);
}

#[tokio::test]
async fn claude_at_bedrock_is_asked_in_messages_whatever_the_caller_speaks() {
    let mut harness = before(MESSAGES, Vec::new(), true).await;
    let (_, exchange) = harness.ask(&post_chat(CHAT)).await;
    let line = format!("POST {MESSAGES}/v1/messages HTTP/1.1");
    assert!(exchange.head.starts_with(&line), "{}", exchange.head);
    assert!(exchange.header("anthropic-version").is_some());
    assert!(exchange.header("x-amz-date").is_some());
    let sent = exchange.json();
    assert!(sent["max_tokens"].is_u64(), "{sent}");
}

#[tokio::test]
async fn a_bedrock_key_is_shown_in_place_of_a_signature() {
    let keys = vec![Secret::from("bedrock-key")];
    let mut harness = before(CHATS, keys, true).await;
    let exchange = harness.chat("", CHAT, "x").await;
    let shown = exchange.header("authorization");
    assert_eq!(shown, Some("Bearer bedrock-key"));
    assert_eq!(exchange.header("x-amz-date"), None);
}

#[tokio::test]
async fn without_credentials_nothing_is_sent_and_the_agent_hears_why() {
    let mut harness = before(CHATS, Vec::new(), false).await;
    let seen = harness.refused(&post_chat(CHAT)).await;
    has(seen.text(), ["AWS_ACCESS_KEY_ID"]);
    assert!(harness.upstream.is_unasked());
    // A list of models is signed as well.
    let list = get("/v1/models", "");
    assert_eq!(harness.refused(&list).await.status(), 502);
    assert!(harness.upstream.is_unasked());
    // Whatever else is no chat has a body that streams by, which cannot be signed.
    let embeddings = post("/v1/embeddings", "", "{}");
    assert!(harness.refused(&embeddings).await.status() >= 400);
    assert!(harness.upstream.is_unasked());
}
