//! Compressed bodies. What the proxy reads is decompressed here: requests, replies that are translated, and the log's
//! copies of the others.

use std::{
    borrow::Cow,
    io::{self, BufRead, ErrorKind, Read, Write},
};

use brotli_decompressor::BrotliDecoderParameter::BROTLI_DECODER_PARAM_LARGE_WINDOW;
use flate2::bufread::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::{HeaderMap, header};

/// The largest decompressed size of a reply. This protects against decompression bombs.
const MAX_OPENED: u64 = 32 << 20;
const MAX_ENCODINGS: usize = 3;
/// The longest window of zstd, 8 MiB. A reply may not require more (RFC 9659).
const ZSTD_WINDOW_LOG: u32 = 23;
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
    /// The encodings that are decompressed, as a header names them.
    pub const NAMES: &str = "gzip, deflate, br, zstd";

    /// Returns the encoding that a reply's headers name.
    pub fn from_headers(headers: &HeaderMap) -> Self {
        match Self::all(headers).as_deref() {
            Some([]) => Self::Identity,
            Some([encoding]) => *encoding,
            Some(_) | None => Self::Unsupported,
        }
    }

    /// Returns the encodings that a body's headers name, in the order in which they were applied, or `None` if one of
    /// them is not supported, or if there are more than three.
    pub fn all(headers: &HeaderMap) -> Option<Vec<Self>> {
        let given = headers.get_all(header::CONTENT_ENCODING).iter();
        let names = given.flat_map(|value| value.as_bytes().split(|b| *b == b','));
        let is_any = |encoding: &Self| *encoding != Self::Identity;
        let all: Vec<Self> = names.map(Self::named).filter(is_any).collect();
        let is_known = all.len() <= MAX_ENCODINGS && !all.contains(&Self::Unsupported);
        is_known.then_some(all)
    }

    fn named(name: &[u8]) -> Self {
        match name.trim_ascii().to_ascii_lowercase().as_slice() {
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
    pub fn open_to(self, limit: u64, bytes: &[u8]) -> Option<Cow<'_, [u8]>> {
        if self == Self::Identity {
            return Some(Cow::Borrowed(bytes));
        }
        let mut opened = Vec::new();
        // An error is treated as an early end, and the bytes before it are kept.
        let _ = self
            .decoder(bytes)
            .ok()?
            .take(limit)
            .read_to_end(&mut opened);
        (bytes.is_empty() || !opened.is_empty()).then_some(Cow::Owned(opened))
    }

    /// Decompresses a whole body of at most `limit` bytes into `out`.
    ///
    /// # Errors
    /// Returns an error if the bytes are not in this encoding, end early or go on after their end, and
    /// [`io::ErrorKind::FileTooLarge`] if there are more than `limit` of them.
    pub fn decode(self, bytes: &[u8], limit: u64, out: &mut impl Write) -> io::Result<()> {
        // A decoder that reads this byte has not found the end before it. flate2 reports that for gzip only.
        let (is_deflate, marked) = (self == Self::Deflate, [bytes, &[0]].concat());
        let mut rest = if is_deflate { &marked } else { bytes };
        let mut decoder = self.decoder(&mut rest)?.take(limit + 1);
        let n_bytes = io::copy(&mut decoder, out)?;
        // Brotli's decoder reports what follows the end when it is read again.
        if n_bytes > limit || decoder.into_inner().read(&mut [0])? > 0 {
            return Err(ErrorKind::FileTooLarge.into());
        }
        match (is_deflate, rest.len()) {
            (true, 1) | (false, 0) => Ok(()),
            (_, 0) => Err(ErrorKind::UnexpectedEof.into()),
            (true | false, _) => Err(ErrorKind::InvalidData.into()),
        }
    }

    fn decoder<'a>(self, bytes: impl BufRead + 'a) -> io::Result<Box<dyn Read + 'a>> {
        let mut bytes = bytes;
        Ok(match self {
            Self::Identity => Box::new(bytes),
            Self::Unsupported => return Err(ErrorKind::Unsupported.into()),
            Self::Gzip => Box::new(MultiGzDecoder::new(bytes)),
            // The low half of the first byte of a zlib stream says "deflate" (RFC 1950, 2.2).
            Self::Deflate if bytes.fill_buf()?.first().is_some_and(|b| b & 0x0f == 8) => {
                Box::new(ZlibDecoder::new(bytes))
            }
            Self::Deflate => Box::new(DeflateDecoder::new(bytes)),
            Self::Brotli => Box::new(brotli(bytes)),
            Self::Zstd => Box::new(zstd(bytes)?),
        })
    }
}

