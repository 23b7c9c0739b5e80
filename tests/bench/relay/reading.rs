//! Reads one reply as it arrives: nothing waits for data that was not requested, and every event has the time of its
//! last byte.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use tokio::{io::AsyncReadExt as _, net::TcpStream};

/// This is larger than any reply's head.
const MAX_HEAD: usize = 16 << 10;

/// The result of one request.
#[derive(Debug, Default)]
pub struct Came {
    /// The time from sending to the first byte of the body.
    pub first_byte: Duration,
    /// The time from sending to the end.
    pub total: Duration,
    /// The time from sending to each event's end.
    pub events: Vec<Duration>,
    /// Whether the server closes the connection now.
    pub closes: bool,
}

/// The expected reply.
#[derive(Debug, Clone, Copy)]
pub enum Wanted<'a> {
    /// Exactly these bytes.
    Exactly(&'a [u8]),
    /// A success that ends with these bytes.
    EndsWith(&'a [u8]),
}

/// A reply that is being read. Its buffers are used again for the next one.
#[derive(Debug)]
pub struct Reading {
    /// The result of the last one.
    pub came: Came,
    buffer: Vec<u8>,
    sent: Instant,
    n_bytes: usize,
    /// The last bytes of the body.
    tail: Vec<u8>,
}

/// How the body's length is given.
enum Framing {
    Length(usize),
    Chunked,
}

struct Head {
    framing: Framing,
    closes: bool,
    length: usize,
}

/// The position in a chunked body.
enum Chunked {
    Size,
    Data(usize),
    AfterData,
    Trailer,
    Over,
}

// === impl Reading ===

impl Reading {
    /// Creates a reader for one connection.
    pub fn new() -> Self {
        Self {
            buffer: vec![0; 64 << 10],
            came: Came::default(),
            sent: Instant::now(),
            n_bytes: 0,
            tail: Vec::new(),
        }
    }

    /// Reads the reply to the request that was sent at `sent`.
    ///
    /// # Errors
    /// Returns an error if it is no success, is cut, or differs from the expected reply.
    pub async fn reply(
        &mut self,
        stream: &mut TcpStream,
        sent: Instant,
        wanted: Wanted<'_>,
    ) -> Result<()> {
        self.sent = sent;
        self.n_bytes = 0;
        self.tail.clear();
        self.came.events.clear();
        let mut filled = 0;
        let head = loop {
            filled += self.fill(stream, filled).await?;
            if let Some(head) = head(&self.buffer[..filled])? {
                break head;
            }
            ensure!(filled < MAX_HEAD, "a head of over {MAX_HEAD} bytes");
        };
        self.came.closes = head.closes;
        match head.framing {
            Framing::Length(length) => {
                self.by_length(stream, head.length..filled, length, wanted)
                    .await?;
            }
            Framing::Chunked => self.by_chunks(stream, head.length..filled, wanted).await?,
        }
        self.came.total = self.sent.elapsed();
        match wanted {
            Wanted::Exactly(whole) => ensure!(
                self.n_bytes == whole.len(),
                "{} of {} bytes came",
                self.n_bytes,
                whole.len()
            ),
            Wanted::EndsWith(end) => ensure!(
                self.tail.ends_with(end),
                "it ends in {:?}",
                String::from_utf8_lossy(&self.tail)
            ),
        }
        Ok(())
    }

    async fn fill(&mut self, stream: &mut TcpStream, from: usize) -> Result<usize> {
        let n_bytes = stream.read(&mut self.buffer[from..]).await?;
        ensure!(
            n_bytes > 0,
            "the connection was closed in the middle of a reply"
        );
        Ok(n_bytes)
    }

    async fn by_length(
        &mut self,
        stream: &mut TcpStream,
        first: std::ops::Range<usize>,
        length: usize,
        wanted: Wanted<'_>,
    ) -> Result<()> {
        let mut here = first;
        loop {
            if !here.is_empty() {
                self.data(here.clone(), self.sent.elapsed(), wanted)?;
            }
            if self.n_bytes >= length {
                break;
            }
            here = 0..self.fill(stream, 0).await?;
        }
        ensure!(
            self.n_bytes == length,
            "more bytes came than were announced"
        );
        Ok(())
    }

    async fn by_chunks(
        &mut self,
        stream: &mut TcpStream,
        first: std::ops::Range<usize>,
        wanted: Wanted<'_>,
    ) -> Result<()> {
        let mut state = Chunked::Size;
        let (mut at, mut filled) = (first.start, first.end);
        loop {
            let now = self.sent.elapsed();
            // The rest is less than one step needs.
            while self.step(&mut state, &mut at, filled, now, wanted)? {}
            if matches!(state, Chunked::Over) {
                ensure!(at == filled, "something came after the end");
                return Ok(());
            }
            self.buffer.copy_within(at..filled, 0);
            (at, filled) = (0, filled - at);
            filled += self.fill(stream, filled).await?;
        }
    }

    /// Reads one step of what has arrived; returns `false` if more is needed.
    fn step(
        &mut self,
        state: &mut Chunked,
        at: &mut usize,
        filled: usize,
        now: Duration,
        wanted: Wanted<'_>,
    ) -> Result<bool> {
        let here = &self.buffer[*at..filled];
        match *state {
            Chunked::Size | Chunked::AfterData | Chunked::Trailer => {
                let Some(end) = here.windows(2).position(|two| two == b"\r\n") else {
                    return Ok(false);
                };
                *state = match *state {
                    Chunked::Size => match chunk_size(&here[..end])? {
                        0 => Chunked::Trailer,
                        size => Chunked::Data(size),
                    },
                    Chunked::AfterData => Chunked::Size,
                    _ if end == 0 => Chunked::Over,
                    _ => Chunked::Trailer,
                };
                *at += end + 2;
                Ok(true)
            }
            Chunked::Data(left) => {
                let n_bytes = left.min(here.len());
                if n_bytes == 0 {
                    return Ok(false);
                }
                self.data(*at..*at + n_bytes, now, wanted)?;
                *at += n_bytes;
                *state = if n_bytes == left {
                    Chunked::AfterData
                } else {
                    Chunked::Data(left - n_bytes)
                };
                Ok(true)
            }
            Chunked::Over => Ok(false),
        }
    }

    /// Takes bytes of the body.
    fn data(
        &mut self,
        range: std::ops::Range<usize>,
        now: Duration,
        wanted: Wanted<'_>,
    ) -> Result<()> {
        const TAIL: usize = 16;
        let data = &self.buffer[range];
        if self.n_bytes == 0 {
            self.came.first_byte = now;
        }
        if let Wanted::Exactly(whole) = wanted {
            let same = whole.get(self.n_bytes..self.n_bytes + data.len());
            ensure!(
                same == Some(data),
                "the reply's bytes differ from byte {} on",
                self.n_bytes
            );
        }
        self.n_bytes += data.len();
        // An event ends with an empty line, which may have begun in the previous piece.
        let mut last = self.tail.last().copied();
        for byte in data {
            if *byte == b'\n' && last == Some(b'\n') {
                self.came.events.push(now);
            }
            last = Some(*byte);
        }
        self.tail
            .extend_from_slice(&data[data.len().saturating_sub(TAIL)..]);
        let surplus = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..surplus);
        Ok(())
    }
}

