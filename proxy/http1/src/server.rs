//! A server's side: requests on one connection, one after the other.

mod incoming;
mod link;
mod reply;

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use http_body::Body;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, Sleep, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

pub use self::incoming::Incoming;
use self::{
    link::{GoOn, Link},
    reply::Asked,
};
use crate::{
    decoder::Decoder,
    error::{BoxError, Error, Malformed},
    head::{MAX_HEAD, RequestHead},
    output::Output,
    sending::{How, Sending},
};

/// How long a client that still sends is listened to, when its connection is to be closed: one that is
/// cut off while it writes never sees the reply that says why.
const LINGER: Duration = Duration::from_secs(2);

/// A connection of a client.
#[derive(Debug)]
pub struct Server<S> {
    link: Arc<Link<S>>,
    output: Output,
    patience: Patience,
}

/// How long a head is waited for.
#[derive(Debug)]
struct Patience {
    allowed: Duration,
    since: Instant,
    /// Rings at the end of a wait at the earliest: what is waited for mostly comes sooner.
    bell: Pin<Box<Sleep>>,
}

// === impl Server ===

impl<S: AsyncRead + AsyncWrite + Unpin> Server<S> {
    /// A connection of which `read` has been read already. A request's head may be waited for so long.
    pub fn new(io: S, read: BytesMut, patience: Duration) -> Self {
        Self {
            link: Arc::new(Link::new(io, read)),
            output: Output::default(),
            patience: Patience::new(patience),
        }
    }

    /// Serves requests until the client closes the connection or says nothing for too long; after `stop`,
    /// to the end of the one under way. What is no request is answered by `refuse`, and is the last.
    ///
    /// A client that hangs up drops what `handle` or the reply's body is doing.
    ///
    /// # Errors
    ///
    /// The connection broke within a request or a reply, or the reply's body did.
    pub async fn serve<H, F, B>(
        mut self,
        stop: &CancellationToken,
        handle: H,
        refuse: impl Fn(Malformed) -> Response<B>,
    ) -> Result<(), Error>
    where
        H: Fn(Request<Incoming<S>>) -> F,
        F: Future<Output = Response<B>>,
        B: Body<Data = Bytes, Error = BoxError> + Unpin,
    {
        let served = self.serve_each(stop, handle, refuse).await;
        self.leave();
        served
    }

    async fn serve_each<H, F, B>(
        &mut self,
        stop: &CancellationToken,
        handle: H,
        refuse: impl Fn(Malformed) -> Response<B>,
    ) -> Result<(), Error>
    where
        H: Fn(Request<Incoming<S>>) -> F,
        F: Future<Output = Response<B>>,
        B: Body<Data = Bytes, Error = BoxError> + Unpin,
    {
        let mut stopped = pin!(stop.cancelled());
        loop {
            self.patience.begin();
            self.link.lock().wire.begin();
            let head = poll_fn(|cx| {
                if let Poll::Ready(head) = self.poll_head(cx) {
                    return Poll::Ready(head);
                }
                let rests = self.link.lock().wire.input.is_empty();
                let is_over = rests && stopped.as_mut().poll(cx).is_ready();
                if is_over || self.patience.poll(cx).is_ready() {
                    return Poll::Ready(Ok(None));
                }
                Poll::Pending
            });
            let (asked, request) = match head.await {
                Ok(Some(head)) => self.begin(head),
                Ok(None) => return Ok(()),
                Err(Error::Malformed(malformed)) => {
                    self.answer(refuse(malformed), Asked::unread()).await?;
                    self.close(true).await;
                    return Err(malformed.into());
                }
                Err(error) => return Err(error),
            };
            let mut handling = pin!(handle(request));
            let response = poll_fn(|cx| match handling.as_mut().poll(cx) {
                Poll::Ready(response) => Poll::Ready(Ok(response)),
                Poll::Pending => self.poll_meanwhile(cx).map(Err),
            });
            let response = response.await?;
            let goes_on = self
                .answer(response, asked.unless(stop.is_cancelled()))
                .await?;
            if !goes_on {
                let is_read = {
                    let now = self.link.lock();
                    now.decoder.is_over() && now.wire.input.is_empty()
                };
                self.close(!is_read).await;
                return Ok(());
            }
        }
    }

