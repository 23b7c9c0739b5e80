//! Tests with a server that answers from a list.

use metaclaw_chat::{Secret, Span, Usage};
use metaclaw_test_kit::{Reply, Request, Server};
use reqwest::StatusCode;

use super::*;
use crate::loopback_client;

const GOOD: &str = r#"{"choices":[{"message":{"role":"assistant","content":"+1"},"finish_reason":"stop"}],
    "usage":{"prompt_tokens":12,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":8}}}"#;

fn good() -> Reply {
    Reply::json(GOOD)
}

fn url(server: &Server) -> String {
    format!("{}/v1", server.url())
}

/// What the server was asked, head and body.
fn asked(server: &Server) -> Vec<String> {
    server.asked().iter().map(Request::text).collect()
}

fn client(server: &Server, timeout: Span) -> ChatClient {
    let config = LlmConfig {
        url: url(server),
        model: "judge".to_owned(),
        key: Some(Secret::from("sk-0123456789abcd".to_owned())),
        timeout,
        ..LlmConfig::default()
    };
    ChatClient::new(config, loopback_client().unwrap()).unwrap()
}

#[tokio::test]
async fn azure_is_shown_its_key_in_its_own_header_at_its_own_route() {
    let server = Server::scripted([good()]);
    let config = LlmConfig {
        url: server.url(),
        model: "deployed".to_owned(),
        key: Some(Secret::from("k-0123456789".to_owned())),
        azure: true,
        api_version: Some("2024-10-21".to_owned()),
        ..LlmConfig::default()
    };
    let client = ChatClient::new(config, loopback_client().unwrap()).unwrap();
    client
        .ask(&[Message::user("?")], AskParams::default())
        .await
        .unwrap();
    let asked = asked(&server);
    let route =
        "POST /openai/deployments/deployed/chat/completions?api-version=2024-10-21 HTTP/1.1";
    assert!(asked[0].starts_with(route), "{}", asked[0]);
    assert!(asked[0].contains("api-key: k-0123456789") && !asked[0].contains("authorization"));
}

async fn ask(server: &Server, timeout: Span) -> Result<Answer, AskError> {
    let params = AskParams {
        temperature: Some(0.6),
        max_tokens: Some(64),
        ..AskParams::default()
    };
    client(server, timeout)
        .ask(&[Message::user("Was it good?")], params)
        .await
}

#[tokio::test]
async fn an_answer_is_read_with_its_cost() {
    let server = Server::scripted([good()]);
    let answer = ask(&server, Span::secs(30)).await.unwrap();
    assert_eq!(answer.text, "+1");
    assert_eq!(answer.finish_reason.as_deref(), Some("stop"));
    let usage = Usage {
        prompt_tokens: 12,
        completion_tokens: 3,
        cached_tokens: 8,
    };
    assert_eq!(answer.usage, Some(usage));
    let asked = asked(&server);
    assert!(asked[0].starts_with("POST /v1/chat/completions HTTP/1.1"));
    assert!(asked[0].contains("authorization: Bearer sk-0123456789abcd"));
    let body = r#"{"model":"judge","messages":[{"role":"user","content":"Was it good?"}],"temperature":0.6,"max_tokens":64,"stream":false}"#;
    assert!(asked[0].ends_with(body), "{}", asked[0]);
}

#[tokio::test]
async fn what_may_pass_is_asked_again() {
    let server = Server::scripted([
        Reply::hang_up(),
        Reply::status(429, "{}").header("retry-after", "0"),
        good(),
    ]);
    assert_eq!(ask(&server, Span::secs(30)).await.unwrap().text, "+1");
    assert_eq!(server.asked().len(), 3);
}

#[tokio::test]
async fn a_refusal_is_told_at_once() {
    let body = r#"{"error":{"message":"no such model"}}"#;
    let server = Server::scripted([Reply::status(404, body)]);
    let error = ask(&server, Span::secs(30)).await.unwrap_err();
    assert!(!error.retryable());
    let is_so = error
        .to_string()
        .ends_with("answered 404 Not Found: no such model");
    assert!(is_so, "{error}");
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn a_redirect_is_not_followed_with_the_key() {
    let server =
        Server::scripted([Reply::status(302, "").header("location", "http://127.0.0.1:1/")]);
    let error = ask(&server, Span::secs(30)).await.unwrap_err();
    let is_so = matches!(
        error,
        AskError::Status {
            status: StatusCode::FOUND,
            ..
        }
    );
    assert!(is_so, "{error}");
}

#[tokio::test]
async fn a_wait_beyond_the_deadline_is_not_begun() {
    let server = Server::scripted([Reply::status(503, "busy").header("retry-after", "3600")]);
    let error = ask(&server, Span::secs(30)).await.unwrap_err();
    assert!(error.retryable());
    let is_so = error.to_string().ends_with("503 Service Unavailable: busy");
    assert!(is_so, "{error}");
}

#[tokio::test]
async fn a_server_that_never_answers_meets_the_deadline() {
    let server = Server::scripted([Reply::silence()]);
    let error = ask(&server, Span::millis(50)).await.unwrap_err();
    assert!(matches!(error, AskError::Deadline { .. }), "{error}");
    let is_so = error.to_string().ends_with("did not answer within 0.05 s");
    assert!(is_so, "{error}");
}

#[tokio::test]
async fn the_other_name_of_the_token_limit_is_learned_once() {
    let body = r#"{"error":{"message":"Use 'max_completion_tokens' instead."}}"#;
    let script = [Reply::status(400, body), good(), good()];
    let server = Server::scripted(script);
    let client = client(&server, Span::secs(30));
    let params = AskParams {
        max_tokens: Some(5),
        ..AskParams::default()
    };
    for _ in 0..2 {
        client
            .ask(&[Message::user("?")], params.clone())
            .await
            .unwrap();
    }
    let asked = asked(&server);
    assert_eq!(asked.len(), 3);
    assert!(
        asked[1..]
            .iter()
            .all(|body| body.contains("\"max_completion_tokens\":5"))
    );
}

/// A test of the first hour (A10) found this: each vote of a judge was refused, permanently.
#[tokio::test]
async fn a_model_with_a_temperature_of_its_own_is_asked_without_one() {
    let body = r#"{"error":{"message":"Unsupported value: 'temperature' does not support 0.6 with this model. Only the default (1) value is supported.","type":"invalid_request_error","param":"temperature","code":"unsupported_value"}}"#;
    let refused = || Reply::status(400, body);
    let server = Server::scripted([refused(), good(), good(), refused()]);
    let client = client(&server, Span::secs(30));
    let ask = async || {
        let params = AskParams {
            temperature: Some(0.6),
            max_tokens: Some(5),
            ..AskParams::default()
        };
        client.ask(&[Message::user("?")], params).await
    };
    ask().await.unwrap();
    ask().await.unwrap();
    // If the server still refuses, the reason is another one.
    ask().await.unwrap_err();
    let asked = asked(&server);
    let with = |field: &str| -> Vec<bool> { asked.iter().map(|b| b.contains(field)).collect() };
    assert_eq!(with("\"temperature\""), [true, false, false, false]);
    assert_eq!(with("\"max_tokens\":5"), [true; 4]);
    let counts = AskCounts {
        requests: 4,
        failures: 2,
        prompt_tokens: 24,
        completion_tokens: 6,
    };
    assert_eq!(client.counts(), counts);
}

#[test]
fn of_two_questions_at_once_each_learns_what_is_refused() {
    let accepted = Accepted::default();
    let asked = accepted.now();
    assert!(accepted.learns_from("temperature must be 1", asked));
    // Another request was in flight at the same time.
    assert!(accepted.learns_from("temperature must be 1", asked));
    assert!(!accepted.learns_from("temperature must be 1", accepted.now()));
}

#[tokio::test]
async fn what_is_no_completion_is_said_and_not_asked_again() {
    for body in ["", "{}", "<html>", r#"{"choices":[{"message":"x"}]}"#] {
        let server = Server::scripted([Reply::status(200, body)]);
        let error = ask(&server, Span::secs(30)).await.unwrap_err();
        assert!(matches!(error, AskError::NotAnAnswer { .. }), "{error}");
        assert!(!error.retryable());
    }
}

#[test]
fn neither_key_nor_client_is_shown_in_full() {
    let config = LlmConfig {
        url: "http://127.0.0.1:1".to_owned(),
        key: Some(Secret::from("sk-0123456789abcd".to_owned())),
        ..LlmConfig::default()
    };
    let client = ChatClient::new(config, loopback_client().unwrap()).unwrap();
    let shown = format!("{client:?}");
    let is_so = shown.contains("sk-…abcd") && !shown.contains("0123");
    assert!(is_so, "{shown}");
}

#[tokio::test]
async fn bedrock_without_credentials_is_not_asked() {
    let config = LlmConfig {
        url: "https://bedrock-runtime.us-east-1.amazonaws.com/openai/v1".to_owned(),
        model: "m".to_owned(),
        ..LlmConfig::default()
    };
    let client = ChatClient::new(config, loopback_client().unwrap()).unwrap();
    let asked = client.ask(&[], AskParams::default()).await;
    let why = asked.unwrap_err().to_string();
    let is_so = why.contains("was not asked: there are no AWS credentials");
    assert!(is_so, "{why}");
}

#[tokio::test]
async fn what_a_server_is_told_besides_the_chat_is_sent() {
    let server = Server::scripted([good()]);
    let extra = r#"{"headers": {"x-title": "Mine", "b\u00e4d": "x"}, "fields": {"provider": {"data_collection": "deny"}}}"#;
    let config = LlmConfig {
        url: url(&server),
        model: "m".to_owned(),
        extra: serde_json::from_str(extra).unwrap(),
        ..LlmConfig::default()
    };
    let client = ChatClient::new(config, loopback_client().unwrap()).unwrap();
    client.ask(&[], AskParams::default()).await.unwrap();
    let asked = asked(&server);
    assert!(asked[0].contains("x-title: Mine"), "{}", asked[0]);
    let field = r#""provider":{"data_collection":"deny"}"#;
    assert!(asked[0].contains(field), "{}", asked[0]);
}
