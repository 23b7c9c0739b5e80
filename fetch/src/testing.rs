//! A file server for tests of this crate and of others. It can ignore ranges, and can cut a connection.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot serve its file has failed"
)]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use sha2::{Digest, Sha256};

#[derive(Debug, Clone, Copy, Default)]
pub struct Manners {
    /// Whether the server answers a range with the whole file.
    pub no_ranges: bool,
    /// The number of first answers that end after `cut_after` bytes of their body.
    pub cuts: usize,
    pub cut_after: usize,
    /// If set, every answer has this status and no body.
    pub status: Option<u16>,
}

/// Serves one body at every path, until the test ends.
#[derive(Debug)]
pub struct TestServer {
    pub url: String,
    /// SHA-256 of the body in hexadecimal.
    pub sha256: String,
    /// The `Range` headers received.
    pub ranges: Arc<Mutex<Vec<String>>>,
}

impl TestServer {
    /// Serves `body`.
    ///
    /// # Panics
    /// Panics if no port is free.
    pub fn start(body: Vec<u8>, manners: Manners) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/a.whl", listener.local_addr().unwrap());
        let sha256 = crate::hash::hex(&Sha256::digest(&body));
        let ranges = Arc::new(Mutex::new(Vec::new()));
        let (seen, served) = (Arc::clone(&ranges), AtomicUsize::new(0));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let cut = served.fetch_add(1, Ordering::SeqCst) < manners.cuts;
                answer(stream.unwrap(), &body, manners, cut, &seen);
            }
        });
        Self {
            url,
            sha256,
            ranges,
        }
    }

    /// Returns the ranges requested so far, for example `0-99`.
    ///
    /// # Panics
    /// Panics if the server's thread has panicked.
    pub fn requests(&self) -> Vec<String> {
        self.ranges.lock().unwrap().clone()
    }
}

/// Each connection has one request and one answer. The requested range is in `seen` before the client has its answer.
fn answer(
    mut stream: TcpStream,
    body: &[u8],
    manners: Manners,
    cut: bool,
    seen: &Mutex<Vec<String>>,
) {
    let mut range = String::new();
    for line in BufReader::new(stream.try_clone().unwrap()).lines() {
        let line = line.unwrap();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("range: bytes=") {
            value.clone_into(&mut range);
        }
    }
    seen.lock().unwrap().push(range.clone());
    let (first, last) = range.split_once('-').unwrap();
    let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
    let last = last.min(body.len() - 1);
    let (head, part) = match manners {
        Manners {
            status: Some(status),
            ..
        } => (format!("{status} No"), &body[..0]),
        Manners {
            no_ranges: true, ..
        } => ("200 OK".to_owned(), body),
        _ => {
            let total = body.len();
            let head =
                format!("206 Partial Content\r\ncontent-range: bytes {first}-{last}/{total}");
            (head, &body[first..=last])
        }
    };
    let length = part.len();
    let head = format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    let sent = if cut {
        &part[..part.len().min(manners.cut_after)]
    } else {
        part
    };
    // The client may have closed the connection. The test decides whether that is a failure.
    let _ = stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(sent));
}