/// Windows beyond the RFC's 16 MiB are refused, because nobody on the web sends them.
fn brotli(bytes: impl BufRead) -> impl Read {
    let mut decoder = brotli_decompressor::Decompressor::new(bytes, BROTLI_BUFFER);
    decoder.set_parameter(BROTLI_DECODER_PARAM_LARGE_WINDOW, 0);
    decoder
}

fn zstd(bytes: impl BufRead) -> io::Result<impl Read> {
    let mut decoder = zstd::Decoder::with_buffer(bytes)?;
    decoder.window_log_max(ZSTD_WINDOW_LOG)?;
    Ok(decoder)
}

#[cfg(test)]
mod tests {
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
    fn the_headers_name_several_in_their_order() {
        use Encoding::{Brotli, Deflate, Gzip, Zstd};
        for (values, encodings) in [
            (&["gzip, br"][..], Some(vec![Gzip, Brotli])),
            (
                &["deflate", "identity,,zstd,BR"],
                Some(vec![Deflate, Zstd, Brotli]),
            ),
            (&["identity, identity, identity, Identity"], Some(vec![])),
            (&[], Some(vec![])),
            (&["lzma"], None),
            (&["gzip", "x-own"], None),
            (&["gzip,gzip", "br, br"], None),
            (&["gzip;q=1"], None),
            (&["*"], None),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::CONTENT_ENCODING, value.parse().unwrap());
            }
            assert_eq!(Encoding::all(&headers), encodings, "{values:?}");
        }
    }

    fn packed(encoding: Encoding, bytes: &[u8]) -> Vec<u8> {
        let (mut packed, fast) = (Vec::new(), Compression::fast());
        match encoding {
            Encoding::Gzip => GzEncoder::new(&mut packed, fast).write_all(bytes).unwrap(),
            Encoding::Deflate => DeflateEncoder::new(&mut packed, fast)
                .write_all(bytes)
                .unwrap(),
            Encoding::Zstd => packed = zstd::encode_all(bytes, 3).unwrap(),
            Encoding::Identity | Encoding::Brotli | Encoding::Unsupported => packed.extend(bytes),
        }
        packed
    }

    #[test]
    fn whatever_is_wrong_with_a_whole_body_is_an_error() {
        use Encoding::{Brotli, Deflate, Gzip, Zstd};
        let text = TEXT.repeat(3_000);
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(&text).unwrap();
        for (encoding, whole, length) in [
            (Gzip, packed(Gzip, &text), text.len()),
            (Deflate, packed(Deflate, &text), text.len()),
            (Deflate, zlib.finish().unwrap(), text.len()),
            (Zstd, packed(Zstd, &text), text.len()),
            (Brotli, BROTLI.to_vec(), TEXT.len()),
        ] {
            let decode = |bytes: &[u8], limit: usize| {
                let mut out = Vec::new();
                let decoded = encoding.decode(bytes, limit as u64, &mut out);
                decoded.map(|()| out.len()).map_err(|error| error.kind())
            };
            assert_eq!(decode(&whole, length), Ok(length), "{encoding:?}");
            let too_long = Err(ErrorKind::FileTooLarge);
            assert_eq!(decode(&whole, length - 1), too_long, "{encoding:?}");
            for cut in [0, 1, whole.len() / 2, whole.len() - 1] {
                assert!(decode(&whole[..cut], length).is_err(), "{encoding:?} {cut}");
            }
            for more in [&b"{}"[..], &[0], &[0; 9]] {
                let more = [&whole[..], more].concat();
                assert!(decode(&more, length).is_err(), "{encoding:?}");
            }
        }
        // Two members of gzip, and two frames of zstd, are one body.
        for encoding in [Gzip, Zstd] {
            let (twice, mut out) = (packed(encoding, TEXT).repeat(2), Vec::new());
            encoding.decode(&twice, MAX_OPENED, &mut out).unwrap();
            assert_eq!(out, TEXT.repeat(2), "{encoding:?}");
            assert_eq!(encoding.open(&twice).unwrap(), out);
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
