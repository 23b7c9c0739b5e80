//! A reply changed on its way to the agent, an event at a time.
//!
//! Most replies pass untouched. A few have to change: another API's shape, tool calls that a model
//! wrote as text, ids that only we asked for. What changes them is an [`EventRewrite`]; [`Events`] feeds
//! it whole events, so that any splitting of the input gives the same output bytes.

use std::mem;

use crate::{
    lines::Lines,
    sse::{MAX_EVENT, SseEvent, SseReader},
};

/// Rewrites a reply on its way. Any splitting of the input gives the same output bytes.
pub trait Rewrite: Send {
    /// More of the reply has come; what can go on is appended to `out`.
    fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>);

    /// The reply has ended, as upstream ends one: what was held back goes on.
    ///
    /// Not to be called after a cut, which is passed on as a cut. Nothing is added here that would make a
    /// torn reply look whole.
    fn finish(&mut self, out: &mut Vec<u8>);
}

/// One rewrite, and another of what that gives: tool calls out of the text, then the other API's shape.
#[derive(Debug)]
pub struct Then<A, B> {
    first: A,
    second: B,
    between: Vec<u8>,
}

/// One event as it stands in the stream.
#[derive(Debug)]
pub struct RawEvent<'a> {
    /// Its bytes, up to and including the blank line. An LF before it is the rest of a CR LF that
    /// ended the event before.
    pub raw: &'a [u8],
    /// What it says; `None` where it has no `data:` line, as a comment.
    pub event: Option<SseEvent>,
    /// Its blank line has come. Only the last event of a stream may lack it.
    pub is_ended: bool,
}

/// Rewrites one event after the other.
///
/// # Examples
/// ```
/// use metaclaw_dialects::rewrite::{EventRewrite, Events, RawEvent, Rewrite as _};
///
/// /// Leaves comments out, which keep a connection alive, and splices everything else through as it is.
/// struct WithoutComments;
///
/// impl EventRewrite for WithoutComments {
///     fn event(&mut self, event: RawEvent<'_>, out: &mut Vec<u8>) {
///         if event.event.is_some() {
///             out.extend(event.raw);
///         }
///     }
///
///     fn unread(&mut self, raw: &[u8], out: &mut Vec<u8>) {
///         out.extend(raw);
///     }
///
///     fn finish(&mut self, _out: &mut Vec<u8>) {}
/// }
///
/// let (mut rewrite, mut out) = (Events::new(WithoutComments), Vec::new());
/// // Any splitting of the input gives the same bytes.
/// for piece in [": ping\n\nda", "ta: 1\n", "\ndata: 2\n\n"] {
///     rewrite.feed(piece.as_bytes(), &mut out);
/// }
/// assert_eq!(out, b"data: 1\n\ndata: 2\n\n");
/// ```
pub trait EventRewrite: Send {
    /// The next event: what goes on in its place is appended to `out`.
    fn event(&mut self, event: RawEvent<'_>, out: &mut Vec<u8>);

    /// A piece of an event that is too long to be read ([`MAX_EVENT`]).
    fn unread(&mut self, raw: &[u8], out: &mut Vec<u8>);

    /// After the last event: see [`Rewrite::finish`].
    fn finish(&mut self, out: &mut Vec<u8>);
}

/// Cuts a stream into events for an [`EventRewrite`].
#[derive(Debug)]
pub struct Events<R> {
    rewrite: R,
    /// Has read all events but the one under way.
    reader: SseReader,
    /// The event under way, as it came.
    raw: Vec<u8>,
    lines: Lines,
    /// The event under way is over the limit, and is handed on unread.
    too_long: bool,
    limit: usize,
}

impl<R: Rewrite + ?Sized> Rewrite for Box<R> {
    fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        (**self).feed(bytes, out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        (**self).finish(out);
    }
}

// === impl Then ===

impl<A: Rewrite, B: Rewrite> Then<A, B> {
    /// `second` after `first`.
    pub fn new(first: A, second: B) -> Self {
        Self {
            first,
            second,
            between: Vec::new(),
        }
    }
}

impl<A: Rewrite, B: Rewrite> Rewrite for Then<A, B> {
    fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.first.feed(bytes, &mut self.between);
        self.second.feed(&self.between, out);
        self.between.clear();
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.first.finish(&mut self.between);
        self.second.feed(&self.between, out);
        self.between.clear();
        self.second.finish(out);
    }
}

