//! Cuts an event stream into lines as its bytes arrive. LF, CR LF or CR ends a line.

use memchr::memchr2;

#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// Whether the last byte was CR. An LF right after it belongs to the same line end.
    after_cr: bool,
    is_begun: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinePiece<'a> {
    /// All its bytes, including the line end.
    pub raw: &'a [u8],
    /// The bytes before the line end.
    pub text: &'a [u8],
    /// Whether the line has ended.
    pub is_ended: bool,
    /// Whether it has ended and is empty.
    pub is_blank: bool,
}

// === impl Lines ===

impl Lines {
    pub(crate) fn cut<'a>(&mut self, bytes: &mut &'a [u8]) -> Option<LinePiece<'a>> {
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
        Some(LinePiece {
            raw,
            text: &raw[..n_text],
            is_ended: end.is_some(),
            is_blank: end.is_some() && !is_begun,
        })
    }
}
