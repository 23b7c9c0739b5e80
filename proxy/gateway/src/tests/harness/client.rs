//! A client that speaks plain bytes.

use std::{net::SocketAddr, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::messages::{SOON, find, header};

/// A response as the client saw it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Whether the message ended as its framing says. Otherwise it was cut.
    pub(crate) is_whole: bool,
}

/// A connection of the client.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        Self {
            stream,
            // Room for all, so that one read takes all that is there.
            buffer: Vec::with_capacity(1 << 20),
        }
    }

    pub(crate) async fn send(&mut self, bytes: &(impl AsRef<[u8]> + ?Sized)) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Reads until the text has arrived.
    pub(crate) async fn until(&mut self, text: &str) {
        let wait = async {
            while find(&self.buffer, text.as_bytes()).is_none() {
                let n_bytes = self.stream.read_buf(&mut self.buffer).await.unwrap();
                let seen = String::from_utf8_lossy(&self.buffer);
                assert_ne!(n_bytes, 0, "the connection ended; seen: {seen}");
            }
        };
        timeout(SOON, wait).await.expect(text);
    }

    /// Returns whether nothing more arrives for 100 ms.
    pub(crate) async fn is_silent(&mut self) -> bool {
        let more = self.stream.read_buf(&mut self.buffer);
        timeout(Duration::from_millis(100), more).await.is_err()
    }

    /// Reads one response until it ends or is cut.
    pub(crate) async fn read(&mut self) -> Seen {
        timeout(SOON, self.response()).await.expect("a response")
    }

    /// Reads a long chunked response to its end, and returns its number of bytes.
    pub(crate) async fn count(&mut self) -> u64 {
        const END: &[u8] = b"\r\n0\r\n\r\n";
        let mut n_bytes = 0;
        loop {
            self.stream.read_buf(&mut self.buffer).await.unwrap();
            if self.buffer.ends_with(END) {
                return n_bytes + self.buffer.len() as u64;
            }
            let kept = self.buffer.len().saturating_sub(END.len());
            self.buffer.drain(..kept);
            n_bytes += kept as u64;
        }
    }

    async fn response(&mut self) -> Seen {
        let mut at_end = false;
        loop {
            if let Some((seen, n_bytes)) = parse(&self.buffer, at_end) {
                self.buffer.drain(..n_bytes);
                return seen;
            }
            assert!(
                !at_end,
                "no response: {}",
                String::from_utf8_lossy(&self.buffer)
            );
            // A reset is an end as well.
            at_end = !matches!(self.stream.read_buf(&mut self.buffer).await, Ok(n) if n > 0);
        }
    }
}

impl Seen {
    pub(crate) fn status(&self) -> u16 {
        self.head.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// Returns the text, and whether it is whole.
    pub(crate) fn content(&self) -> (&str, bool) {
        (self.text(), self.is_whole)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// Returns why a request was refused: the status and the message.
    pub(crate) fn refusal(&self) -> (u16, String) {
        let body = self.json();
        let message = body["error"]["message"].as_str().unwrap();
        (self.status(), message.to_owned())
    }

    /// Returns the status and the seconds after which the client is to come again.
    pub(crate) fn retry(&self) -> (u16, Option<&str>) {
        (self.status(), self.header("retry-after"))
    }
}

/// Returns a response and its number of bytes in the buffer, because another one may follow.
fn parse(buffer: &[u8], at_end: bool) -> Option<(Seen, usize)> {
    let end = find(buffer, b"\r\n\r\n")? + 4;
    let head = String::from_utf8(buffer[..end].to_vec()).unwrap();
    let rest = &buffer[end..];
    let mut taken = buffer.len();
    let (body, is_whole) = if let Some(n_bytes) = header(&head, "content-length") {
        let n_bytes: usize = n_bytes.parse().unwrap();
        taken = taken.min(end + n_bytes);
        (
            rest[..rest.len().min(n_bytes)].to_vec(),
            rest.len() >= n_bytes,
        )
    } else if header(&head, "transfer-encoding").is_some() {
        dechunk(rest)
    } else {
        (rest.to_vec(), at_end)
    };
    let seen = Seen {
        head,
        body,
        is_whole,
    };
    (is_whole || at_end).then_some((seen, taken))
}

fn dechunk(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while let Some(line) = find(rest, b"\r\n") {
        let size = std::str::from_utf8(&rest[..line]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        let chunk = &rest[line + 2..];
        if size == 0 {
            return (body, chunk.starts_with(b"\r\n"));
        }
        body.extend_from_slice(&chunk[..chunk.len().min(size)]);
        rest = chunk.get(size + 2..).unwrap_or_default();
    }
    (body, false)
}
