//! What a scripted server answers.

use std::{
    fmt::Display,
    io::{self, Write},
};

use crate::request::Request;

/// A status, headers and a body, or bytes as they are.
pub struct Reply {
    /// Without it, neither status line nor headers are sent.
    status: Option<u16>,
    headers: String,
    body: Body,
    end: End,
}

enum Body {
    Whole(Vec<u8>),
    /// Each is sent when it is there: an iterator may take its time.
    Pieces(Box<dyn Iterator<Item = Vec<u8>> + Send>),
}

/// What comes after the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Whole,
    /// The connection ends.
    Cut,
    /// Nothing more comes until the client hangs up.
    Silence,
}

impl Reply {
    /// Status 200 and JSON, given as a value or as its text.
    pub fn json(body: impl Display) -> Self {
        Self::status(200, body)
    }

    /// JSON with another status.
    pub fn status(status: u16, body: impl Display) -> Self {
        let reply = Self::bytes(body.to_string()).header("content-type", "application/json");
        Self {
            status: Some(status),
            ..reply
        }
    }

    /// Status 200 and a body of no kind.
    pub fn bytes(body: impl Into<Vec<u8>>) -> Self {
        Self {
            status: Some(200),
            headers: String::new(),
            body: Body::Whole(body.into()),
            end: End::Whole,
        }
    }

    /// A file, or the part of it that is asked for.
    pub fn file(file: &[u8], request: &Request) -> Self {
        let Some(range) = request.range(file.len()) else {
            return Self::bytes(file);
        };
        let (first, last) = (range.start, range.end - 1);
        let place = format!("bytes {first}-{last}/{}", file.len());
        let part = Self {
            status: Some(206),
            ..Self::bytes(&file[range])
        };
        part.header("content-range", place)
    }

    /// The length of a whole body.
    pub fn n_bytes(&self) -> usize {
        match &self.body {
            Body::Whole(body) => body.len(),
            Body::Pieces(_) => 0,
        }
    }

    /// Status 200 and server-sent events, each a piece of its own.
    pub fn events<E: Into<Vec<u8>> + 'static>(
        events: impl IntoIterator<Item = E, IntoIter: Send + 'static>,
    ) -> Self {
        let events = Body::Pieces(Box::new(events.into_iter().map(Into::into)));
        let reply = Self {
            body: events,
            ..Self::bytes("")
        };
        reply.header("content-type", "text/event-stream")
    }

    /// These bytes, head and all, and the end of the connection.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            status: None,
            end: End::Cut,
            ..Self::bytes(bytes)
        }
    }

    /// The end of the connection.
    pub fn hang_up() -> Self {
        Self::raw("")
    }

    /// Nothing, until the client hangs up.
    pub fn silence() -> Self {
        Self::raw("").stalled()
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: impl Display) -> Self {
        let line = format!("{name}: {value}\r\n");
        self.headers.push_str(&line);
        self
    }

    /// The connection ends after the pieces, or after so many bytes of a whole body.
    #[must_use]
    pub fn cut(mut self, after: usize) -> Self {
        self.end = End::Cut;
        let Body::Whole(body) = &mut self.body else {
            return self;
        };
        let length = body.len();
        body.truncate(after);
        self.header("content-length", length)
    }

    /// Nothing more comes after the pieces.
    #[must_use]
    pub fn stalled(mut self) -> Self {
        self.end = End::Silence;
        self
    }

    pub(crate) fn send(self, to: &mut impl Write, has_body: bool) -> io::Result<End> {
        if let Some(status) = self.status {
            write!(to, "HTTP/1.1 {status} Said\r\n{}", self.headers)?;
        }
        match self.body {
            Body::Whole(body) => {
                if self.status.is_some() {
                    if !self.headers.contains("content-length: ") {
                        write!(to, "content-length: {}\r\n", body.len())?;
                    }
                    to.write_all(b"\r\n")?;
                }
                if has_body {
                    to.write_all(&body)?;
                }
            }
            Body::Pieces(pieces) => {
                to.write_all(b"transfer-encoding: chunked\r\n\r\n")?;
                to.flush()?;
                for piece in pieces {
                    write!(to, "{:x}\r\n", piece.len())?;
                    to.write_all(&piece)?;
                    to.write_all(b"\r\n")?;
                    to.flush()?;
                }
                if self.end == End::Whole {
                    to.write_all(b"0\r\n\r\n")?;
                }
            }
        }
        to.flush()?;
        Ok(self.end)
    }
}
