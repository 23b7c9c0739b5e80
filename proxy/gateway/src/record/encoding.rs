//! Compressed replies: the agent gets them as they came, the log's copy is opened here.

use std::{borrow::Cow, io::Read};

use flate2::read::{DeflateDecoder, GzDecoder, ZlibDecoder};
use http::{HeaderMap, header};

/// The most that a reply is opened to; a small one that opens to more is no reply but a bomb.
const MAX_OPENED: u64 = 32 << 20;

/// A `content-encoding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// As it is.
    Identity,
    /// gzip.
    Gzip,
    /// zlib, and with some servers bare deflate.
    Deflate,
    /// Another, or several: not read here.
    Unread,
}

// === impl Encoding ===

impl Encoding {
    /// What a reply's headers say.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let Some(encoding) = headers.get(header::CONTENT_ENCODING) else {
            return Self::Identity;
        };
        let encoding = encoding.as_bytes().trim_ascii().to_ascii_lowercase();
        match encoding.as_slice() {
            b"identity" | b"" => Self::Identity,
            b"gzip" | b"x-gzip" => Self::Gzip,
            b"deflate" => Self::Deflate,
            _ => Self::Unread,
        }
    }

    /// The bytes opened, as far as they can be: those of a reply that was cut end early.
    /// `None` where they are not read here or are not what they say.
    pub(super) fn open(self, bytes: &[u8]) -> Option<Cow<'_, [u8]>> {
        let opened = match self {
            Self::Identity => return Some(Cow::Borrowed(bytes)),
            Self::Unread => return None,
            Self::Gzip => read(GzDecoder::new(bytes)),
            // The first byte of a zlib stream says "deflate" in its low half (RFC 1950, 2.2).
            Self::Deflate if bytes.first().is_some_and(|b| b & 0x0f == 8) => {
                read(ZlibDecoder::new(bytes))
            }
            Self::Deflate => read(DeflateDecoder::new(bytes)),
        };
        (bytes.is_empty() || !opened.is_empty()).then_some(Cow::Owned(opened))
    }
}

fn read(decoder: impl Read) -> Vec<u8> {
    let mut opened = Vec::new();
    // An error is an early end; what came before it stands.
    let _ = decoder.take(MAX_OPENED).read_to_end(&mut opened);
    opened
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{
        Compression,
        write::{DeflateEncoder, GzEncoder, ZlibEncoder},
    };

    use super::*;

    const TEXT: &[u8] = b"data: {\"choices\":[]}\n\ndata: [DONE]\n\n";

    #[test]
    fn what_is_compressed_is_opened() {
        let level = Compression::fast();
        let mut gzip = GzEncoder::new(Vec::new(), level);
        gzip.write_all(TEXT).unwrap();
        let gzip = gzip.finish().unwrap();
        let mut zlib = ZlibEncoder::new(Vec::new(), level);
        zlib.write_all(TEXT).unwrap();
        let mut bare = DeflateEncoder::new(Vec::new(), level);
        bare.write_all(TEXT).unwrap();
        for (encoding, bytes) in [
            (Encoding::Identity, TEXT),
            (Encoding::Gzip, &gzip),
            (Encoding::Deflate, &zlib.finish().unwrap()),
            (Encoding::Deflate, &bare.finish().unwrap()),
        ] {
            assert_eq!(encoding.open(bytes).unwrap(), TEXT, "{encoding:?}");
        }
        let half = Encoding::Gzip.open(&gzip[..gzip.len() - 12]).unwrap();
        assert!(!half.is_empty() && TEXT.starts_with(&half));
    }

    #[test]
    fn what_is_not_what_it_says_is_not_read() {
        assert_eq!(Encoding::Gzip.open(b"plain"), None);
        assert_eq!(Encoding::Unread.open(TEXT), None);
        let bomb = vec![0; 40 << 20];
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&bomb).unwrap();
        let opened = Encoding::Gzip.open(&gzip.finish().unwrap()).unwrap().len();
        assert_eq!(opened as u64, MAX_OPENED);
    }
}
