//! The workload of every peer: a kind of reply, a size of request, a number of connections.
//!
//! The large request has the shape and size of an OpenClaw turn (26 KB of system text as one string, 24 tools, messages
//! as strings and as lists, a synthetic message at the end). All requests differ: each has its number in the owner's
//! last message, and every [`PER_SESSION`]th begins a new session, so that a recording proxy has as much to record as
//! from real agents. In a growing session, each request is the one before with a turn added.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The number of events of a burst, which are all ready when the reply begins.
const READY_EVENTS: usize = 64;
/// The number of events of a paced stream, and the time between two.
const PACED_EVENTS: usize = 32;
/// See [`PACED_EVENTS`].
pub const PACE: Duration = Duration::from_millis(20);
/// How much longer each connection makes the pauses of all, so that there are at most 400 requests a second. With more,
/// a machine with two cores would not record them all.
const EACH_PAUSES: Duration = Duration::from_micros(2_500);
/// In so many parts of equal turns a growing session is measured.
pub const FIFTHS: usize = 5;
/// The number of turns in a session.
const PER_SESSION: u64 = 50;
/// The most turns of a growing session, whose last request has about 1 MB, and of all growing sessions of a cell.
const MOST_TURNS: usize = 200;
const MOST_IN_ALL: usize = 8_000;
/// The bytes of a tool's result in every second turn of a growing session.
const RESULT: usize = 8_600;
/// The placeholders for the request's and the session's number, of the same length.
const NUMBER: &str = "@@NUMBER@@";
const SESSION: &str = "@@SESSION@@@";
const TOOLS: [&str; 24] = [
    "apply_patch",
    "browser",
    "canvas",
    "cron",
    "edit",
    "exec",
    "gateway",
    "image",
    "ls",
    "memory_get",
    "memory_search",
    "message",
    "process",
    "read",
    "sessions_history",
    "sessions_list",
    "sessions_send",
    "sessions_spawn",
    "sessions_yield",
    "tool_call",
    "tool_search",
    "web_fetch",
    "web_search",
    "write",
];
const SENTENCES: &str = "Read a file before you change it, and say in one line what you changed.
When the owner asks for a \"summary\", give at most five points.
- `exec` runs a command in the workspace; a long one goes to the background.
Never send a message to a third person without the owner's word.

## Workspace

Your working folder is /home/owner/work; paths are relative to it.
Übliche Zeichen, wie é und – auch ✓, kommen vor.
If a tool fails twice in the same way, stop and tell the owner why; do not try a third time.
";
const REPLY: &[u8] = br#"{"id":"chatcmpl-bench","object":"chat.completion","created":1795000000,"model":"mock-model","choices":[{"index":0,"message":{"role":"assistant","content":"The invoice of October is in the folder \"accounts\"; it was paid on the 14th, and nothing is open."},"finish_reason":"stop"}],"usage":{"prompt_tokens":10234,"completion_tokens":27,"total_tokens":10261,"prompt_tokens_details":{"cached_tokens":10112}}}"#;

/// The reply in a growing session. No two are the same.
const ANSWER: &str = r#"{"id":"chatcmpl-@@NUMBER@@","object":"chat.completion","created":1795000000,"model":"mock-model","choices":[{"index":0,"message":{"role":"assistant","content":"Number @@NUMBER@@ was paid on the 14th, and nothing is open."},"finish_reason":"stop"}],"usage":{"prompt_tokens":10234,"completion_tokens":27,"total_tokens":10261}}"#;

/// The numbers of the whole run's requests, which are all different.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The upstream's reply.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One JSON object.
    #[default]
    Plain,
    /// 64 server-sent events, all ready.
    Burst,
    /// 32 server-sent events, one every 20 ms.
    Paced,
    /// One JSON object, in sessions whose requests grow.
    Growing,
}

