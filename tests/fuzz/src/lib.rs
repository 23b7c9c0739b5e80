//! Code that the targets share: cutting bytes into pieces, and comparing JSON by its bytes.

use metaclaw_dialects::{Api, rewrite::Rewrite};

pub mod json;
pub mod wrap;

/// One input, read from its front: first choices, then the text.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// Creates a reader of `data`.
    pub fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    /// Returns the next byte, or 0 if there is none left.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    /// Returns up to `n` bytes.
    pub fn take(&mut self, n: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// Cuts `bytes` into pieces: each byte of `lengths` is the length of one, repeated; 0 is an empty piece. After several
/// rounds of the lengths, the rest is one last piece.
pub fn pieces<'a>(bytes: &'a [u8], lengths: &[u8]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    let mut rest = bytes;
    let is_endless = lengths.iter().any(|length| *length > 0);
    for length in lengths.iter().cycle().take_while(|_| is_endless) {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at(usize::from(*length).min(rest.len()));
        pieces.push(piece);
        rest = after;
    }
    pieces.push(rest);
    pieces
}

/// Returns one of the three APIs.
pub fn api(choice: u8) -> Api {
    [Api::Chat, Api::Responses, Api::Messages][usize::from(choice % 3)]
}

/// Returns the rewritten form of a reply that arrives in these pieces and then ends.
pub fn rewritten(rewrite: &mut dyn Rewrite, pieces: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in pieces {
        rewrite.feed(piece, &mut out);
    }
    rewrite.finish(&mut out);
    out
}
