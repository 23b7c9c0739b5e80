//! Changes a reply on its way to the agent, one event at a time.
//!
//! Most replies pass unchanged. Some have to change: another API's format, tool calls that a model wrote as text, ids
//! that only the proxy requested. An [`EventRewrite`] changes them. [`Events`] gives it complete events, so that the
//! output bytes do not depend on how the input is split.

use std::mem;

use crate::{
    lines::Lines,
    sse::{MAX_EVENT, SseEvent, SseReader},
};

/// Changes a reply on its way. The output bytes do not depend on how the input is split.
pub trait Rewrite: Send {
    /// Processes the next bytes of the reply, and appends everything that can be passed on to `out`.
    fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>);

    /// The reply has ended in the upstream's way, so held bytes are passed on.
    ///
    /// Do not call it after a cut, which is passed on as a cut. Nothing that it adds makes an incomplete reply look
    /// complete.
    fn finish(&mut self, out: &mut Vec<u8>);
}

/// Two rewrites in sequence: for example tool calls out of the text, then the other API's format.
#[derive(Debug)]
pub struct Chained<A, B> {
    first: A,
    second: B,
    between: Vec<u8>,
}

/// One event with its position in the stream.
#[derive(Debug)]
pub struct RawEvent<'a> {
    /// Its bytes up to and including the blank line. An LF before it is the rest of a CR LF that ended the previous
    /// event.
    pub raw: &'a [u8],
    /// Its content, or `None` if it has no `data:` line, like a comment.
    pub event: Option<SseEvent>,
    /// Whether its blank line has arrived. Only the last event of a stream may lack it.
    pub is_ended: bool,
}

/// Changes one event after the other.
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
    /// Processes the next event, and appends its replacement to `out`.
    fn event(&mut self, event: RawEvent<'_>, out: &mut Vec<u8>);

    /// Processes a piece of an event that is too long to be parsed ([`MAX_EVENT`]). It is passed on.
    fn unread(&mut self, raw: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(raw);
    }

    /// Ends the stream after the last event. See [`Rewrite::finish`].
    fn finish(&mut self, out: &mut Vec<u8>);
}

/// Cuts a stream into events for an [`EventRewrite`].
#[derive(Debug)]
pub struct Events<R> {
    rewrite: R,
    /// The reader, which has read all events except the current one.
    reader: SseReader,
    raw: Vec<u8>,
    lines: Lines,
    /// Whether the current event exceeds the limit, and is passed on without being parsed.
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

impl<A: Rewrite, B: Rewrite> Chained<A, B> {
    /// Combines `first` and then `second`.
    pub fn new(first: A, second: B) -> Self {
        Self {
            first,
            second,
            between: Vec::new(),
        }
    }
}

impl<A: Rewrite, B: Rewrite> Rewrite for Chained<A, B> {
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
    /// Starts at the beginning of a stream, with the limit [`MAX_EVENT`].
    pub fn new(rewrite: R) -> Self {
        Self::with_limit(rewrite, MAX_EVENT)
    }

    /// Starts at the beginning of a stream. Events of more than `limit` bytes are passed on without being parsed.
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

    #[derive(Default)]
    struct Noting;

    impl EventRewrite for Noting {
        fn event(&mut self, event: RawEvent<'_>, out: &mut Vec<u8>) {
            let said = event.event.map(|event| event.data);
            out.extend(format!("<{said:?} {}>", event.is_ended).bytes());
            out.extend(event.raw);
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
        let found = noted(text, 12);
        assert_eq!(
            found,
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