/// The client's request.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum Size {
    /// One line of the user, without a system text.
    #[default]
    Small,
    /// Like OpenClaw's: 54 KB, of which 26 KB system text and 23 KB tools.
    Large,
}

/// One row of the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Workload {
    pub kind: Kind,
    pub size: Size,
    /// The number of connections, each with one request at a time.
    pub connections: usize,
}

/// A prepared reply.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Its pieces: each is one chunk of the transfer, and one event of a stream.
    pub pieces: Arc<[Bytes]>,
    /// All of them together.
    pub whole: Bytes,
    /// What a reply has that is complete, even if a peer rewrites it.
    pub mark: &'static str,
    pub kind: Kind,
}

/// The requests of one connection.
#[derive(Debug)]
pub struct Requests {
    body: Vec<u8>,
    numbers: Vec<usize>,
    sessions: Vec<usize>,
    session: u64,
    n_sent: u64,
}

/// A session whose requests grow.
#[derive(Debug)]
pub struct GrowingSession {
    /// The body up to the end of the last message.
    head: String,
    tail: String,
    n_turns: usize,
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Plain => "plain",
            Kind::Burst => "burst",
            Kind::Paced => "paced",
            Kind::Growing => "growing",
        };
        let size = match self.size {
            Size::Small => "small",
            Size::Large => "54k",
        };
        write!(f, "{kind}-{size}-{}", self.connections)
    }
}

// === impl Kind ===

impl Kind {
    /// Returns the reply of this kind, with the same bytes every time.
    pub fn reply(self) -> Reply {
        let pieces: Vec<Bytes> = match self {
            Self::Plain => vec![Bytes::from_static(REPLY)],
            Self::Burst => events(READY_EVENTS),
            Self::Paced => events(PACED_EVENTS),
            Self::Growing => vec![Bytes::from_static(ANSWER.as_bytes())],
        };
        Reply {
            mark: match self {
                Self::Plain | Self::Growing => "nothing is open.",
                Self::Burst | Self::Paced => "[DONE]",
            },
            whole: pieces.concat().into(),
            pieces: pieces.into(),
            kind: self,
        }
    }
}

// === impl Requests ===

impl Requests {
    pub fn new(workload: Workload) -> Self {
        let is_stream = matches!(workload.kind, Kind::Burst | Kind::Paced);
        let body = match workload.size {
            Size::Small => small(is_stream),
            Size::Large => large(is_stream),
        };
        let body = body.to_string();
        let places = |mark: &str| body.match_indices(mark).map(|(at, _)| at).collect();
        Self {
            numbers: places(NUMBER),
            sessions: places(SESSION),
            body: body.into_bytes(),
            session: 0,
            n_sent: 0,
        }
    }

    /// Returns the next request's body.
    pub fn next(&mut self) -> Bytes {
        let number = next_number();
        if self.n_sent.is_multiple_of(PER_SESSION) {
            // They are unique, because numbers are.
            self.session = number;
        }
        self.n_sent += 1;
        let number = numbered(number);
        let session = format!("{:0width$x}", self.session, width = SESSION.len());
        for (places, text) in [(&self.numbers, number), (&self.sessions, session)] {
            for at in places {
                self.body[*at..at + text.len()].copy_from_slice(text.as_bytes());
            }
        }
        Bytes::copy_from_slice(&self.body)
    }
}

// === impl Workload ===

impl Workload {
    /// Returns whether it is measured: sessions that grow are agents', and one alone takes too little CPU to measure.
    pub fn is_measured(&self) -> bool {
        self.kind != Kind::Growing || (self.size == Size::Large && self.connections >= 16)
    }

    /// Returns the number of turns of each growing session, which makes a cell end in a minute.
    pub fn n_turns(&self) -> usize {
        let n_turns = (MOST_IN_ALL / self.connections).min(MOST_TURNS);
        n_turns - n_turns % FIFTHS
    }