/// Reads a head; returns `None` if it is incomplete.
fn head(bytes: &[u8]) -> Result<Option<Head>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&bytes[..end]).context("a head that is not UTF-8")?;
    let mut lines = text.split("\r\n");
    let status = lines.next().unwrap_or_default();
    let code = status.split(' ').nth(1).unwrap_or_default();
    if code != "200" {
        bail!("{status}");
    }
    let (mut framing, mut closes) = (None, false);
    for line in lines {
        let Some((name, value)) = line.split_once(':') else {
            bail!("no header: {line}");
        };
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            framing = Some(Framing::Length(value.parse()?));
        } else if name.eq_ignore_ascii_case("transfer-encoding")
            && value.eq_ignore_ascii_case("chunked")
        {
            framing = Some(Framing::Chunked);
        } else if name.eq_ignore_ascii_case("connection") {
            closes = value.eq_ignore_ascii_case("close");
        }
    }
    let framing = framing.context("the reply does not say how long it is")?;
    let length = end + 4;
    Ok(Some(Head {
        framing,
        closes,
        length,
    }))
}

fn chunk_size(line: &[u8]) -> Result<usize> {
    let line = std::str::from_utf8(line)?;
    let digits = line.split(';').next().unwrap_or_default().trim();
    usize::from_str_radix(digits, 16).with_context(|| format!("no chunk size: {line:?}"))
}