// === impl Events ===

impl<R: EventRewrite> Events<R> {
    /// At the beginning of a stream, with the limit [`MAX_EVENT`].
    pub fn new(rewrite: R) -> Self {
        Self::with_limit(rewrite, MAX_EVENT)
    }

    /// At the beginning of a stream; events of more than `limit` bytes go on unread.
    pub fn with_limit(rewrite: R, limit: usize) -> Self {
        Self {
            rewrite,
            reader: SseReader::with_limit(limit),
            raw: Vec::new(),
            lines: Lines::default(),
            too_long: false,
            limit,
        }
    }

    fn buffer(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.raw.extend_from_slice(bytes);
        if self.too_long || self.raw.len() > self.limit {
            self.too_long = true;
            self.rewrite.unread(&mem::take(&mut self.raw), out);
        }
    }

    fn end_event(&mut self, out: &mut Vec<u8>) {
        if mem::take(&mut self.too_long) {
            return;
        }
        let mut raw = mem::take(&mut self.raw);
        let event = RawEvent {
            raw: &raw,
            event: self.reader.feed(&raw).pop(),
            is_ended: true,
        };
        self.rewrite.event(event, out);
        raw.clear();
        self.raw = raw;
    }
}

impl<R: EventRewrite> Rewrite for Events<R> {
    fn feed(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while let Some(piece) = self.lines.cut(&mut bytes) {
            self.buffer(piece.raw, out);
            if piece.is_blank {
                self.end_event(out);
            }
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        let raw = mem::take(&mut self.raw);
        let mut reader = mem::take(&mut self.reader);
        if !raw.is_empty() {
            let event = reader.feed(&raw).pop().or_else(|| reader.finish());
            let event = RawEvent {
                raw: &raw,
                event,
                is_ended: false,
            };
            self.rewrite.event(event, out);
        }
        self.rewrite.finish(out);
    }
}

/// Runs a rewrite over pieces, for tests.
#[cfg(test)]
pub(crate) fn rewritten<'a>(
    mut rewrite: impl Rewrite,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in pieces {
        rewrite.feed(piece, &mut out);
    }
    rewrite.finish(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::testing::pieces;

    /// Passes all on, with what it saw of each event before it.
    #[derive(Default)]
    struct Noting;

    impl EventRewrite for Noting {
        fn event(&mut self, event: RawEvent<'_>, out: &mut Vec<u8>) {
            let said = event.event.map(|event| event.data);
            out.extend(format!("<{said:?} {}>", event.is_ended).bytes());
            out.extend(event.raw);
        }

        fn unread(&mut self, raw: &[u8], out: &mut Vec<u8>) {
            out.extend(raw);
        }

        fn finish(&mut self, out: &mut Vec<u8>) {
            out.extend(b"<end>");
        }
    }

    fn noted(text: &str, limit: usize) -> String {
        let out = rewritten(Events::with_limit(Noting, limit), [text.as_bytes()]);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_event_comes_with_its_bytes() {
        insta::assert_snapshot!(noted(": hi\n\ndata: a\ndata: b\r\n\r\ndata: c", 100).replace('\r', "␍"), @r#"
        <None true>: hi

        <Some("a\nb") true>data: a
        data: b␍
        ␍<Some("c") false>
        data: c<end>
        "#);
    }

    #[test]
    fn an_event_over_the_limit_passes_unread_and_the_next_is_read() {
        let text = "data: 0123456789\n\ndata: ok\n\n";
        assert_eq!(
            noted(text, 12),
            "data: 0123456789\n\n<Some(\"ok\") true>data: ok\n\n<end>"
        );
    }

    proptest! {
        #[test]
        fn any_splitting_gives_the_same_bytes_and_loses_none(
            text in "[ab:\\n\\r]{0,60}|(data: [a-c]{0,9}(\\r\\n|\\n|\\r){1,2}){0,9}",
            cuts in vec(any::<usize>(), 0..8),
            limit in 4usize..40,
        ) {
            let whole = noted(&text, limit);
            let split = rewritten(Events::with_limit(Noting, limit), pieces(text.as_bytes(), &cuts));
            prop_assert_eq!(&whole, &String::from_utf8(split).unwrap());
            let mut plain = String::new();
            for piece in whole.split('<') {
                plain.push_str(piece.split_once('>').map_or(piece, |(_, raw)| raw));
            }
            prop_assert_eq!(plain, text);
        }
    }
}