    /// Returns the pause before each turn of a growing session.
    pub fn pause(&self) -> Duration {
        let n_connections = u32::try_from(self.connections).unwrap_or(u32::MAX);
        EACH_PAUSES * n_connections
    }
}

// === impl GrowingSession ===

impl GrowingSession {
    pub fn new() -> Self {
        let session = format!("{:0width$x}", next_number(), width = SESSION.len());
        let mut rest = large(false);
        let messages = rest["messages"].take().to_string();
        let filled = |text: &str| {
            text.replace(SESSION, &session)
                .replace(NUMBER, &numbered(0))
        };
        let rest = rest.to_string().replace("\"messages\":null,", "");
        let head = format!("{{\"messages\":{}", &messages[..messages.len() - 1]);
        Self {
            head: filled(&head),
            tail: filled(&rest.replacen('{', "],", 1)),
            n_turns: 0,
        }
    }

    /// Returns the next request's body.
    pub fn request(&self) -> Bytes {
        Bytes::from([&*self.head, &*self.tail].concat())
    }

    /// Adds the upstream's reply, and what the agent sends next. Fails if it is not the upstream's.
    pub fn continue_with(&mut self, reply: &[u8]) -> Result<()> {
        let at = ANSWER.find(NUMBER).context("a place for the number")?;
        let number = reply
            .get(at..at + NUMBER.len())
            .map(String::from_utf8_lossy);
        let number = number.context("a reply without a number")?;
        ensure!(
            reply == ANSWER.replace(NUMBER, &number).as_bytes(),
            "another reply: {}",
            String::from_utf8_lossy(reply)
        );
        let reply: Value = serde_json::from_slice(reply)?;
        let asked = format!("[Fri 2026-11-20 05:32 UTC] And the one after number {number}?");
        let mut added = vec![
            reply["choices"][0]["message"].clone(),
            json!({"role": "user", "content": asked}),
        ];
        self.n_turns += 1;
        if self.n_turns.is_multiple_of(2) {
            let id = format!("call{number}");
            added.extend([
                call(&id),
                json!({"role": "tool", "content": prose(RESULT), "tool_call_id": id}),
            ]);
        }
        for message in added {
            self.head.push(',');
            self.head.push_str(&message.to_string());
        }
        Ok(())
    }
}

/// Returns the upstream's next reply in a growing session.
pub fn next_answer() -> Bytes {
    ANSWER.replace(NUMBER, &numbered(next_number())).into()
}

fn next_number() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn numbered(number: u64) -> String {
    format!("{number:0width$}", width = NUMBER.len())
}

/// Returns a message of the model with a call of a tool.
fn call(id: &str) -> Value {
    let function = json!({"name": "exec", "arguments": "{\"command\":\"ls -la accounts\"}"});
    let call = json!({"id": id, "type": "function", "function": function});
    json!({"role": "assistant", "content": null, "tool_calls": [call]})
}

fn small(is_stream: bool) -> Value {
    json!({
        "model": "mock-model",
        "messages": [{"role": "user", "content": format!("Say hello, number {NUMBER}.")}],
        "stream": is_stream,
        "prompt_cache_key": format!("5f0e2a11-7c3d-4e5f-8a9b-{SESSION}:0"),
    })
}

fn large(is_stream: bool) -> Value {
    let runtime = format!(
        "Runtime: agent=main | session=agent:main:explicit | sessionId=5f0e2a11-7c3d-4e5f-8a9b-{SESSION} | host=desk | model=proxied/mock-model"
    );
    json!({
        "model": "mock-model",
        "messages": [
            {"role": "system", "content": format!(
                "<!-- openclaw:attempt:STABLE -->\n{}<!-- /openclaw:attempt:DYNAMIC -->\n", prose(26_300))},
            {"role": "user", "content": format!("[Fri 2026-11-20 05:31 UTC] Which invoices are open?\n\n{runtime}")},
            call("callmock1"),
            {"role": "tool", "content": prose(2_600), "tool_call_id": "callmock1"},
            {"role": "assistant", "content": "Two are open: the one of \"Weber\" and the one of the printer."},
            {"role": "user", "content": format!("[Fri 2026-11-20 05:32 UTC] And invoice number {NUMBER}?")},
            {"role": "user", "content": [{"type": "text",
                "text": "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nNothing is waiting.\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"}]},
        ],
        "stream": is_stream,
        "stream_options": {"include_usage": true},
        "tools": TOOLS.map(tool),
        "tool_choice": "auto",
        "max_completion_tokens": 4096,
    })
}

