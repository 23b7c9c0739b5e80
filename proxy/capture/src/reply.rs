//! Reads the bytes of a reply.

use std::{collections::BTreeSet, sync::Mutex};

use metaclaw_chat::lock;
use metaclaw_dialects::{
    Api, Reply,
    vllm::{self, Sampled},
};
use metaclaw_turns::StreamEnd;

use crate::encoding::Encoding;

/// The form in which a reply arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseMeta {
    /// The API in which the upstream sends the reply.
    pub api: Api,
    pub status: u16,
    /// The format of its bytes.
    pub format: Format,
    /// The compression of its bytes.
    pub encoding: Encoding,
    /// Whether vLLM was also asked for token ids.
    pub has_ids: bool,
}

/// The format of a reply's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Sse,
    Json,
}

static LOGGED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
const MOST_LOGGED: usize = 64;

fn log_unknown(word: &str) {
    let word: String = word.chars().take(MOST_LOGGED).collect();
    let mut logged = lock(&LOGGED);
    if logged.len() < MOST_LOGGED && logged.insert(word.clone()) {
        tracing::warn!(
            word,
            "a server gave an unknown stop reason, which is taken for a normal end"
        );
    }
}

// === impl ResponseMeta ===

impl ResponseMeta {
    pub(crate) fn has_end_mark(self) -> bool {
        self.encoding == Encoding::Identity && self.format == Format::Sse
    }

    pub(crate) fn parse(self, bytes: &[u8]) -> Reply {
        let reply = match self.format {
            Format::Sse => self.api.read_sse(bytes),
            Format::Json => self.api.read_json(bytes),
        };
        if let Some(word) = reply.unknown_reason() {
            log_unknown(word);
        }
        reply
    }

    /// Returns the sampled ids if they were requested, or `None` if some are missing.
    pub(crate) fn sampled(self, bytes: &[u8]) -> Option<Sampled> {
        if !self.has_ids {
            return None;
        }
        match self.format {
            Format::Sse => vllm::sampled_sse(bytes),
            Format::Json => vllm::sampled_json(bytes),
        }
    }

    pub(crate) fn end(self, seen: StreamEnd, reply: Option<&Reply>) -> StreamEnd {
        let status = self.status;
        if !(200..300).contains(&status) {
            return StreamEnd::UpstreamError { status };
        }
        let Some(reply) = reply else {
            return StreamEnd::Overflowed;
        };
        let end = match seen {
            // Clients stop reading at the end mark, and some at the finish reason, so nothing is missing.
            StreamEnd::ClientGone if reply.is_whole() => StreamEnd::Complete,
            StreamEnd::Cut if reply.ended => StreamEnd::Complete,
            seen => seen,
        };
        let is_empty = end == StreamEnd::Complete && reply.message.is_none();
        if is_empty || reply.error.is_some() {
            return StreamEnd::UpstreamError { status };
        }
        end
    }
}
