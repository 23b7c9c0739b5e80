//! A scripted upstream: it answers every chat with the same words.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use anyhow::Result;

const WORDS: &str = "Sleep repairs the body.";
const USAGE: &str = r#"{"prompt_tokens":100,"completion_tokens":6,"total_tokens":106,"prompt_tokens_details":{"cached_tokens":64}}"#;

/// Starts it on a free port, until this process ends. Returns the port.
pub(super) fn start() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                // A client may hang up at any time.
                let _ = answer(stream);
            });
        }
    });
    Ok(port)
}

/// Answers one request and closes the connection.
fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    request.read_line(&mut line)?;
    let is_chat = line.starts_with("POST");
    let mut n_bytes = 0;
    loop {
        line.clear();
        request.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            n_bytes = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; n_bytes];
    request.read_exact(&mut body)?;
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    let (kind, text) = match (is_chat, body["stream"].as_bool()) {
        (false, _) => ("application/json", models()),
        (true, Some(true)) => ("text/event-stream", events()),
        (true, _) => ("application/json", reply()),
    };
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    )
}

fn models() -> String {
    r#"{"object":"list","data":[{"id":"demo","object":"model"}]}"#.to_owned()
}

fn reply() -> String {
    format!(
        r#"{{"object":"chat.completion","model":"demo","choices":[{{"index":0,"finish_reason":"stop","message":{{"role":"assistant","content":"{WORDS}"}}}}],"usage":{USAGE}}}"#
    )
}

fn events() -> String {
    let chunk = |delta: &str, rest: &str| {
        format!(
            "data: {{\"object\":\"chat.completion.chunk\",\"model\":\"demo\",\"choices\":[{{\"index\":0,\"delta\":{delta}{rest}}}]}}\n\n"
        )
    };
    let words = chunk(
        &format!(r#"{{"role":"assistant","content":"{WORDS}"}}"#),
        "",
    );
    let end = chunk("{}", r#","finish_reason":"stop""#);
    let usage = format!(
        "data: {{\"object\":\"chat.completion.chunk\",\"model\":\"demo\",\"choices\":[],\"usage\":{USAGE}}}\n\n"
    );
    format!("{words}{end}{usage}data: [DONE]\n\n")
}
