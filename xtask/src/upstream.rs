//! A provider with one model that answers every chat with the same words, for commands of the pages and for bare roots.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

use anyhow::{Context, Result};
use serde_json::{Value, json};

pub(crate) const MODEL: &str = "demo";
pub(crate) const WORDS: &str = "Sleep repairs the body.";
const MAX_BODY: u64 = 1 << 20;

/// Starts the provider on a free port, for as long as this process lives; returns its address, which ends in `/v1`.
pub(crate) fn start() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no free port on 127.0.0.1")?;
    let address = listener.local_addr().context("a port without an address")?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that hangs up early fails by itself.
            thread::spawn(move || answer(&stream));
        }
    });
    Ok(format!("http://{address}/v1"))
}

fn answer(mut stream: &TcpStream) -> std::io::Result<()> {
    let mut request = BufReader::new(stream);
    let mut first = String::new();
    request.read_line(&mut first)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        request.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = Vec::new();
    request.take(MAX_BODY.min(length)).read_to_end(&mut body)?;
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (kind, text) = if first.starts_with("GET ") {
        let models = json!({"object": "list", "data": [{"id": MODEL, "object": "model"}]});
        ("application/json", models.to_string())
    } else if body["stream"] == true {
        let chunk = completion("chat.completion.chunk", "delta");
        (
            "text/event-stream",
            format!("data: {chunk}\n\ndata: [DONE]\n\n"),
        )
    } else {
        let whole = completion("chat.completion", "message");
        ("application/json", whole.to_string())
    };
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    )
}

fn completion(object: &str, part: &str) -> Value {
    json!({
        "id": "chatcmpl-1", "object": object, "created": 0, "model": MODEL,
        "choices": [{"index": 0, "finish_reason": "stop", part: {"role": "assistant", "content": WORDS}}],
        "usage": {
            "prompt_tokens": 100, "completion_tokens": 6, "total_tokens": 106,
            "prompt_tokens_details": {"cached_tokens": 64},
        },
    })
}
