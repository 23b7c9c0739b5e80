//! What has come together goes on together.
//!
//! A model server that is fast, or far away, sends many small chunks at once. hyper hands them over one by
//! one from another task, and each would be a write of its own, which costs more than all else that happens
//! to it. So after each piece but the first the
//! upstream's connection gets a turn to hand over the next: no clock, and no wait for bytes that are not
//! here yet.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};

/// What goes on together at most. As much as a record of TLS holds.
const MOST: usize = 16 << 10;
/// How often a body is found empty before what is held goes on. hyper's HTTP/1 asks twice before it
/// gives way to another task; and where another thread has taken our turn, the connection's may
/// come a little later than ours.
const ASKS: u8 = 4;

/// A body whose small pieces come as fewer larger ones: the same bytes, the same end.
#[derive(Debug)]
pub(super) struct Gather<B: Body> {
    body: B,
    holding: Holding,
    /// What came and has not gone on.
    held: Held,
    /// How often there was nothing since the last piece.
    n_asked: u8,
    /// What came behind `held`: trailers or an error.
    next: Option<Result<Frame<Bytes>, B::Error>>,
    is_over: bool,
}

/// Whether a piece is held for the next.
#[derive(Debug, Clone, Copy)]
enum Holding {
    Never,
    /// Not the first: it is what the agent waits for longest.
    NotYet,
    Always,
}

/// Pieces, copied together from the second on.
#[derive(Debug)]
enum Held {
    Nothing,
    One(Bytes),
    Many(BytesMut),
}

// === impl Gather ===

impl<B: Body<Data = Bytes> + Unpin> Gather<B> {
    /// Pieces of `body`, gathered where `holds` says so.
    pub(super) fn new(body: B, holds: bool) -> Self {
        let holding = if holds {
            Holding::NotYet
        } else {
            Holding::Never
        };
        Self {
            body,
            holding,
            held: Held::Nothing,
            n_asked: 0,
            next: None,
            is_over: false,
        }
    }

    /// Whether there is something that goes on soon, whatever comes.
    pub(super) fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// Takes a piece in; what is to go on at once, where it is not to be held.
    fn take(&mut self, data: Bytes) -> Option<Bytes> {
        self.n_asked = 0;
        self.held.push(data);
        let goes_on = match self.holding {
            Holding::Never => true,
            Holding::NotYet => {
                self.holding = Holding::Always;
                true
            }
            Holding::Always => self.held.len() >= MOST || self.body.is_end_stream(),
        };
        goes_on.then(|| self.held.take()).flatten()
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Gather<B>
where
    B::Error: Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        if let Some(next) = this.next.take() {
            return Poll::Ready(Some(next));
        }
        if this.is_over {
            return Poll::Ready(None);
        }
        loop {
            let came = match Pin::new(&mut this.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => match this.take(data) {
                        Some(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                        None => continue,
                    },
                    Err(trailers) => Some(Ok(trailers)),
                },
                Poll::Ready(other) => other,
                Poll::Pending if this.held.is_empty() => return Poll::Pending,
                Poll::Pending if this.n_asked < ASKS => {
                    // Behind the connection's task, which our taking has woken.
                    this.n_asked += 1;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Pending => {
                    let held = this.held.take();
                    return Poll::Ready(held.map(|data| Ok(Frame::data(data))));
                }
            };
            this.is_over = came.is_none();
            let Some(data) = this.held.take() else {
                return Poll::Ready(came);
            };
            this.next = came;
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
    }

    fn is_end_stream(&self) -> bool {
        let body_is_over = self.is_over || self.body.is_end_stream();
        self.held.is_empty() && self.next.is_none() && body_is_over
    }

    fn size_hint(&self) -> SizeHint {
        let n_held = self.held.len() as u64;
        let rest = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(n_held));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(n_held));
        }
        hint
    }
}

// === impl Held ===

impl Held {
    fn push(&mut self, data: Bytes) {
        match self {
            Self::Nothing => *self = Self::One(data),
            Self::One(first) => {
                let mut all = BytesMut::with_capacity((4 * (first.len() + data.len())).min(MOST));
                all.extend_from_slice(first);
                all.extend_from_slice(&data);
                *self = Self::Many(all);
            }
            Self::Many(all) => all.extend_from_slice(&data),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::One(data) => data.len(),
            Self::Many(all) => all.len(),
        }
    }

    /// Pieces without bytes, which bodies may have, are nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn take(&mut self) -> Option<Bytes> {
        let held = match std::mem::replace(self, Self::Nothing) {
            Self::Nothing => return None,
            Self::One(data) => data,
            Self::Many(all) => all.freeze(),
        };
        (!held.is_empty()).then_some(held)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, task::Waker};

    use super::*;

    /// What each poll of the body gives; `None` is that nothing is there.
    #[derive(Debug)]
    struct Script(VecDeque<Option<Result<Frame<Bytes>, &'static str>>>);

    impl Body for Script {
        type Data = Bytes;
        type Error = &'static str;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
            match self.0.pop_front() {
                Some(Some(frame)) => Poll::Ready(Some(frame)),
                Some(None) => Poll::Pending,
                None => Poll::Ready(None),
            }
        }
    }

    /// Polls to the end: each piece, and a `.` for each time that nothing was there.
    fn played(script: Vec<Option<Result<&'static str, &'static str>>>) -> Vec<String> {
        let frame = |piece: &'static str| Frame::data(Bytes::from(piece));
        let script = script.into_iter().map(|it| it.map(|it| it.map(frame)));
        let mut gathered = Gather::new(Script(script.collect()), true);
        let mut cx = Context::from_waker(Waker::noop());
        let mut seen = Vec::new();
        loop {
            match Pin::new(&mut gathered).poll_frame(&mut cx) {
                Poll::Pending => seen.push(".".to_owned()),
                Poll::Ready(Some(Ok(frame))) => {
                    let data = frame.into_data().unwrap();
                    seen.push(String::from_utf8(data.into()).unwrap());
                }
                Poll::Ready(Some(Err(error))) => seen.push(format!("{error}!")),
                Poll::Ready(None) => return seen,
            }
        }
    }

    #[test]
    fn the_first_piece_waits_for_nothing_and_the_others_for_a_turn() {
        let piece = |text| Some(Ok(text));
        let nothing = [None; 1 + ASKS as usize];
        let mut script = vec![piece("a"), piece("b"), None, piece("c")];
        script.extend(nothing);
        script.extend([None, piece("d")]);
        script.extend(nothing);
        script.push(piece("e"));
        let mut seen = played(script);
        seen.dedup();
        assert_eq!(seen, ["a", ".", "bc", ".", "d", "e"]);
    }

    #[test]
    fn what_came_before_a_cut_goes_on_before_it() {
        let seen = played(vec![Some(Ok("a")), Some(Ok("b")), Some(Err("cut"))]);
        assert_eq!(seen, ["a", "b", "cut!"]);
    }

    #[test]
    fn no_more_than_a_bound_is_held() {
        const PIECE: &str = "0123456789abcdef";
        let seen = played(vec![Some(Ok(PIECE)); 4 * MOST / PIECE.len()]);
        let lengths: Vec<usize> = seen.iter().map(String::len).collect();
        assert_eq!(lengths, [16, MOST, MOST, MOST, MOST - 16]);
    }
}
