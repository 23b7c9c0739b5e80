//! A provider with one model that always says the same, in place of one that bare roots cannot reach.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// The model that it lists.
pub(super) const MODEL: &str = "parrot";
/// What the model says.
pub(super) const REPLY: &str = "I am the parrot of a test.";
/// The longest request body that is read.
const MAX_BODY: u64 = 1 << 20;

/// Starts the provider on a free port, for as long as this process lives; returns its address, which ends in `/v1`.
pub(super) fn start() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no free port on 127.0.0.1")?;
    let address = listener.local_addr().context("a port without an address")?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that hangs up early fails by itself.
            thread::spawn(move || serve(&stream));
        }
    });
    Ok(format!("http://{address}/v1"))
}

/// Answers one request, and closes the connection.
fn serve(stream: &TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = Vec::new();
    reader.take(MAX_BODY.min(length)).read_to_end(&mut body)?;
    let request = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let (kind, text) = answer(&first, &request);
    let length = text.len();
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}"
    )
}

/// The content type and the body of the answer to a request line and a body.
fn answer(first: &str, request: &Value) -> (&'static str, String) {
    if first.starts_with("GET ") {
        let models = json!({"object": "list", "data": [{"id": MODEL, "object": "model"}]});
        return ("application/json", models.to_string());
    }
    let usage = json!({"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16});
    let completion = |object: &str, part: &str| {
        let message = json!({"role": "assistant", "content": REPLY});
        json!({
            "id": "chatcmpl-1", "object": object, "created": 0, "model": MODEL, "usage": usage,
            "choices": [{"index": 0, "finish_reason": "stop", part: message}],
        })
    };
    if request["stream"] == true {
        let chunk = completion("chat.completion.chunk", "delta");
        return (
            "text/event-stream",
            format!("data: {chunk}\n\ndata: [DONE]\n\n"),
        );
    }
    let whole = completion("chat.completion", "message");
    ("application/json", whole.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chat_is_answered_whole_and_streamed() {
        let base = start().unwrap();
        let address = base
            .trim_start_matches("http://")
            .trim_end_matches("/v1")
            .to_owned();
        let ask = |request: String| {
            let mut stream = TcpStream::connect(&address).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let mut reply = String::new();
            stream.read_to_string(&mut reply).unwrap();
            reply
        };
        let post = |body: &str| {
            let length = body.len();
            ask(format!(
                "POST /v1/chat/completions HTTP/1.1\r\ncontent-length: {length}\r\n\r\n{body}"
            ))
        };
        assert!(ask("GET /v1/models HTTP/1.1\r\n\r\n".to_owned()).contains(MODEL));
        assert!(post("{}").contains(REPLY));
        assert!(post(r#"{"stream": true}"#).ends_with("data: [DONE]\n\n"));
    }
}