fn tool(name: &str) -> Value {
    let describe = |n_bytes| prose(n_bytes).replace('\n', " ");
    json!({"type": "function", "function": {
        "name": name,
        "description": describe(390),
        "parameters": {"type": "object", "required": ["path"], "additionalProperties": false, "properties": {
            "path": {"type": "string", "description": describe(90)},
            "limit": {"type": "integer", "minimum": 1, "maximum": 2000, "default": 200},
            "lines": {"type": "array", "items": {"type": "string"}, "description": describe(90)}}}}})
}

/// Returns about this many bytes of text, with characters that JSON escapes.
fn prose(n_bytes: usize) -> String {
    let mut text = String::with_capacity(n_bytes + 128);
    let mut sentences = SENTENCES.split_inclusive('\n').cycle();
    while text.len() < n_bytes {
        text.extend(sentences.next());
    }
    text
}

/// Returns a stream of `n` events in OpenAI's form: the role, words, the finish, the usage, the end.
fn events(n: usize) -> Vec<Bytes> {
    const WORDS: [&str; 8] = [
        "The", " invoice", " of", " October", " was", " paid", " in", " time.",
    ];
    let event = |choices: &str, usage: &str| {
        Bytes::from(format!(
            "data: {{\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion.chunk\",\"created\":1795000000,\"model\":\"mock-model\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_2026\",\"choices\":[{choices}]{usage}}}\n\n"
        ))
    };
    let choice = |delta: &str, finish: &str| {
        let choice = format!(
            "{{\"index\":0,\"delta\":{{{delta}}},\"logprobs\":null,\"finish_reason\":{finish}}}"
        );
        event(&choice, "")
    };
    let role = "\"role\":\"assistant\",\"content\":\"\",\"refusal\":null";
    let usage = ",\"usage\":{\"prompt_tokens\":10234,\"completion_tokens\":60,\"total_tokens\":10294,\"prompt_tokens_details\":{\"cached_tokens\":10112}}";
    let mut events = vec![choice(role, "null")];
    let words = WORDS.iter().cycle().take(n - 4);
    events.extend(words.map(|word| choice(&format!("\"content\":\"{word}\""), "null")));
    events.extend([
        choice("", "\"stop\""),
        event("", usage),
        "data: [DONE]\n\n".into(),
    ]);
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(session: &GrowingSession) -> Vec<Value> {
        let body: Value = serde_json::from_slice(&session.request()).unwrap();
        assert_eq!(body["tools"].as_array().unwrap().len(), TOOLS.len());
        body["messages"].as_array().unwrap().clone()
    }

    #[test]
    fn a_growing_session_repeats_itself_up_to_a_megabyte() {
        let mut session = GrowingSession::new();
        assert!((50_000..60_000).contains(&session.request().len()));
        let first = messages(&session);
        for n_turns in 1..MOST_TURNS {
            session.continue_with(&next_answer()).unwrap();
            if n_turns < 3 {
                assert!(messages(&session).starts_with(&first), "turn {n_turns}");
            }
        }
        let n_bytes = session.request().len();
        assert!((900_000..1_100_000).contains(&n_bytes), "{n_bytes}");
        let others = session.continue_with(&Kind::Plain.reply().whole);
        assert!(others.is_err());
        assert_eq!(session.request().len(), n_bytes);
    }
}
