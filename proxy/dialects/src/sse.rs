//! Reads server-sent events as they arrive.
//!
//! The grammar is that of the HTML standard, section 9.2.6 ("Interpreting an event stream"): lines end in LF, CR LF or
//! CR; a blank line ends an event; a byte order mark at the very beginning is skipped. The events do not depend on how
//! the bytes are split.
//!
//! Two things that the grammar ignores are read, because servers use them for errors: llama.cpp's `error: {..}`, which
//! becomes an event with that name, and JSON without any field.

use crate::lines::Lines;

/// The largest event in bytes. A longer one is skipped and counted.
pub const MAX_EVENT: usize = 4 << 20;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// One event of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseEvent {
    /// The `event:` field, if it has one.
    pub event: Option<String>,
    /// The `data:` lines, joined by LF.
    pub data: String,
}

/// Reads events from bytes that arrive in any pieces.
///
/// # Examples
/// ```
/// use metaclaw_dialects::sse::SseReader;
///
/// let mut reader = SseReader::new();
/// assert!(reader.feed(b"data: {\"delta\":").is_empty(), "the event goes on");
/// let events = reader.feed(b"\"Hi\"}\n\ndata: [DO");
/// assert_eq!(events[0].data, r#"{"delta":"Hi"}"#);
/// ```
#[derive(Debug)]
pub struct SseReader {
    line: Vec<u8>,
    lines: Lines,
    /// Whether no line has ended yet, so that a byte order mark may come before this one.
    at_start: bool,
    event: Option<String>,
    data: Option<Vec<u8>>,
    /// Whether the current event is JSON without a field.
    is_bare: bool,
    too_long: bool,
    n_skipped: u64,
    limit: usize,
}

// === impl SseReader ===

impl Default for SseReader {
    fn default() -> Self {
        Self::new()
    }
}

impl SseReader {
    /// Makes a reader at the beginning of a stream, with the limit [`MAX_EVENT`].
    pub fn new() -> Self {
        Self::with_limit(MAX_EVENT)
    }

    /// Makes a reader that skips events of more than `limit` bytes.
    pub fn with_limit(limit: usize) -> Self {
        Self {
            line: Vec::new(),
            lines: Lines::default(),
            at_start: true,
            event: None,
            data: None,
            is_bare: false,
            too_long: false,
            n_skipped: 0,
            limit,
        }
    }

