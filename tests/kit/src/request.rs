//! A request as it came.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, BufRead},
    ops::Range,
};

use serde_json::Value;

#[derive(Clone)]
pub struct Request {
    /// The request line and the headers.
    pub head: String,
    pub body: Vec<u8>,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl Request {
    pub fn method(&self) -> &str {
        self.head.split(' ').next().unwrap_or_default()
    }

    /// The path with its query.
    pub fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    pub fn path(&self) -> &str {
        self.target().split('?').next().unwrap_or_default()
    }

    pub fn query(&self) -> &str {
        self.target().split_once('?').map_or("", |(_, query)| query)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers()
            .find_map(|(it, value)| it.eq_ignore_ascii_case(name).then_some(value))
    }

    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let lines = self
            .head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(':'));
        lines.map(|(name, value)| (name, value.trim()))
    }

    /// The headers of the message, without those of the single connection, which a relay must not change.
    pub fn end_to_end(&self) -> BTreeMap<String, String> {
        let headers = self
            .headers()
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()));
        headers
            .filter(|(name, _)| name != "host" && name != "connection")
            .collect()
    }

    /// The body, null if it is no JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The head and the body.
    pub fn text(&self) -> String {
        format!("{}{}", self.head, String::from_utf8_lossy(&self.body))
    }

    /// The part of a file that is asked for, if it is not all of it.
    pub(crate) fn range(&self, size: usize) -> Option<Range<usize>> {
        let range = self.header("range")?.strip_prefix("bytes=")?;
        let (from, last) = range.split_once('-')?;
        let end = last.parse().map_or(size, |last: usize| size.min(last + 1));
        Some(from.parse().ok()?..end)
    }

    /// Reads one; none if the connection has ended.
    pub(crate) fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut request = Self {
            head: String::new(),
            body: Vec::new(),
        };
        while !request.head.ends_with("\r\n\r\n") {
            if from.read_line(&mut request.head)? == 0 {
                return Ok(None);
            }
        }
        if let Some(length) = request.header("content-length") {
            request.body = vec![0; length.parse().expect("a length")];
            from.read_exact(&mut request.body)?;
        } else if request.header("transfer-encoding").is_some() {
            while let Some(chunk) = chunk(from)? {
                request.body.extend(chunk);
            }
        }
        Ok(Some(request))
    }
}

fn chunk(from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let size = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
    let mut chunk = vec![0; size + 2];
    from.read_exact(&mut chunk)?;
    chunk.truncate(size);
    Ok((size > 0).then_some(chunk))
}
