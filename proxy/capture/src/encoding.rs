//! Compressed replies. The agent gets them unchanged, and the log's copy is decompressed here.

use std::{
    borrow::Cow,
    io::{self, Read},
};

use brotli_decompressor::BrotliDecoderParameter::BROTLI_DECODER_PARAM_LARGE_WINDOW;
use flate2::read::{DeflateDecoder, GzDecoder, ZlibDecoder};
use http::{HeaderMap, header};

/// The largest decompressed size of a reply. This protects against decompression bombs.
const MAX_OPENED: u64 = 32 << 20;
/// The longest window of zstd, 8 MiB. A reply may not require more (RFC 9659).
const ZSTD_WINDOW_LOG: u32 = 23;
/// Size of the buffer that brotli reads with.
const BROTLI_BUFFER: usize = 4 << 10;

/// A `content-encoding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Identity,
    Gzip,
    /// zlib. Some servers send bare deflate instead.
    Deflate,
    /// Brotli: RFC 7932.
    Brotli,
    /// Zstandard: RFC 8878.
    Zstd,
    /// Any other encoding, or several. They are not decompressed here.
    Unsupported,
}

// === impl Encoding ===

impl Encoding {
    /// Returns the encoding that a reply's headers name.
    pub fn from_headers(headers: &HeaderMap) -> Self {
        let Some(encoding) = headers.get(header::CONTENT_ENCODING) else {
            return Self::Identity;
        };
        let encoding = encoding.as_bytes().trim_ascii().to_ascii_lowercase();
        match encoding.as_slice() {
            b"identity" | b"" => Self::Identity,
            b"gzip" | b"x-gzip" => Self::Gzip,
            b"deflate" => Self::Deflate,
            b"br" => Self::Brotli,
            b"zstd" => Self::Zstd,
            _ => Self::Unsupported,
        }
    }

    /// Decompresses the bytes as far as possible. A reply that was cut ends early. Returns `None` if the encoding is
    /// not supported, or the bytes are not in it.
    pub(crate) fn open(self, bytes: &[u8]) -> Option<Cow<'_, [u8]>> {
        self.open_to(MAX_OPENED, bytes)
    }

    /// Decompresses at most `limit` bytes.
    pub(crate) fn open_to(self, limit: u64, bytes: &[u8]) -> Option<Cow<'_, [u8]>> {
        let opened = match self {
            Self::Identity => return Some(Cow::Borrowed(bytes)),
            Self::Unsupported => return None,
            Self::Gzip => decompressed(GzDecoder::new(bytes), limit),
            // The low half of the first byte of a zlib stream says "deflate" (RFC 1950, 2.2).
            Self::Deflate if bytes.first().is_some_and(|b| b & 0x0f == 8) => {
                decompressed(ZlibDecoder::new(bytes), limit)
            }
            Self::Deflate => decompressed(DeflateDecoder::new(bytes), limit),
            Self::Brotli => decompressed(brotli(bytes), limit),
            Self::Zstd => decompressed(zstd(bytes).ok()?, limit),
        };
        (bytes.is_empty() || !opened.is_empty()).then_some(Cow::Owned(opened))
    }
}

fn decompressed(decoder: impl Read, limit: u64) -> Vec<u8> {
    let mut opened = Vec::new();
    // An error is treated as an early end, and the bytes before it are kept.
    let _ = decoder.take(limit).read_to_end(&mut opened);
    opened
}

/// Windows beyond the RFC's 16 MiB are refused, because nobody on the web sends them.
fn brotli(bytes: &[u8]) -> impl Read {
    let mut decoder = brotli_decompressor::Decompressor::new(bytes, BROTLI_BUFFER);
    decoder.set_parameter(BROTLI_DECODER_PARAM_LARGE_WINDOW, 0);
    decoder
}

