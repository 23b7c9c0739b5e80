//! The workload of every peer: a kind of reply, a size of request, a number of connections.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The number of events of a burst, which are all ready when the reply begins.
const READY_EVENTS: usize = 64;
/// The number of events of a paced stream, and the time between two.
const PACED_EVENTS: usize = 32;
/// See [`PACED_EVENTS`].
pub const PACE: Duration = Duration::from_millis(20);

/// The upstream's reply.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One JSON object.
    Plain,
    /// 64 server-sent events, all ready.
    Burst,
    /// 32 server-sent events, one every 20 ms.
    Paced,
    /// One JSON object, from an upstream behind TLS.
    Tls,
}

/// The client's request.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum Size {
    /// One line of the user, without a system text.
    Small,
    /// Like OpenClaw's: 40 KB, of which 26 KB system text and 10 KB tools.
    Large,
    /// Like that of OpenClaw's gateway: 61 KB, of which 47 KB system text.
    Gateway,
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Workload {
    /// The upstream's reply.
    pub kind: Kind,
    /// The client's request.
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
    /// The kind of the reply.
    pub kind: Kind,
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, size) = (self.kind.name(), self.size.name());
        write!(f, "{kind}-{size}-{}", self.connections)
    }
}

impl Reply {
    /// A body in one piece.
    pub fn plain(whole: Bytes) -> Self {
        Self {
            pieces: Arc::new([whole.clone()]),
            whole,
            kind: Kind::Plain,
        }
    }
}

impl Kind {
    /// Returns the name in file names and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Burst => "burst",
            Self::Paced => "paced",
            Self::Tls => "tls",
        }
    }

    /// Returns whether it is a stream of events.
    pub fn is_stream(self) -> bool {
        matches!(self, Self::Burst | Self::Paced)
    }

    /// Returns the reply of this kind, with the same bytes every time.
    pub fn reply(self) -> Reply {
        let pieces: Vec<Bytes> = match self {
            Self::Plain | Self::Tls => vec![plain()],
            Self::Burst => events(READY_EVENTS),
            Self::Paced => events(PACED_EVENTS),
        };
        Reply {
            whole: pieces.concat().into(),
            pieces: pieces.into(),
            kind: self,
        }
    }
}

impl Size {
    /// Returns the name in file names and tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "40k",
            Self::Gateway => "61k",
        }
    }
}

fn plain() -> Bytes {
    Bytes::from_static(
        br#"{"id":"chatcmpl-bench","object":"chat.completion","created":1795000000,"model":"mock-model","choices":[{"index":0,"message":{"role":"assistant","content":"The invoice of October is in the folder \"accounts\"; it was paid on the 14th, and nothing is open."},"finish_reason":"stop"}],"usage":{"prompt_tokens":10234,"completion_tokens":27,"total_tokens":10261,"prompt_tokens_details":{"cached_tokens":10112}}}"#,
    )
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
        event(
            &format!(
                "{{\"index\":0,\"delta\":{{{delta}}},\"logprobs\":null,\"finish_reason\":{finish}}}"
            ),
            "",
        )
    };
    let mut events = vec![choice(
        "\"role\":\"assistant\",\"content\":\"\",\"refusal\":null",
        "null",
    )];
    for number in 0..n - 4 {
        events.push(choice(
            &format!("\"content\":\"{}\"", WORDS[number % WORDS.len()]),
            "null",
        ));
    }
    events.push(choice("", "\"stop\""));
    events.push(event("", ",\"usage\":{\"prompt_tokens\":10234,\"completion_tokens\":60,\"total_tokens\":10294,\"prompt_tokens_details\":{\"cached_tokens\":10112}}"));
    events.push(Bytes::from_static(b"data: [DONE]\n\n"));
    events
}
