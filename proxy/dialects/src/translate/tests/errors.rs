use serde_json::json;

use super::*;

fn said(direction: Direction, status: u16, body: &str) -> String {
    String::from_utf8(error(direction, status, body.as_bytes())).unwrap()
}

#[test]
fn an_error_keeps_its_message_in_the_other_shape() {
    let limited = r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow down"},"request_id":"req_1"}"#;
    insta::assert_snapshot!(said(ChatToMessages, 429, limited), @r#"{"error":{"message":"slow down","type":"rate_limit_error","param":null,"code":null}}"#);
    let wrong = r#"{"error":{"message":"bad key","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#;
    insta::assert_snapshot!(said(MessagesToChat, 401, wrong), @r#"{"type":"error","error":{"type":"authentication_error","message":"bad key"}}"#);
}

#[test]
fn a_prompt_over_the_context_is_known_on_both_sides() {
    let long = r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#;
    insta::assert_snapshot!(said(ChatToMessages, 400, long), @r#"{"error":{"message":"prompt is too long: 210000 tokens > 200000 maximum","type":"invalid_request_error","param":null,"code":"context_length_exceeded"}}"#);
    let long = r#"{"error":{"message":"This model's maximum context length is 8192 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}"#;
    insta::assert_snapshot!(said(MessagesToChat, 400, long), @r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: This model's maximum context length is 8192 tokens."}}"#);
}

#[test]
fn a_prompt_over_the_context_is_known_by_other_servers_words_too() {
    let vllm = r#"{"error":{"message":"This model's maximum context length is 4096 tokens. However, your request has 5000 input tokens.","type":"BadRequestError","param":"input_tokens","code":400}}"#;
    let llama = r#"{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":5000,"n_ctx":4096}}"#;
    for body in [vllm, llama] {
        let said = said(MessagesToChat, 400, body);
        assert!(
            said.contains("\"message\":\"prompt is too long: "),
            "{said}"
        );
    }
    let both = r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or `max_tokens` and try again"}}"#;
    assert!(said(ChatToMessages, 400, both).contains("\"code\":\"context_length_exceeded\""));
}

#[test]
fn a_servers_own_number_is_no_status() {
    let kind = |code: u64| {
        let event = json!({ "error": { "message": "boom", "code": code } });
        replied(MessagesToChat, &event)["error"]["type"].clone()
    };
    assert_eq!(
        [kind(402), kind(429), kind(1302), kind(20_048), kind(7)],
        [
            "billing_error",
            "rate_limit_error",
            "api_error",
            "api_error",
            "api_error"
        ]
    );
}

#[test]
fn what_stands_in_a_choice_or_behind_a_router_is_the_message() {
    let choice =
        r#"{"id":"g","choices":[{"error":{"code":502,"message":"it went away"},"message":{}}]}"#;
    insta::assert_snapshot!(said(MessagesToChat, 502, choice), @r#"{"type":"error","error":{"type":"api_error","message":"it went away"}}"#);
    let router = r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"it is bad","provider_name":"P"}}}"#;
    insta::assert_snapshot!(said(MessagesToChat, 400, router), @r#"{"type":"error","error":{"type":"invalid_request_error","message":"Provider returned error: it is bad"}}"#);
}

#[test]
fn what_is_no_error_body_becomes_the_message() {
    insta::assert_snapshot!(said(MessagesToChat, 502, "<html>bad gateway</html>\n"), @r#"{"type":"error","error":{"type":"api_error","message":"<html>bad gateway</html>"}}"#);
    insta::assert_snapshot!(said(ChatToMessages, 404, r#"{"detail":"Not Found"}"#), @r#"{"error":{"message":"Not Found","type":"not_found_error","param":null,"code":null}}"#);
    insta::assert_snapshot!(said(ChatToMessages, 500, ""), @r#"{"error":{"message":"the upstream answered with status 500 and nothing more","type":"api_error","param":null,"code":null}}"#);
    insta::assert_snapshot!(said(MessagesToChat, 400, "\u{feff}{}"), @r#"{"type":"error","error":{"type":"invalid_request_error","message":"﻿{}"}}"#);
}

#[test]
fn an_error_that_came_as_a_reply_stays_one() {
    let body = json!({ "error": { "message": "overloaded", "code": 529 } });
    insta::assert_snapshot!(replied(MessagesToChat, &body).to_string(), @r#"{"type":"error","error":{"type":"overloaded_error","message":"overloaded"}}"#);
    let body = json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } });
    insta::assert_snapshot!(replied(ChatToMessages, &body).to_string(), @r#"{"error":{"message":"Overloaded","type":"overloaded_error","param":null,"code":null}}"#);
}

#[test]
fn what_is_no_reply_is_refused() {
    let no = |direction, body: &str| {
        let error = reply(direction, &ASKED, body.as_bytes()).unwrap_err();
        error.to_string()
    };
    insta::assert_snapshot!(no(MessagesToChat, "<html>"), @r#"the body is not JSON: expected value at line 1 column 1"#);
    insta::assert_snapshot!(no(MessagesToChat, "{}"), @r#"choices[0].message is missing, but must be an object"#);
    insta::assert_snapshot!(no(ChatToMessages, r#"{"content":"hi"}"#), @r#"content is "hi", but must be a list of blocks"#);
    insta::assert_snapshot!(no(ChatToMessages, r#"{"content":[{"type":"tool_use"}]}"#), @"content[0].id is missing, but must be a string");
}
