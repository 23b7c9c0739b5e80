use serde_json::json;

use super::*;
use crate::testing;

fn said(direction: Direction, status: u16, body: &str) -> String {
    String::from_utf8(error(direction, status, body.as_bytes())).unwrap()
}

/// An error keeps its message in the other shape. Each row has the direction, the status, the body, and the one that
/// it becomes.
#[test]
fn every_error_of_the_table_is_translated_as_it_says() {
    for (direction, status, body, expected) in
        testing::rows::<(String, u16, String, String)>("errors")
    {
        let is_chats = direction == "chat_to_messages";
        let direction = if is_chats {
            ChatToMessages
        } else {
            MessagesToChat
        };
        assert_eq!(said(direction, status, &body), expected, "{body}");
    }
}

#[test]
fn a_prompt_over_the_context_is_known_by_other_servers_words_too() {
    let vllm = r#"{"error":{"message":"This model's maximum context length is 4096 tokens. However, your request has 5000 input tokens.","type":"BadRequestError","param":"input_tokens","code":400}}"#;
    let llama = r#"{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":5000,"n_ctx":4096}}"#;
    for body in [vllm, llama] {
        let said = said(MessagesToChat, 400, body);
        let is_known = said.contains("\"message\":\"prompt is too long: ");
        assert!(is_known, "{said}");
    }
    let both = r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or `max_tokens` and try again"}}"#;
    assert!(said(ChatToMessages, 400, both).contains("\"code\":\"context_length_exceeded\""));
}

#[test]
fn a_servers_own_number_is_no_status() {
    for (code, kind) in [
        (402, "billing_error"),
        (429, "rate_limit_error"),
        (1302, "api_error"),
        (20_048, "api_error"),
        (7, "api_error"),
    ] {
        let event = json!({ "error": { "message": "boom", "code": code } });
        assert_eq!(replied(MessagesToChat, &event)["error"]["type"], kind);
    }
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
