//! A client's side: one request and its reply, and connections that rest between requests.

mod pool;

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, Response, Uri, header};
use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite};

use self::pool::Home;
pub use self::pool::Pool;
use crate::{
    decoder::Decoder,
    error::{BoxError, Error},
    head::{MAX_HEAD, ReplyHead, write_headers, write_length},
    output::Output,
    sending::{How, Sending, length},
    wire::Wire,
};

/// A connection to a server on which nothing is under way.
#[derive(Debug)]
pub struct Connection<S> {
    io: S,
    home: Home<S>,
}

/// A reply's body; what is left of the request goes up while it is read. Dropped before its end, it ends
/// the connection.
#[derive(Debug)]
pub struct Reply<S, B> {
    /// Gone with the body's end.
    exchange: Option<Box<Exchange<S, B>>>,
}

/// A request, and the reply to it.
#[derive(Debug)]
struct Exchange<S, B> {
    wire: Wire<S>,
    output: Output,
    sending: Sending<B>,
    /// Why no more of the request can go up.
    broken: Option<Error>,
    /// All of the request has gone up.
    is_sent: bool,
    decoder: Decoder,
    /// The connection may rest when the reply is over.
    keeps: bool,
    home: Home<S>,
}

// === impl Connection ===

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Asks the server. The request's address is written as a path; `host` is what its authority says.
    ///
    /// # Errors
    ///
    /// The connection broke or what came is no reply; or the request's body broke off.
    pub async fn ask<B>(self, request: Request<B>) -> Result<Response<Reply<S, B>>, Error>
    where
        B: Body<Data = Bytes, Error = BoxError> + Unpin,
    {
        let (head, body) = request.into_parts();
        let mut output = Output::default();
        let how = write_head(&head.method, &head.uri, head.headers, &body, &mut output);
        let mut exchange = Box::new(Exchange {
            wire: Wire::new(self.io, BytesMut::new()),
            output,
            sending: Sending::new(body, how),
            broken: None,
            is_sent: false,
            decoder: Decoder::Over,
            keeps: false,
            home: self.home,
        });
        let head = poll_fn(|cx| exchange.poll_head(&head.method, cx)).await?;
        exchange.decoder = Decoder::from(head.framing);
        exchange.keeps = head.keeps;
        let mut reply = Reply {
            exchange: Some(exchange),
        };
        reply.rest_if_over();
        let mut response = Response::new(reply);
        *response.status_mut() = head.status;
        *response.headers_mut() = head.headers;
        if let Some(reason) = head.reason {
            response.extensions_mut().insert(reason);
        }
        Ok(response)
    }
}

/// Writes the head of a request with this body, and says how that is to be sent.
fn write_head(
    method: &Method,
    uri: &Uri,
    mut headers: HeaderMap,
    body: &impl Body,
    output: &mut Output,
) -> How {
    headers.remove(header::CONNECTION);
    headers.remove(header::TRANSFER_ENCODING);
    let given = length(&mut headers);
    let how = match given.or_else(|| body.size_hint().exact()) {
        Some(length) => How::Length(length),
        None => How::Chunked(Vec::new()),
    };
    // What mostly has no body does not say that it has none.
    let is_bare = matches!(
        *method,
        Method::GET | Method::HEAD | Method::DELETE | Method::OPTIONS | Method::TRACE
    );
    output.write(|out| {
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        for part in [method.as_str(), " ", path, " HTTP/1.1\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
        if let Some(authority) = uri
            .authority()
            .filter(|_| !headers.contains_key(header::HOST))
        {
            // A name and a password in it are not for the server's log.
            let host = authority.as_str();
            let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
            for part in ["host: ", host, "\r\n"] {
                out.extend_from_slice(part.as_bytes());
            }
        }
        write_headers(&headers, out);
        match how {
            How::Length(0) if is_bare => {}
            How::Length(length) if given.is_none() => write_length(length, out),
            How::Chunked(_) => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
            How::Length(_) | How::Nothing | How::ToTheEnd => {}
        }
        out.extend_from_slice(b"\r\n");
    });
    how
}

// === impl Exchange ===

impl<S, B> Exchange<S, B>
where
    S: AsyncRead + AsyncWrite + Unpin,
    B: Body<Data = Bytes, Error = BoxError> + Unpin,
{
    /// Sends the request, and reads the head of the reply, which may come before all is sent.
    fn poll_head(
        &mut self,
        asked: &Method,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ReplyHead, Error>> {
        self.poll_send(cx)?;
        loop {
            let n_seen = self.wire.input.len();
            match ready!(self.wire.poll_fill(cx)) {
                Ok(true) => {}
                // Why nothing could be sent says more than that nothing comes.
                Ok(false) => {
                    let broken = self.broken.take();
                    return Poll::Ready(Err(broken.unwrap_or(Error::Ended("a reply"))));
                }
                Err(error) => {
                    let broken = self.broken.take();
                    return Poll::Ready(Err(broken.unwrap_or_else(|| error.into())));
                }
            }
            let new = &self.wire.input[n_seen..];
            let is_new = n_seen == 0 || self.wire.input.len() > MAX_HEAD || new.contains(&b'\n');
            if is_new && let Some(head) = ReplyHead::take(&mut self.wire.input, asked)? {
                return Poll::Ready(Ok(head));
            }
        }
    }

    /// Sends what can be sent. An error is one of the request's own body: a server that takes no more of
    /// it may have answered all the same.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        while !self.is_sent && self.broken.is_none() {
            let put = self.sending.poll_into(&mut self.output, cx)?;
            let is_full = self.output.is_full();
            match self.output.poll_write(&mut self.wire.io, cx) {
                Poll::Ready(Err(error)) => self.broken = Some(error.into()),
                Poll::Ready(Ok(())) => match put {
                    Poll::Ready(()) => self.is_sent = true,
                    Poll::Pending if is_full => {}
                    Poll::Pending => return Ok(()),
                },
                Poll::Pending => return Ok(()),
            }
        }
        Ok(())
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Err(error) = self.poll_send(cx) {
            return Poll::Ready(Some(Err(error)));
        }
        self.wire.poll_frame(&mut self.decoder, cx)
    }
}

// === impl Reply ===

impl<S, B> Reply<S, B> {
    /// Gives each chunk of the server's by itself, and not all that have come together.
    pub fn keep_apart(&mut self) {
        if let Some(exchange) = &mut self.exchange
            && let Decoder::Chunked(chunked) = &mut exchange.decoder
        {
            chunked.is_apart = true;
        }
    }

    /// Lets the connection rest, when nothing more is to come on it; or ends it, where that is not sure.
    fn rest_if_over(&mut self) {
        let over = self.exchange.take_if(|exchange| exchange.decoder.is_over());
        if let Some(exchange) = over
            && exchange.keeps
            && exchange.is_sent
            && exchange.wire.input.is_empty()
        {
            let Exchange { wire, home, .. } = *exchange;
            home.rest(wire.io);
        }
    }
}

impl<S, B> Body for Reply<S, B>
where
    S: AsyncRead + AsyncWrite + Unpin,
    B: Body<Data = Bytes, Error = BoxError> + Unpin,
{
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let Some(exchange) = &mut self.exchange else {
            return Poll::Ready(None);
        };
        let frame = ready!(exchange.poll_frame(cx));
        if matches!(frame, Some(Err(_))) {
            self.exchange = None;
        }
        self.rest_if_over();
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.exchange.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.exchange {
            Some(exchange) => exchange.decoder.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}
