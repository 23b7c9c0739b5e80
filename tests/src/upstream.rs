//! An upstream that plays a script: the stand-in for a cloud we cannot reach.
//!
//! It speaks OpenAI's chat completions as a provider does (role chunk, content, finish, usage,
//! `[DONE]`) and keeps every request that it was sent, as bytes.

use std::sync::{Arc, Mutex, PoisonError};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, StatusCode, Uri},
    response::Response,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};

/// The usage that every reply reports.
pub const PROMPT_TOKENS: u64 = 1234;
/// Of those, from the provider's cache.
pub const CACHED_TOKENS: u64 = 1000;
/// And of the reply.
pub const COMPLETION_TOKENS: u64 = 7;

/// One request as it arrived.
#[derive(Debug, Clone)]
pub struct Received {
    /// Path and query.
    pub uri: Uri,
    /// Headers.
    pub headers: HeaderMap,
    /// The body's bytes.
    pub body: Bytes,
}

/// What the upstream does with a chat request.
#[derive(Debug, Clone, Copy)]
pub enum Play {
    /// Answers with this text.
    Text(&'static str),
    /// Asks for one `exec` call with this command; answers with the text once its result is there.
    Tool {
        /// The shell command that the model asks for.
        command: &'static str,
        /// The answer after the result.
        then: &'static str,
    },
}

/// A running upstream.
#[derive(Debug)]
pub struct Upstream {
    /// `http://127.0.0.1:PORT`.
    pub base_url: String,
    shared: Arc<Shared>,
    /// Holds the server's task; dropping it ends the upstream.
    _server: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    play: Play,
    received: Mutex<Vec<Received>>,
}

impl Upstream {
    /// Starts an upstream on a port of the system's choice.
    pub async fn start(play: Play) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a loopback port");
        let base_url = format!("http://{}", listener.local_addr().expect("bound"));
        let shared = Arc::new(Shared {
            play,
            received: Mutex::default(),
        });
        let app = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&shared));
        let mut server = JoinSet::new();
        server.spawn(async move {
            axum::serve(listener, app)
                .await
                .expect("serving on loopback");
        });
        Self {
            base_url,
            shared,
            _server: server,
        }
    }

    /// Every request so far.
    pub fn received(&self) -> Vec<Received> {
        self.shared
            .received
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let received = Received { uri, headers, body };
    shared
        .received
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(received);
    let has_result = request["messages"]
        .as_array()
        .is_some_and(|messages| messages.iter().any(|message| message["role"] == "tool"));
    let events = match shared.play {
        Play::Text(text) => text_events(text),
        Play::Tool { then, .. } if has_result => text_events(then),
        Play::Tool { command, .. } => tool_events(command),
    };
    let stream = events
        .into_iter()
        .map(|event| Ok::<_, std::convert::Infallible>(event.into()));
    let stream = futures_util::stream::iter(stream.collect::<Vec<Result<Bytes, _>>>());
    Response::builder()
        .status(StatusCode::OK)
        .header("content-type", "text/event-stream")
        .body(Body::from_stream(stream))
        .expect("a plain response")
}

fn chunk(delta: &Value, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    event(
        &json!({"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 1,
        "model": "mock-model", "choices": [choice]}),
    )
}

fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// The usage chunk and the end, as OpenAI sends them.
fn ending() -> [String; 2] {
    let usage = json!({"prompt_tokens": PROMPT_TOKENS, "completion_tokens": COMPLETION_TOKENS,
        "total_tokens": PROMPT_TOKENS + COMPLETION_TOKENS,
        "prompt_tokens_details": {"cached_tokens": CACHED_TOKENS}});
    let usage = json!({"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 1,
        "model": "mock-model", "choices": [], "usage": usage});
    [event(&usage), "data: [DONE]\n\n".to_owned()]
}

fn text_events(text: &str) -> Vec<String> {
    let mut events = vec![chunk(&json!({"role": "assistant", "content": ""}), None)];
    events.extend(
        text.split_inclusive(' ')
            .map(|word| chunk(&json!({"content": word}), None)),
    );
    events.push(chunk(&json!({}), Some("stop")));
    events.extend(ending());
    events
}

fn tool_events(command: &str) -> Vec<String> {
    let arguments = json!({"command": command}).to_string();
    let (head, tail) = arguments.split_at(arguments.len() / 2);
    let begin = json!({"index": 0, "id": "call_mock_1", "type": "function",
        "function": {"name": "exec", "arguments": ""}});
    let more = |part: &str| json!({"tool_calls": [{"index": 0, "function": {"arguments": part}}]});
    let mut events = vec![
        chunk(
            &json!({"role": "assistant", "content": null, "tool_calls": [begin]}),
            None,
        ),
        chunk(&more(head), None),
        chunk(&more(tail), None),
        chunk(&json!({}), Some("tool_calls")),
    ];
    events.extend(ending());
    events
}
