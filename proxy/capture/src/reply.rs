//! What the bytes of a reply say.

use metaclaw_dialects::{
    Api, Reply,
    vllm::{self, Sampled},
};
use metaclaw_turns::StreamEnd;

use crate::encoding::Encoding;

/// How a reply comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseMeta {
    /// The API that it is in as the upstream sends it.
    pub api: Api,
    pub status: u16,
    /// How its bytes are to be read.
    pub format: Format,
    /// How they are compressed.
    pub encoding: Encoding,
    /// vLLM was asked for token ids beside.
    pub has_ids: bool,
}

/// How a reply's bytes are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Sse,
    Json,
}

// === impl ResponseMeta ===

impl ResponseMeta {
    /// Whether it has an end mark that can be seen while it comes.
    pub(crate) fn has_end_mark(self) -> bool {
        self.encoding == Encoding::Identity && self.format == Format::Sse
    }

    /// Reads a reply that was decompressed.
    pub(crate) fn parse(self, bytes: &[u8]) -> Reply {
        match self.format {
            Format::Sse => self.api.read_sse(bytes),
            Format::Json => self.api.read_json(bytes),
        }
    }

    /// The ids that it was sampled as, where they were asked for; `None` where not all of them are there.
    pub(crate) fn sampled(self, bytes: &[u8]) -> Option<Sampled> {
        if !self.has_ids {
            return None;
        }
        match self.format {
            Format::Sse => vllm::sampled_sse(bytes),
            Format::Json => vllm::sampled_json(bytes),
        }
    }

    /// How the stream ended: what the relay saw, and what the reply itself says.
    pub(crate) fn end(self, seen: StreamEnd, reply: Option<&Reply>) -> StreamEnd {
        let status = self.status;
        if !(200..300).contains(&status) {
            return StreamEnd::UpstreamError { status };
        }
        let Some(reply) = reply else {
            return StreamEnd::Overflowed;
        };
        let end = match seen {
            // Clients stop reading at the end mark, and some at the finish reason: nothing is missing.
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
