//! A body of ours on its way out.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use http_body::{Body, Frame};

use crate::{
    error::{BoxError, Error},
    head::{self, write_header},
    output::Output,
};

/// How the other end knows where the body ends.
#[derive(Debug)]
pub(crate) enum How {
    /// There is none.
    Nothing,
    /// So many bytes are left.
    Length(u64),
    /// In chunks; these fields may stand behind it.
    Chunked(Vec<HeaderName>),
    /// With the connection.
    ToTheEnd,
}

/// A body, and what is left to be done with it.
#[derive(Debug)]
pub(crate) struct Sending<B> {
    /// Gone with its end.
    body: Option<B>,
    how: How,
    trailers: Option<HeaderMap>,
}

/// A body is not as long as its `content-length`.
#[derive(Debug, thiserror::Error)]
#[error("it is {0} than its content-length")]
struct WrongLength(&'static str);

// === impl Sending ===

impl<B> Sending<B>
where
    B: Body<Data = Bytes, Error = BoxError> + Unpin,
{
    pub(crate) fn new(body: B, how: How) -> Self {
        let has_body = !matches!(how, How::Nothing);
        Self {
            body: Some(body).filter(|_| has_body),
            how,
            trailers: None,
        }
    }

    /// Puts what there is of it into `output`. Ready when that is all; pending as well where `output` is
    /// full.
    pub(crate) fn poll_into(
        &mut self,
        output: &mut Output,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        while let Some(body) = &mut self.body {
            if body.is_end_stream() {
                return Poll::Ready(self.end(output));
            }
            if output.is_full() {
                return Poll::Pending;
            }
            match Pin::new(body).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(frame))) => self.put(frame, output)?,
                Poll::Ready(Some(Err(error))) => {
                    self.body = None;
                    return Poll::Ready(Err(Error::Body(error)));
                }
                Poll::Ready(None) => return Poll::Ready(self.end(output)),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn put(&mut self, frame: Frame<Bytes>, output: &mut Output) -> Result<(), Error> {
        let data = match frame.into_data() {
            Ok(data) => data,
            Err(frame) => {
                self.trailers = frame.into_trailers().ok();
                return Ok(());
            }
        };
        match &mut self.how {
            How::Nothing => {}
            How::Chunked(_) => output.push_chunk(data),
            How::ToTheEnd => output.push(data),
            How::Length(left) => match left.checked_sub(data.len() as u64) {
                Some(now) => {
                    *left = now;
                    output.push(data);
                }
                None => return Err(self.wrong_length("longer")),
            },
        }
        Ok(())
    }

    fn end(&mut self, output: &mut Output) -> Result<(), Error> {
        self.body = None;
        match &self.how {
            How::Nothing | How::ToTheEnd | How::Length(0) => {}
            How::Length(_) => return Err(self.wrong_length("shorter")),
            How::Chunked(names) => output.write(|out| {
                out.extend_from_slice(b"0\r\n");
                let fields = self.trailers.iter().flatten();
                for (name, value) in fields.filter(|(name, _)| names.contains(name)) {
                    write_header(name, value, out);
                }
                out.extend_from_slice(b"\r\n");
            }),
        }
        Ok(())
    }

    fn wrong_length(&mut self, how: &'static str) -> Error {
        self.body = None;
        Error::Body(WrongLength(how).into())
    }
}

/// The length that a message's own headers give, once, if they do; else none stays.
pub(crate) fn length(headers: &mut HeaderMap) -> Option<u64> {
    let mut each = headers.get_all(header::CONTENT_LENGTH).iter();
    let first = each.next()?;
    let agree = each.all(|it| it == first);
    let first = Some(first.clone()).filter(|_| agree);
    let length = first.as_ref().and_then(|first| head::length(first).ok());
    match first.filter(|_| length.is_some()) {
        Some(first) => headers.insert(header::CONTENT_LENGTH, first),
        None => headers.remove(header::CONTENT_LENGTH),
    };
    length
}

/// The fields that a message's headers announce behind its body, but for those that would change how it
/// is read (RFC 9110 6.5.1).
pub(crate) fn announced(headers: &HeaderMap) -> Vec<HeaderName> {
    const NEVER: [HeaderName; 13] = [
        header::AUTHORIZATION,
        header::CACHE_CONTROL,
        header::CONNECTION,
        header::CONTENT_ENCODING,
        header::CONTENT_LENGTH,
        header::CONTENT_RANGE,
        header::CONTENT_TYPE,
        header::HOST,
        header::MAX_FORWARDS,
        header::SET_COOKIE,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
    ];
    let lists = headers.get_all(header::TRAILER).iter();
    let names = lists.flat_map(|list: &HeaderValue| list.as_bytes().split(|byte| *byte == b','));
    names
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .filter(|name| !NEVER.contains(name))
        .collect()
}
