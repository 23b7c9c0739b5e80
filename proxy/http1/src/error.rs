//! What may be wrong with a connection or with what comes on it.

use std::io;

use http::StatusCode;

/// Whatever broke a body.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A connection that cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system says so.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// What came is no HTTP/1.1, or not surely.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The other end closed the connection, or went away.
    #[error("the connection ended before the end of {0}")]
    Ended(&'static str),
    /// A body of ours broke off, or is not as long as its head says.
    #[error("the body broke off: {0}")]
    Body(BoxError),
}

/// What is wrong with what came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// Not a first line, a header's name or value.
    #[error("the head is not HTTP/1.1: {0}")]
    Head(&'static str),
    /// More headers, or more bytes, than are read.
    #[error("the head is too long: at most {max_headers} headers and {max_bytes} bytes are read")]
    #[expect(missing_docs, reason = "the message says it")]
    TooLong {
        max_headers: usize,
        max_bytes: usize,
    },
    /// A `content-length` that is no number, or two that differ.
    #[error("content-length must be one number of bytes")]
    Length,
    /// A transfer coding beside a length, or in HTTP/1.0: where the body ends is anybody's guess.
    #[error("transfer-encoding stands beside content-length, or in HTTP/1.0")]
    Ambiguous,
    /// No `host` in HTTP/1.1, or several.
    #[error("host must be given, and once")]
    Host,
    /// `CONNECT`.
    #[error("CONNECT is not served: this is no proxy of that kind")]
    Tunnel,
    /// A transfer coding other than `chunked`.
    #[error("transfer-encoding must be chunked")]
    Coding,
    /// A chunk that is none.
    #[error("a chunk is malformed: {0}")]
    Chunk(&'static str),
}

// === impl Malformed ===

impl Malformed {
    /// The status to answer such a request with.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::TooLong { .. } => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Coding | Self::Tunnel => StatusCode::NOT_IMPLEMENTED,
            Self::Head(_) | Self::Length | Self::Ambiguous | Self::Host | Self::Chunk(_) => {
                StatusCode::BAD_REQUEST
            }
        }
    }
}

impl From<httparse::Error> for Malformed {
    fn from(error: httparse::Error) -> Self {
        match error {
            httparse::Error::HeaderName => Self::Head("a header's name is not allowed"),
            httparse::Error::HeaderValue => Self::Head("a header's value is not allowed"),
            httparse::Error::NewLine => Self::Head("a line does not end with CR LF"),
            httparse::Error::Status => Self::Head("the status is no number of three digits"),
            httparse::Error::Token => Self::Head("the first line is not one of HTTP"),
            httparse::Error::TooManyHeaders => Self::too_long(),
            httparse::Error::Version => Self::Head("the version is not HTTP/1.0 or HTTP/1.1"),
        }
    }
}