    /// Reads more bytes, and returns the events that they complete.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Vec<SseEvent> {
        let mut events = Vec::new();
        while let Some(piece) = self.lines.cut(&mut bytes) {
            if piece.is_ended && self.line.is_empty() {
                // The line arrived completely, so it need not be stored first.
                events.extend(self.read_line(piece.text));
                continue;
            }
            self.extend_line(piece.text);
            if piece.is_ended {
                events.extend(self.end_line());
            }
        }
        events
    }

    /// The stream has ended. Returns the event that its last bytes left without a blank line, if any.
    ///
    /// The standard drops it. Clients of chat APIs accept it, because some servers leave out the last blank line.
    pub fn finish(mut self) -> Option<SseEvent> {
        let has_line = !self.line.is_empty();
        let ended = has_line.then(|| self.end_line()).flatten();
        ended.or_else(|| self.dispatch())
    }

    /// Returns how many events were skipped because they exceeded the limit.
    pub fn n_skipped(&self) -> u64 {
        self.n_skipped
    }

    fn extend_line(&mut self, bytes: &[u8]) {
        // One byte more than allowed is kept, besides a byte order mark, so that a line over the limit differs from one
        // at it.
        let room = (self.limit + 1 + BOM.len()).saturating_sub(self.line.len());
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn end_line(&mut self) -> Option<SseEvent> {
        let mut line = std::mem::take(&mut self.line);
        let event = self.read_line(&line);
        line.clear();
        self.line = line;
        event
    }

    fn read_line(&mut self, line: &[u8]) -> Option<SseEvent> {
        let text = match line.strip_prefix(BOM) {
            Some(rest) if self.at_start => rest,
            Some(_) | None => line,
        };
        self.at_start = false;
        if text.is_empty() {
            return self.dispatch();
        }
        self.field(text);
        None
    }

    fn field(&mut self, line: &[u8]) {
        if self.too_long || line.len() > self.limit {
            self.too_long = true;
            return;
        }
        if line.starts_with(b"{") || self.is_bare {
            self.is_bare = true;
            return self.add_data(line);
        }
        let colon = line.iter().position(|b| *b == b':');
        let (name, value) = match colon {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &line[line.len()..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => self.add_data(value),
            b"event" => self.event = Some(String::from_utf8_lossy(value).into_owned()),
            b"error" if !value.is_empty() => {
                self.event = Some("error".to_owned());
                self.add_data(value);
            }
            // `id`, `retry`, comments and unknown fields do not affect the reply.
            _ => {}
        }
    }

    fn add_data(&mut self, value: &[u8]) {
        let data = self.data.get_or_insert_default();
        if data.len() + value.len() + 1 > self.limit {
            self.too_long = true;
            *data = Vec::new();
            return;
        }
        data.reserve(value.len() + 1);
        data.extend_from_slice(value);
        data.push(b'\n');
    }

    fn dispatch(&mut self) -> Option<SseEvent> {
        let event = self.event.take();
        let data = self.data.take();
        self.is_bare = false;
        if std::mem::take(&mut self.too_long) {
            self.n_skipped += 1;
            return None;
        }
        let mut data = data?;
        data.pop_if(|last| *last == b'\n');
        let data = String::from_utf8(data)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        Some(SseEvent { event, data })
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn read(pieces: &[&[u8]], limit: usize) -> (Vec<SseEvent>, u64) {
        let mut reader = SseReader::with_limit(limit);
        let mut events: Vec<_> = pieces.iter().flat_map(|piece| reader.feed(piece)).collect();
        let n_skipped = reader.n_skipped();
        events.extend(reader.finish());
        (events, n_skipped)
    }

    fn data(text: &str) -> Vec<String> {
        let (events, _) = read(&[text.as_bytes()], MAX_EVENT);
        events.into_iter().map(|event| event.data).collect()
    }

    #[test]
    fn every_line_end_is_a_line_end() {
        let found = data("data: a\n\ndata: b\r\n\r\ndata: c\r\rdata: d\n\r\n");
        assert_eq!(found, ["a", "b", "c", "d"]);
    }

    #[test]
    fn data_lines_join_and_other_fields_are_left_alone() {
        let text = "\u{feff}: hi\nid: 7\nevent: delta\ndata: a\ndata:  b\ndata\n\nretry: 1\n\n";
        let (events, _) = read(&[text.as_bytes()], MAX_EVENT);
        let expected = SseEvent {
            event: Some("delta".into()),
            data: "a\n b\n".into(),
        };
        assert_eq!(events, [expected]);
    }

    #[test]
    fn the_last_event_may_lack_its_blank_line() {
        assert_eq!(data("data: a\n\ndata: [DONE]"), ["a", "[DONE]"]);
        assert_eq!(data("data: a\n\ndata: [DONE]\n"), ["a", "[DONE]"]);
    }

    #[test]
    fn a_byte_order_mark_is_one_at_the_very_beginning_alone() {
        assert_eq!(data("\u{feff}data: a\n\n\u{feff}data: b\n\n"), ["a"]);
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_what_is_limited() {
        let (allowed, too_long) = ("\u{feff}data:a", "\u{feff}data:ab");
        for (line, n_skipped) in [(allowed, 0), (too_long, 1)] {
            let text = format!("{line}\n\n");
            let (head, tail) = text.as_bytes().split_at(1);
            assert_eq!(read(&[head, tail], 6).1, n_skipped, "{line}");
            assert_eq!(read(&[text.as_bytes()], 6).1, n_skipped, "{line}");
        }
    }

    #[test]
    fn the_limit_is_that_of_all_data_lines_and_their_ends() {
        assert_eq!(read(&[b"data:a\ndata:b\ndata:cd\ndata:\n\n"], 8).1, 0);
        assert_eq!(read(&[b"data:a\ndata:b\ndata:cde\ndata:\n\n"], 8).1, 1);
    }

    #[test]
    fn an_event_over_the_limit_is_skipped_and_counted() {
        let text = b"data: 0123456789\n\ndata: ab\ndata: cdefgh\n\ndata: ok\n\n";
        let (events, n_skipped) = read(&[text], 9);
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!((events[0].data.as_str(), n_skipped), ("ok", 2));
    }

    proptest! {
        #[test]
        fn any_splitting_gives_the_same_events(
            lines in vec(prop_oneof![
                Just("data: {\"a\":1}".to_owned()), Just("event: x".into()), Just(": c".into()),
                Just(String::new()), "data:[ -~é]{0,12}", "[\u{feff}a-c:]{0,4}",
            ], 0..20),
            ends in vec(prop_oneof![Just("\n"), Just("\r"), Just("\r\n")], 20),
            cuts in vec(0usize..200, 0..12),
            limit in 6usize..40,
        ) {
            let text = lines.iter().zip(&ends).fold(String::new(), |text, (l, e)| text + l + e);
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|at| at % (bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
            prop_assert_eq!(read(&pieces, limit), read(&[bytes], limit));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..200)) {
            read(&[&bytes], 16);
        }
    }
}
