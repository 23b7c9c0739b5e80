//! The chunked transfer coding (RFC 9112 7.1).

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::{error::Malformed, head::ends_with_crlf};

/// The longest line that says a chunk's size.
const MAX_LINE: usize = 4 << 10;
/// The most bytes of extensions, which nobody reads, in one body.
const MAX_EXTENSIONS: usize = 16 << 10;
/// The longest fields behind a body,
const MAX_TRAILERS: usize = 16 << 10;
/// and the most of them.
const MAX_N_TRAILERS: usize = 64;

/// Reads chunks as they come.
#[derive(Debug, Default)]
pub(crate) struct Chunked {
    state: State,
    /// How much was spent on extensions.
    n_extensions: usize,
    /// Each chunk is given by itself.
    pub is_apart: bool,
}

/// What comes next.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Size,
    Data(u64),
    /// The end of a chunk's line.
    Newline,
    Trailers,
    Over,
}

/// A part of the body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Data(Bytes),
    Trailers(HeaderMap),
}

// === impl Chunked ===

impl Chunked {
    pub(crate) fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Takes what `input` holds of the body; `None` where more has to come, or the body is over. What
    /// several chunks hold comes together, unless it is to stay apart.
    pub(crate) fn take(&mut self, input: &mut BytesMut) -> Result<Option<Part>, Malformed> {
        let Some(first) = self.data(input)? else {
            return self.trailers(input);
        };
        if self.is_apart {
            return Ok(Some(Part::Data(first)));
        }
        // The end is known with the last data, if it has come: nobody asks for more.
        // What is wrong behind it is found again when it is asked for.
        let Ok(Some(second)) = self.data(input) else {
            self.ends_at_once(input);
            return Ok(Some(Part::Data(first)));
        };
        let mut all = BytesMut::with_capacity(first.len() + second.len() + input.len());
        all.extend_from_slice(&first);
        all.extend_from_slice(&second);
        while let Ok(Some(more)) = self.data(input) {
            all.extend_from_slice(&more);
        }
        self.ends_at_once(input);
        Ok(Some(Part::Data(all.freeze())))
    }

    /// What has come of the next chunk that has bytes.
    fn data(&mut self, input: &mut BytesMut) -> Result<Option<Bytes>, Malformed> {
        loop {
            match self.state {
                State::Size => match self.size(input)? {
                    None => return Ok(None),
                    Some(0) => self.state = State::Trailers,
                    Some(size) => self.state = State::Data(size),
                },
                State::Data(_) if input.is_empty() => return Ok(None),
                State::Data(left) => {
                    let n_bytes =
                        usize::try_from(left).map_or(input.len(), |it| it.min(input.len()));
                    let data = input.split_to(n_bytes).freeze();
                    self.state = match left - n_bytes as u64 {
                        0 => State::Newline,
                        left => State::Data(left),
                    };
                    return Ok(Some(data));
                }
                State::Newline => match input.get(..2) {
                    Some(b"\r\n") => {
                        input.advance(2);
                        self.state = State::Size;
                    }
                    None if matches!(**input, [] | [b'\r']) => return Ok(None),
                    _ => return Err(Malformed::Chunk("it is longer than its size says")),
                },
                State::Trailers | State::Over => return Ok(None),
            }
        }
    }

    /// The size that the next line says.
    fn size(&mut self, input: &mut BytesMut) -> Result<Option<u64>, Malformed> {
        let start = &input[..input.len().min(MAX_LINE)];
        let Some(at) = start.iter().position(|byte| *byte == b'\n') else {
            if start.len() == MAX_LINE {
                return Err(Malformed::Chunk("the line of its size is too long"));
            }
            return Ok(None);
        };
        let Some(line) = start[..at].strip_suffix(b"\r") else {
            return Err(Malformed::Chunk("a line does not end with CR LF"));
        };
        let n_digits = line
            .iter()
            .take_while(|byte| byte.is_ascii_hexdigit())
            .count();
        let (digits, rest) = line.split_at(n_digits);
        let mut behind = rest.iter().skip_while(|byte| matches!(byte, b' ' | b'\t'));
        let is_extension = matches!(behind.next(), None | Some(b';'));
        if !is_extension || rest.contains(&b'\r') {
            return Err(Malformed::Chunk("its size is no hexadecimal number"));
        }
        self.n_extensions += rest.len();
        if self.n_extensions > MAX_EXTENSIONS {
            return Err(Malformed::Chunk("there are too many extensions"));
        }
        let size = number(digits).ok_or(Malformed::Chunk("its size is no hexadecimal number"))?;
        input.advance(at + 1);
        Ok(Some(size))
    }

    /// The fields behind the last chunk, when all of them have come.
    fn trailers(&mut self, input: &mut BytesMut) -> Result<Option<Part>, Malformed> {
        if self.state != State::Trailers {
            return Ok(None);
        }
        let mut room = [httparse::EMPTY_HEADER; MAX_N_TRAILERS];
        let (n_bytes, fields) = match httparse::parse_headers(input, &mut room) {
            Ok(httparse::Status::Complete((n_bytes, fields))) if n_bytes <= MAX_TRAILERS => {
                (n_bytes, fields)
            }
            Ok(httparse::Status::Partial) if input.len() <= MAX_TRAILERS => return Ok(None),
            Ok(_) | Err(httparse::Error::TooManyHeaders) => {
                return Err(Malformed::Chunk("the fields behind it are too long"));
            }
            Err(_) => return Err(Malformed::Chunk("a field behind it is malformed")),
        };
        let mut trailers = HeaderMap::new();
        if !ends_with_crlf(input, n_bytes, fields) {
            return Err(Malformed::Chunk("a line does not end with CR LF"));
        }
        for field in fields {
            let name = HeaderName::from_bytes(field.name.as_bytes());
            let value = HeaderValue::from_bytes(field.value);
            let (Ok(name), Ok(value)) = (name, value) else {
                return Err(Malformed::Chunk("a field behind it is malformed"));
            };
            trailers.append(name, value);
        }
        input.advance(n_bytes);
        self.state = State::Over;
        Ok((!trailers.is_empty()).then_some(Part::Trailers(trailers)))
    }