fn zstd(bytes: &[u8]) -> io::Result<impl Read> {
    let mut decoder = zstd::Decoder::with_buffer(bytes)?;
    decoder.window_log_max(ZSTD_WINDOW_LOG)?;
    Ok(decoder)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{
        Compression,
        write::{DeflateEncoder, GzEncoder, ZlibEncoder},
    };
    use proptest::prelude::*;

    use super::*;

    const TEXT: &[u8] = b"data: {\"choices\":[]}\n\ndata: [DONE]\n\n";
    /// The same text and 40 MiB of zeros, compressed by Node's zlib.
    const BROTLI: &[u8] = b"\x8b\x11\x80data: {\"choices\":[]}\n\ndata: [DONE]\n\n\x03";
    const BROTLI_BOMB: [u8; 40] = [
        207, 255, 255, 127, 248, 39, 0, 226, 177, 64, 32, 247, 254, 159, 255, 255, 255, 240, 79, 0,
        196, 97, 1, 128, 238, 253, 127, 254, 255, 255, 225, 159, 0, 136, 195, 34, 0, 221, 251, 63,
    ];
    /// The text in a stream that announces a window of 1 GiB.
    const BROTLI_LARGE: &[u8] =
        b"\x11\x1e\x46\x00\x02data: {\"choices\":[]}\n\ndata: [DONE]\n\n\x03";

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
            (Encoding::Brotli, BROTLI),
            (Encoding::Zstd, &zstd::encode_all(TEXT, 3).unwrap()),
        ] {
            assert_eq!(encoding.open(bytes).unwrap(), TEXT, "{encoding:?}");
        }
        // The last block of zstd is decompressed completely or not at all.
        let mut blocks = zstd::Encoder::new(Vec::new(), 3).unwrap();
        blocks.write_all(TEXT).unwrap();
        blocks.flush().unwrap();
        for (encoding, cut) in [
            (Encoding::Gzip, &gzip[..gzip.len() - 12]),
            (Encoding::Brotli, &BROTLI[..BROTLI.len() - 12]),
            (Encoding::Zstd, blocks.get_ref()),
        ] {
            let half = encoding.open(cut).unwrap();
            assert!(!half.is_empty() && TEXT.starts_with(&half), "{encoding:?}");
        }
    }

    #[test]
    fn the_header_says_which_it_is() {
        for (header, encoding) in [
            ("br", Encoding::Brotli),
            (" ZSTD ", Encoding::Zstd),
            ("x-gzip", Encoding::Gzip),
            ("gzip, br", Encoding::Unsupported),
        ] {
            let value = header.parse().unwrap();
            let headers = HeaderMap::from_iter([(header::CONTENT_ENCODING, value)]);
            assert_eq!(Encoding::from_headers(&headers), encoding);
        }
    }

    #[test]
    fn what_is_not_what_it_says_is_not_read() {
        for encoding in [Encoding::Gzip, Encoding::Brotli, Encoding::Zstd] {
            assert_eq!(encoding.open(b"plain"), None, "{encoding:?}");
        }
        assert_eq!(Encoding::Unsupported.open(TEXT), None);
    }

    #[test]
    fn a_bomb_is_opened_as_far_as_a_reply_may_be_long() {
        let bomb = vec![0; 40 << 20];
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&bomb).unwrap();
        for (encoding, bytes) in [
            (Encoding::Gzip, &gzip.finish().unwrap()[..]),
            (Encoding::Brotli, &BROTLI_BOMB),
            (Encoding::Zstd, &zstd::encode_all(&bomb[..], 3).unwrap()),
        ] {
            let opened = encoding.open(bytes).unwrap().len();
            assert_eq!(opened as u64, MAX_OPENED, "{encoding:?}");
        }
    }

    #[test]
    fn a_window_beyond_what_the_web_allows_is_not_opened() {
        assert_eq!(Encoding::Brotli.open(BROTLI_LARGE), None);
        let mut long = zstd::Encoder::new(Vec::new(), 3).unwrap();
        long.window_log(ZSTD_WINDOW_LOG + 1).unwrap();
        long.write_all(TEXT).unwrap();
        long.flush().unwrap();
        assert_eq!(Encoding::Zstd.open(&long.finish().unwrap()), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_opened_or_not(bytes: Vec<u8>, cut: usize) {
            let brotli = [&BROTLI_BOMB[..cut % BROTLI_BOMB.len()], &bytes].concat();
            for encoding in [Encoding::Gzip, Encoding::Deflate, Encoding::Brotli, Encoding::Zstd] {
                encoding.open(&bytes);
                encoding.open(&brotli);
            }
        }
    }
}
