//! Requests and replies as plain bytes.

use std::time::Duration;

/// The deadline of each wait. On one machine, only something that hangs takes longer.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// The route of chat completions.
pub(crate) const CHATS: &str = "/v1/chat/completions";

pub(crate) const CHAT: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"What is the capital of France?"}]}"#;

/// A chat with Messages and a request with Responses.
pub(crate) const MESSAGES: &str =
    r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}"#;
pub(crate) const RESPONSES: &str = r#"{"model":"m","input":"hi"}"#;

/// A wish of the default agent.
pub(crate) const BRIEF: (&str, &str) = ("_default/WISHES.md", "- Be brief.\n");

/// An upstream's answer to a route that it does not have.
pub(crate) const NO_ROUTE: &str = "HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 22\r\n\r\n{\"detail\":\"Not Found\"}";

pub(crate) fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    memchr::memmem::find(haystack, needle)
}

pub(crate) fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// Makes a request with a body. Each line of `headers` has its line end.
pub(crate) fn post(path: &str, headers: &str, body: &str) -> Vec<u8> {
    request("POST", path, headers, body)
}

pub(crate) fn post_chat(body: &str) -> Vec<u8> {
    post(CHATS, "", body)
}

pub(crate) fn request(method: &str, path: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
    format!("{head}content-length: {length}\r\n{headers}\r\n{body}").into_bytes()
}

/// Makes a request without a body, and without its length.
pub(crate) fn get(path: &str, headers: &str) -> Vec<u8> {
    bare("GET", path, headers)
}

pub(crate) fn bare(method: &str, path: &str, headers: &str) -> Vec<u8> {
    format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n").into_bytes()
}

/// Makes a whole reply with such a status line as `404 Not Found`. It closes its connection, because the upstream here
/// reads one request on each.
pub(crate) fn reply(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
    )
}

pub(crate) fn json_reply(body: &str) -> String {
    reply("200 OK", "", body)
}

/// Makes a whole reply that says this.
pub(crate) fn says(text: &str) -> String {
    json_reply(&completion(text))
}

/// The beginning of a streamed reply.
pub(crate) const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";

/// The end of a streamed reply.
pub(crate) const END: &str = "0\r\n\r\n";

/// The event after which clients expect no other.
pub(crate) const DONE: &str = "data: [DONE]\n\n";

/// Makes the beginning of a streamed reply that has said this so far.
pub(crate) fn begun(text: &str) -> String {
    format!("{STREAM}{}", chunk(&delta(text)))
}

/// Makes a whole streamed reply of these events.
pub(crate) fn streamed(events: &str) -> String {
    format!("{STREAM}{}{END}", chunk(events))
}

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
