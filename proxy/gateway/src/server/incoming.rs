//! A request's body, whichever HTTP it comes in.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::net::TcpStream;

use super::patient::Patient;
use crate::relay::BoxError;

/// A request's body as it comes.
#[derive(Debug)]
pub(crate) enum Incoming {
    Http1(metaclaw_http1::Incoming<Patient<TcpStream>>),
    Http2(hyper::body::Incoming),
}

// === impl Incoming ===

impl Body for Incoming {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut *self {
            Self::Http1(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Http2(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Http2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(body) => body.size_hint(),
            Self::Http2(body) => body.size_hint(),
        }
    }
}
