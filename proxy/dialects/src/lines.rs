//! Lines of an event stream, cut as their bytes come: LF, CR LF or CR ends one.

use memchr::memchr2;

/// Cuts bytes that come in any pieces into lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// The last byte was CR: an LF right after it belongs to the same line end.
    after_cr: bool,
    /// A part of the line under way has come.
    is_begun: bool,
}

/// A line, or as much of one as came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    /// All its bytes, the line end among them.
    pub raw: &'a [u8],
    /// What stands before the line end.
    pub text: &'a [u8],
    /// The line has ended.
    pub is_ended: bool,
    /// It has ended, and nothing stands on it.
    pub is_blank: bool,
}

// === impl Lines ===

impl Lines {
    /// Takes the next piece off the front of `bytes`; `None` where nothing is left.
    pub(crate) fn cut<'a>(&mut self, bytes: &mut &'a [u8]) -> Option<Piece<'a>> {
        let first = *bytes.first()?;
        let is_lf_of_cr = std::mem::take(&mut self.after_cr) && first == b'\n';
        let end = memchr2(b'\n', b'\r', bytes).filter(|_| !is_lf_of_cr);
        let (n_text, n_raw) = match end {
            Some(end) => (end, end + 1),
            None if is_lf_of_cr => (0, 1),
            None => (bytes.len(), bytes.len()),
        };
        let (raw, rest) = bytes.split_at(n_raw);
        *bytes = rest;
        self.after_cr = end.is_some() && raw.ends_with(b"\r");
        let is_begun = self.is_begun || n_text > 0;
        self.is_begun = is_begun && end.is_none();
        Some(Piece {
            raw,
            text: &raw[..n_text],
            is_ended: end.is_some(),
            is_blank: end.is_some() && !is_begun,
        })
    }
}
