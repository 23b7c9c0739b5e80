//! Where a body ends.

use bytes::{Bytes, BytesMut};
use http_body::{Frame, SizeHint};

use crate::{
    chunked::{Chunked, Part},
    error::{Error, Malformed},
    head::Framing,
};

/// Takes a body out of what is read.
#[derive(Debug)]
pub(crate) enum Decoder {
    Length(u64),
    Chunked(Chunked),
    ToTheEnd,
    Over,
}

// === impl Decoder ===

impl Decoder {
    /// What `input` holds of the body; `None` where more has to come, or the body is over.
    pub(crate) fn take(&mut self, input: &mut BytesMut) -> Result<Option<Frame<Bytes>>, Malformed> {
        match self {
            Self::Over => Ok(None),
            Self::Chunked(chunked) => {
                let part = chunked.take(input)?;
                if chunked.is_over() {
                    *self = Self::Over;
                }
                Ok(part.map(|part| match part {
                    Part::Data(data) => Frame::data(data),
                    Part::Trailers(fields) => Frame::trailers(fields),
                }))
            }
            Self::Length(_) | Self::ToTheEnd if input.is_empty() => Ok(None),
            Self::ToTheEnd => Ok(Some(Frame::data(input.split().freeze()))),
            Self::Length(left) => {
                let n_bytes = usize::try_from(*left).map_or(input.len(), |it| it.min(input.len()));
                *left -= n_bytes as u64;
                if *left == 0 {
                    *self = Self::Over;
                }
                Ok(Some(Frame::data(input.split_to(n_bytes).freeze())))
            }
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Over)
    }

    /// The connection has ended.
    pub(crate) fn end(&mut self) -> Result<(), Error> {
        match self {
            Self::Over => Ok(()),
            Self::ToTheEnd => {
                *self = Self::Over;
                Ok(())
            }
            Self::Length(_) | Self::Chunked(_) => Err(Error::Ended("a body")),
        }
    }

    /// How much is to come.
    pub(crate) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Over => SizeHint::with_exact(0),
            Self::Length(left) => SizeHint::with_exact(*left),
            Self::Chunked(_) | Self::ToTheEnd => SizeHint::default(),
        }
    }
}

impl From<Framing> for Decoder {
    fn from(framing: Framing) -> Self {
        match framing {
            Framing::Length(0) => Self::Over,
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => Self::Chunked(Chunked::default()),
            Framing::ToTheEnd => Self::ToTheEnd,
        }
    }
}
