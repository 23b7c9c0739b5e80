//! A file server. It can ignore ranges, and can cut a connection.

use std::sync::atomic::{AtomicUsize, Ordering};

use metaclaw_test_kit::{Reply, Server};
use sha2::{Digest, Sha256};

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Manners {
    pub(crate) no_ranges: bool,
    /// The number of first answers that end after `cut_after` bytes of their body.
    pub(crate) cuts: usize,
    pub(crate) cut_after: usize,
    pub(crate) status: Option<u16>,
}

pub(crate) struct TestServer {
    pub(crate) url: String,
    /// SHA-256 of the body in hexadecimal.
    pub(crate) sha256: String,
    server: Server,
}

impl TestServer {
    pub(crate) fn start(body: Vec<u8>, manners: Manners) -> Self {
        let sha256 = crate::hash::hex(&Sha256::digest(&body));
        let n_served = AtomicUsize::new(0);
        let server = Server::new(move |request| {
            let is_cut = n_served.fetch_add(1, Ordering::SeqCst) < manners.cuts;
            let reply = match (manners.status, manners.no_ranges) {
                (Some(status), _) => Reply::status(status, ""),
                (None, true) => Reply::bytes(body.clone()),
                (None, false) => Reply::file(&body, request),
            };
            if is_cut {
                reply.cut(manners.cut_after)
            } else {
                reply
            }
        });
        Self {
            url: format!("{}/a.whl", server.url()),
            sha256,
            server,
        }
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        let asked = self.server.asked();
        let ranges = asked
            .iter()
            .map(|request| request.header("range").unwrap_or_default());
        ranges.map(|range| range.replace("bytes=", "")).collect()
    }
}