    /// The next request's head; `None` where the client has gone before it.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<RequestHead>, Error>> {
        let mut now = self.link.lock();
        let wire = &mut now.wire;
        let mut is_new = wire.is_new() && !wire.input.is_empty();
        loop {
            if is_new && let Some(head) = RequestHead::take(&mut wire.input)? {
                return Poll::Ready(Ok(Some(head)));
            }
            let n_seen = wire.input.len();
            if !ready!(wire.poll_fill(cx))? {
                return Poll::Ready(match n_seen {
                    0 => Ok(None),
                    _ => Err(Error::Ended("a request")),
                });
            }
            // A head that comes byte by byte is not read anew with each.
            let new = &wire.input[n_seen..];
            is_new = n_seen == 0 || wire.input.len() > MAX_HEAD || new.contains(&b'\n');
        }
    }

    fn begin(&mut self, head: RequestHead) -> (Asked, Request<Incoming<S>>) {
        let asked = Asked::of(&head);
        self.link
            .lock()
            .begin(Decoder::from(head.framing), head.expects);
        let mut request = Request::new(Incoming::new(&self.link));
        *request.method_mut() = head.method;
        *request.uri_mut() = head.uri;
        *request.version_mut() = head.version;
        *request.headers_mut() = head.headers;
        (asked, request)
    }

    /// What is to be done while a reply is waited for: ready when nobody waits for it any more.
    fn poll_meanwhile(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        let mut now = self.link.lock();
        if now.go_on == GoOn::Wanted {
            now.go_on = GoOn::Unasked;
            self.output.write(go_on);
        }
        if let Poll::Ready(Err(error)) = self.output.poll_write(&mut now.wire.io, cx) {
            return Poll::Ready(error.into());
        }
        if now.is_held {
            now.wait(cx.waker());
            return Poll::Pending;
        }
        ready!(now.wire.poll_gone(cx));
        Poll::Ready(Error::Ended("a reply"))
    }

    /// Writes a reply; whether another request may come.
    async fn answer<B>(&mut self, response: Response<B>, asked: Asked) -> Result<bool, Error>
    where
        B: Body<Data = Bytes, Error = BoxError> + Unpin,
    {
        let keeps = self.goes_on(&asked);
        let (head, body) = response.into_parts();
        let how = reply::write_head(head, &body, &asked, keeps, &mut self.output);
        let keeps = keeps && !matches!(how, How::ToTheEnd);
        let mut sending = Sending::new(body, how);
        // How the body ended is kept until what came before it is written.
        let mut put = Poll::Pending;
        poll_fn(|cx| {
            loop {
                if put.is_pending() {
                    put = sending.poll_into(&mut self.output, cx);
                }
                let is_full = self.output.is_full();
                ready!(self.poll_write(cx))?;
                match std::mem::replace(&mut put, Poll::Pending) {
                    Poll::Ready(result) => return Poll::Ready(result),
                    Poll::Pending if is_full => {}
                    Poll::Pending => return self.poll_meanwhile(cx).map(Err),
                }
            }
        })
        .await?;
        let mut now = self.link.lock();
        Ok(keeps && !now.is_held && now.skip())
    }

    /// Whether another request may come after the reply that begins now, as far as is known. From here on
    /// nobody is told to go on: that would stand within the reply.
    fn goes_on(&mut self, asked: &Asked) -> bool {
        let mut now = self.link.lock();
        let before = std::mem::replace(&mut now.go_on, GoOn::Unasked);
        if before == GoOn::Wanted {
            self.output.write(go_on);
        }
        // A client that still waits to be told may leave its body out, or not.
        let may_leave_out = before == GoOn::Awaited && !now.decoder.is_over();
        asked.keeps && !may_leave_out && (now.is_held || now.skip())
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let mut now = self.link.lock();
        let written = ready!(self.output.poll_write(&mut now.wire.io, cx));
        Poll::Ready(written.map_err(Error::from))
    }

    /// Ends the connection; where the client may still be sending, not before it has had time to see the
    /// reply.
    async fn close(&self, is_sending: bool) {
        let link = &self.link;
        leave(link);
        let end = poll_fn(|cx| Pin::new(&mut link.lock().wire.io).poll_shutdown(cx));
        // It has gone by itself, which is as well.
        if end.await.is_err() || !is_sending {
            return;
        }
        let listen = poll_fn(|cx| {
            let mut now = link.lock();
            let wire = &mut now.wire;
            loop {
                wire.input.clear();
                match ready!(wire.poll_fill(cx)) {
                    Ok(true) => {}
                    Ok(false) | Err(_) => return Poll::Ready(()),
                }
            }
        });
        // Whether it ended or not, it has had its time.
        let _ = timeout(LINGER, listen).await;
    }

    /// The client sees the end, though somebody may still have the body of a request and with it the
    /// connection.
    fn leave(&self) {
        leave(&self.link);
        if Arc::strong_count(&self.link) > 1 {
            let mut now = self.link.lock();
            let mut cx = Context::from_waker(Waker::noop());
            // What cannot be done at once is done when the body goes.
            let _ = Pin::new(&mut now.wire.io).poll_shutdown(&mut cx);
        }
    }
}

/// Tells whoever has a request's body that no more of it is read.
fn leave<S>(link: &Link<S>) {
    let reader = link.lock().leave();
    if let Some(reader) = reader {
        reader.wake();
    }
}

/// Tells a client that waits with its body to send it.
fn go_on(out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
}

// === impl Patience ===

impl Patience {
    fn new(allowed: Duration) -> Self {
        Self {
            allowed,
            since: Instant::now(),
            bell: Box::pin(sleep(allowed)),
        }
    }

    fn begin(&mut self) {
        self.since = Instant::now();
    }

    /// Ready when it is at its end.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.bell.as_mut().poll(cx));
            let end = self.since + self.allowed;
            if end <= Instant::now() {
                return Poll::Ready(());
            }
            self.bell.as_mut().reset(end);
        }
    }
}