    /// Sees the end, where there is nothing behind the body and it has come.
    fn ends_at_once(&mut self, input: &mut BytesMut) {
        if self.state == State::Trailers && input.starts_with(b"\r\n") {
            input.advance(2);
            self.state = State::Over;
        }
    }
}

/// A number in hexadecimal digits.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        number.checked_mul(16)?.checked_add(digit.into())
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What is read when the bytes come in pieces of this size: the data, and the fields behind it.
    fn read(bytes: &[u8], piece: usize) -> Result<(Vec<u8>, Option<HeaderMap>, usize), Malformed> {
        let (mut chunked, mut input) = (Chunked::default(), BytesMut::new());
        let (mut data, mut trailers) = (Vec::new(), None);
        for piece in bytes.chunks(piece) {
            input.extend_from_slice(piece);
            while let Some(part) = chunked.take(&mut input)? {
                match part {
                    Part::Data(more) => data.extend_from_slice(&more),
                    Part::Trailers(fields) => trailers = Some(fields),
                }
            }
        }
        assert!(chunked.is_over(), "not over: {:?}", chunked.state);
        Ok((data, trailers, input.len()))
    }

    #[test]
    fn chunks_are_read_however_they_are_cut() {
        let bytes = b"4\r\nWiki\r\n006 ;a=\"b\"\r\npedia \r\nE\r\nin \r\n\r\nchunks.\r\n0\r\nx-sum: 1\r\n\r\nGET";
        for piece in 1..=bytes.len() {
            let (data, trailers, n_left) = read(bytes, piece).unwrap();
            assert_eq!(data, b"Wikipedia in \r\n\r\nchunks.");
            assert_eq!(trailers.unwrap()["x-sum"], "1");
            // What comes behind is not the body's; as far as it had come.
            assert!(n_left <= 3, "{n_left}");
        }
    }

    #[test]
    fn what_has_come_comes_together_with_the_end() {
        let mut input = BytesMut::from(&b"1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n"[..]);
        let mut chunked = Chunked::default();
        let all = Part::Data(Bytes::from_static(b"abc"));
        assert_eq!(chunked.take(&mut input), Ok(Some(all)));
        assert!(chunked.is_over() && input.is_empty());
        assert_eq!(chunked.take(&mut input), Ok(None));
    }

    #[test]
    fn chunks_may_stay_apart() {
        let mut input = BytesMut::from(&b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n"[..]);
        let mut chunked = Chunked {
            is_apart: true,
            ..Chunked::default()
        };
        for chunk in ["a", "b"] {
            let part = Part::Data(Bytes::from_static(chunk.as_bytes()));
            assert_eq!(chunked.take(&mut input), Ok(Some(part)));
        }
        assert_eq!(
            (chunked.take(&mut input), chunked.is_over()),
            (Ok(None), true)
        );
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        for bad in [
            "\r\n",
            "g\r\n",
            "-1\r\n",
            "+1\r\n",
            "0x1\r\n",
            "1 1\r\n",
            "1\n",
            "1;a\rb\r\n",
            "10000000000000000\r\n",
            "1\x0c;x\r\na\r\n0\r\n\r\n",
            "1\r\nab\r\n",
            "1\r\na\n",
            "0\r\n: x\r\n\r\n",
            "0\r\nx y: x\r\n\r\n",
        ] {
            let whole = read(bad.as_bytes(), usize::MAX);
            assert!(whole.is_err(), "{bad:?}: {whole:?}");
            assert_eq!(read(bad.as_bytes(), 1), whole, "{bad:?} in pieces");
        }
        let endless = [
            "1;".to_owned() + &"x".repeat(MAX_LINE),
            ("1;".to_owned() + &"x".repeat(1_000) + "\r\na\r\n").repeat(20),
            "0\r\nx: ".to_owned() + &"x".repeat(MAX_TRAILERS),
            "0\r\n".to_owned() + &"x: y\r\n".repeat(MAX_N_TRAILERS + 1),
        ];
        for bad in endless {
            assert!(read(bad.as_bytes(), 997).is_err(), "{}", &bad[..20]);
        }
    }

    proptest! {
        #[test]
        fn any_body_is_what_it_was(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..20),
            piece in 1_usize..700,
        ) {
            let mut bytes = Vec::new();
            for chunk in &chunks {
                bytes.extend(format!("{:X}\r\n", chunk.len()).bytes());
                bytes.extend(chunk);
                bytes.extend(b"\r\n");
            }
            bytes.extend(b"0\r\n\r\n");
            let (data, trailers, n_left) = read(&bytes, piece).unwrap();
            prop_assert_eq!(data, chunks.concat());
            prop_assert!(trailers.is_none() && n_left == 0);
        }
    }
}
