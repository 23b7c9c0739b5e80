//! Requests and replies as plain bytes.

use std::time::Duration;

/// The deadline of each wait. On one machine, only something that hangs takes longer.
pub(crate) const SOON: Duration = Duration::from_secs(10);

pub(crate) const CHAT: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"What is the capital of France?"}]}"#;

pub(crate) fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

pub(crate) fn header(head: &str, name: &str) -> Option<String> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name)
            .then(|| value.trim().to_owned())
    })
}

/// Makes a request with a body. Each line of `headers` has its line end.
pub(crate) fn post(path: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n");
    format!("{head}{headers}\r\n{body}").into_bytes()
}

pub(crate) fn post_chat(body: &str) -> Vec<u8> {
    post("/v1/chat/completions", "", body)
}

/// Makes a whole reply. It closes its connection, because the upstream here reads one request on each.
pub(crate) fn json_reply(body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// The beginning of a streamed reply.
pub(crate) const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";

pub(crate) fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

pub(crate) fn delta(text: &str) -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-1\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n"
    )
}

pub(crate) fn completion(text: &str) -> String {
    format!(
        r#"{{"id":"chatcmpl-1","choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":9,"completion_tokens":2}}}}"#
    )
}

/// Makes a body with these messages, the user's and the assistant's in turn.
pub(crate) fn conversation(texts: &[&str]) -> String {
    let said = texts.iter().enumerate().map(|(i, text)| {
        let role = if i % 2 == 0 { "user" } else { "assistant" };
        format!(r#"{{"role":"{role}","content":"{text}"}}"#)
    });
    let messages = said.collect::<Vec<_>>().join(",");
    format!(r#"{{"model":"m","messages":[{messages}]}}"#)
}
