//! The requests: bytes that are ready to be sent, with the few that differ between requests.
//!
//! The large one has the shape and size of an OpenClaw turn (26 KB of system text as one string, 11 tools, messages as
//! strings and as lists, a synthetic message at the end). All requests differ: each has its number in the owner's last
//! message, and every [`PER_SESSION`]th begins a new session, so that a recording proxy has as much to record as from
//! real agents.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::workload::{Kind, Size};

/// The number of turns in a session.
const PER_SESSION: u64 = 50;
/// The placeholder for the request's number, of the same length.
const NUMBER: &str = "@@NUMBER@@";
/// The placeholder for the session's number, of the same length.
const SESSION: &str = "@@SESSION@@@";
/// The size of the large request's system text, in bytes.
const SYSTEM_BYTES: usize = 26_300;
/// The same if OpenClaw's gateway adds the files of its workspace.
const GATEWAY_SYSTEM_BYTES: usize = 46_500;
/// The size of the large request's tools, in bytes.
const TOOLS_BYTES: usize = 9_600;
/// The size of the earlier conversation, in bytes.
const HISTORY_BYTES: usize = 2_600;

const TOOLS: [&str; 11] = [
    "apply_patch",
    "edit",
    "exec",
    "ls",
    "process",
    "read",
    "sessions_yield",
    "tool_call",
    "tool_describe",
    "tool_search",
    "write",
];
const SENTENCES: [&str; 7] = [
    "Read a file before you change it, and say in one line what you changed.\n",
    "When the owner asks for a \"summary\", give at most five points.\n",
    "- `exec` runs a command in the workspace; a long one goes to the background.\n",
    "Never send a message to a third person without the owner's word.\n",
    "\n## Workspace\n\nYour working folder is /home/owner/work; paths are relative to it.\n",
    "Übliche Zeichen, wie é und – auch ✓, kommen vor.\n",
    "If a tool fails twice in the same way, stop and tell the owner why; do not try a third time.\n",
];

/// The numbers of the whole run's requests, which are all different.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The requests of one connection.
#[derive(Debug)]
pub struct Requests {
    bytes: Vec<u8>,
    numbers: Vec<usize>,
    sessions: Vec<usize>,
    session: u64,
    n_sent: u64,
}

impl Requests {
    /// Creates requests to `host` for this kind of reply.
    pub fn new(size: Size, kind: Kind, host: &str) -> Self {
        let body = body(size, kind);
        let head = head(host, body.len());
        let bytes = format!("{head}{body}").into_bytes();
        Self {
            numbers: places(&bytes, NUMBER),
            sessions: places(&bytes, SESSION),
            bytes,
            session: 0,
            n_sent: 0,
        }
    }

    /// Returns the next request's bytes, head and body.
    pub fn next(&mut self) -> &[u8] {
        let number = next_number();
        if self.n_sent.is_multiple_of(PER_SESSION) {
            // They are unique, because numbers are.
            self.session = number;
        }
        self.n_sent += 1;
        let text = format!("{number:0width$}", width = NUMBER.len());
        write(&mut self.bytes, &self.numbers, &text);
        let text = format!("{:0width$x}", self.session, width = SESSION.len());
        write(&mut self.bytes, &self.sessions, &text);
        &self.bytes
    }
}

/// Returns a request's body, with the marks [`NUMBER`] and [`SESSION`] in it.
pub fn body(size: Size, kind: Kind) -> String {
    let body = match size {
        Size::Small => small(kind),
        Size::Large => large(kind, SYSTEM_BYTES),
        Size::Gateway => large(kind, GATEWAY_SYSTEM_BYTES),
    };
    body.to_string()
}

/// Returns a number that no request had yet.
pub fn next_number() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn places(bytes: &[u8], mark: &str) -> Vec<usize> {
    let windows = bytes.windows(mark.len()).enumerate();
    windows
        .filter(|(_, window)| *window == mark.as_bytes())
        .map(|(at, _)| at)
        .collect()
}

fn write(bytes: &mut [u8], places: &[usize], text: &str) {
    for at in places {
        bytes[*at..at + text.len()].copy_from_slice(text.as_bytes());
    }
}

/// The headers are those of OpenClaw's client.
fn head(host: &str, length: usize) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\nconnection: keep-alive\r\n\
         accept: application/json\r\ncontent-type: application/json\r\nuser-agent: OpenAI/JS 7.15.0\r\n\
         x-stainless-retry-count: 0\r\nx-stainless-lang: js\r\nx-stainless-package-version: 7.15.0\r\n\
         x-stainless-os: Linux\r\nx-stainless-arch: x64\r\nx-stainless-runtime: node\r\n\
         x-stainless-runtime-version: v24.21.0\r\nauthorization: Bearer sk-bench\r\n\
         traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\naccept-language: *\r\n\
         sec-fetch-mode: cors\r\naccept-encoding: gzip, deflate\r\ncontent-length: {length}\r\n\r\n"
    )
}

fn small(kind: Kind) -> Value {
    json!({
        "model": "mock-model",
        "messages": [{"role": "user", "content": format!("Say hello, number {NUMBER}.")}],
        "stream": kind.is_stream(),
        "prompt_cache_key": format!("5f0e2a11-7c3d-4e5f-8a9b-{SESSION}:0"),
    })
}

fn large(kind: Kind, system_bytes: usize) -> Value {
    let runtime = format!(
        "Runtime: agent=main | session=agent:main:explicit | sessionId=5f0e2a11-7c3d-4e5f-8a9b-{SESSION} | host=desk | model=proxied/mock-model"
    );
    let call = json!({"id": "callmock1", "type": "function",
        "function": {"name": "exec", "arguments": "{\"command\":\"ls -la accounts\"}"}});
    json!({
        "model": "mock-model",
        "messages": [
            {"role": "system", "content": format!(
                "<!-- openclaw:attempt:STABLE -->\n{}<!-- /openclaw:attempt:DYNAMIC -->\n", prose(system_bytes))},
            {"role": "user", "content": format!("[Fri 2026-11-20 05:31 UTC] Which invoices are open?\n\n{runtime}")},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "content": prose(HISTORY_BYTES), "tool_call_id": "callmock1"},
            {"role": "assistant", "content": "Two are open: the one of \"Weber\" and the one of the printer."},
            {"role": "user", "content": format!("[Fri 2026-11-20 05:32 UTC] And invoice number {NUMBER}?")},
            {"role": "user", "content": [{"type": "text",
                "text": "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nNothing is waiting.\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"}]},
        ],
        "stream": kind.is_stream(),
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
        "description": describe(TOOLS_BYTES / TOOLS.len() - 480),
        "parameters": {"type": "object", "required": ["path"], "additionalProperties": false, "properties": {
            "path": {"type": "string", "description": describe(90)},
            "limit": {"type": "integer", "minimum": 1, "maximum": 2000, "default": 200},
            "lines": {"type": "array", "items": {"type": "string"}, "description": describe(90)}}}}})
}

/// Returns about this many bytes of text, with characters that JSON escapes.
fn prose(n_bytes: usize) -> String {
    let mut text = String::with_capacity(n_bytes + 128);
    let mut sentences = SENTENCES.iter().cycle();
    while text.len() < n_bytes {
        text.extend(sentences.next().copied());
    }
    text
}
