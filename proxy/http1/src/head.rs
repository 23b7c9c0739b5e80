//! Heads of requests and replies, and what they say of the body and of the connection.

use std::{io::Write as _, mem::MaybeUninit};

use bytes::{Buf, Bytes, BytesMut};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version,
    header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TE, TRANSFER_ENCODING},
};
use httparse::{Header, Status};

use crate::error::Malformed;

/// The most headers that are read.
pub(crate) const MAX_HEADERS: usize = 100;
/// The longest head that is read.
pub(crate) const MAX_HEAD: usize = 64 << 10;

/// The words behind a status, where they are not its usual ones: an extension of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason(pub Bytes);

/// How the end of a body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// So many bytes; none is no body.
    Length(u64),
    Chunked,
    /// The end of the connection.
    ToTheEnd,
}

/// A request's head.
#[derive(Debug)]
pub(crate) struct RequestHead {
    pub method: Method,
    pub uri: Uri,
    pub version: Version,
    pub headers: HeaderMap,
    pub framing: Framing,
    /// The connection may go on with another request.
    pub keeps: bool,
    /// The client waits with the body for a word of ours.
    pub expects: bool,
    /// The client reads fields behind a body.
    pub takes_trailers: bool,
}

/// A reply's head.
#[derive(Debug)]
pub(crate) struct ReplyHead {
    pub status: StatusCode,
    pub reason: Option<Reason>,
    pub headers: HeaderMap,
    pub framing: Framing,
    pub keeps: bool,
}

/// What headers say of a message.
#[derive(Debug, Default)]
struct Says {
    length: Option<u64>,
    /// Whether all of it is `chunked`.
    is_chunked: Option<bool>,
    closes: bool,
    keeps: bool,
    n_hosts: usize,
}

// === impl RequestHead ===

impl RequestHead {
    /// Takes a head from the beginning of `input`, once all of it has come.
    pub(crate) fn take(input: &mut BytesMut) -> Result<Option<Self>, Malformed> {
        skip_empty_lines(input);
        let mut room = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        let mut parsed = httparse::Request::new(&mut []);
        let n_bytes = match parsed.parse_with_uninit_headers(input, &mut room)? {
            Status::Complete(n_bytes) => n_bytes,
            Status::Partial => return unfinished(input.len()),
        };
        let (Some(method), Some(path), Some(version)) =
            (parsed.method, parsed.path, parsed.version)
        else {
            return Err(Malformed::Head("the first line is not one of HTTP"));
        };
        bounded(n_bytes)?;
        // Whoever passed this on may have taken a lone LF for a part of a value.
        let first = offset(input, path.as_bytes()) + path.len() + " HTTP/1.x".len();
        if input[first] != b'\r' || !ends_with_crlf(input, n_bytes, parsed.headers) {
            return Err(Malformed::Head("a line does not end with CR LF"));
        }
        let method = Method::from_bytes(method.as_bytes());
        let method = method.map_err(|_| Malformed::Head("the method is not allowed"))?;
        if method == Method::CONNECT {
            return Err(Malformed::Tunnel);
        }
        let head = Bytes::copy_from_slice(&input[..n_bytes]);
        let uri = Uri::from_maybe_shared(part(&head, input, path.as_bytes()));
        let uri = uri.map_err(|_| Malformed::Head("the address is not one of HTTP"))?;
        let (headers, says) = headers(&head, input, parsed.headers)?;
        let is_11 = version == 1;
        if !(says.n_hosts == 1 || says.n_hosts == 0 && !is_11) {
            return Err(Malformed::Host);
        }
        let has_te = says.is_chunked.is_some();
        if has_te && (says.length.is_some() || !is_11) {
            return Err(Malformed::Ambiguous);
        }
        let framing = match says.is_chunked {
            Some(true) => Framing::Chunked,
            Some(false) => return Err(Malformed::Coding),
            None => Framing::Length(says.length.unwrap_or(0)),
        };
        let _ = input.split_to(n_bytes);
        let continues =
            |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
        let trailers = |value: &HeaderValue| has_token(value, "trailers");
        Ok(Some(Self {
            expects: is_11 && headers.get(EXPECT).is_some_and(continues),
            takes_trailers: headers.get_all(TE).iter().any(trailers),
            keeps: says.lets_go_on(is_11),
            version: if is_11 {
                Version::HTTP_11
            } else {
                Version::HTTP_10
            },
            method,
            uri,
            headers,
            framing,
        }))
    }
}

// === impl ReplyHead ===

impl ReplyHead {
    /// Takes the head of an answer to a request of this method from the beginning of `input`, once all of
    /// it has come. What is said before the answer (1xx) is passed over.
    pub(crate) fn take(input: &mut BytesMut, asked: &Method) -> Result<Option<Self>, Malformed> {
        loop {
            let Some(head) = Self::take_one(input, asked)? else {
                return Ok(None);
            };
            if head.status == StatusCode::SWITCHING_PROTOCOLS {
                return Err(Malformed::Head("it changes the protocol, unasked"));
            }
            if !head.status.is_informational() {
                return Ok(Some(head));
            }
        }
    }

    fn take_one(input: &mut BytesMut, asked: &Method) -> Result<Option<Self>, Malformed> {
        skip_empty_lines(input);
        let mut room = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        let mut parsed = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        let parsing = config.parse_response_with_uninit_headers(&mut parsed, input, &mut room);
        let n_bytes = match parsing? {
            Status::Complete(n_bytes) => n_bytes,
            Status::Partial => return unfinished(input.len()),
        };
        let (Some(code), Some(version)) = (parsed.code, parsed.version) else {
            return Err(Malformed::Head("the first line is not one of HTTP"));
        };
        bounded(n_bytes)?;
        let status = StatusCode::from_u16(code);
        let status = status.map_err(|_| Malformed::Head("the status is below 100"))?;
        let head = Bytes::copy_from_slice(&input[..n_bytes]);
        let words = parsed.reason.unwrap_or_default();
        let is_usual = status.canonical_reason() == Some(words) || words.is_empty();
        let reason = (!is_usual).then(|| Reason(part(&head, input, words.as_bytes())));
        let (mut headers, says) = headers(&head, input, parsed.headers)?;
        let is_11 = version == 1;
        match says.is_chunked {
            Some(_) if !is_11 => return Err(Malformed::Ambiguous),
            // Nobody asked for another one, and the agent could not tell what it is given.
            Some(false) => return Err(Malformed::Coding),
            Some(true) | None => {}
        }
        let mut keeps = says.lets_go_on(is_11);
        let framing = match (has_body(asked, status), says.is_chunked, says.length) {
            (false, ..) => Framing::Length(0),
            (true, Some(_), length) => {
                if length.is_some() {
                    // Somebody between may have read it otherwise: nothing more is read from there.
                    headers.remove(CONTENT_LENGTH);
                    keeps = false;
                }
                Framing::Chunked
            }
            (true, None, Some(length)) => Framing::Length(length),
            (true, None, None) => Framing::ToTheEnd,
        };
        let _ = input.split_to(n_bytes);
        Ok(Some(Self {
            keeps: keeps && framing != Framing::ToTheEnd,
            status,
            reason,
            headers,
            framing,
        }))
    }
}

/// Whether an answer has a body, whatever its headers say (RFC 9112 6.3).
pub(crate) fn has_body(asked: &Method, status: StatusCode) -> bool {
    let is_without = status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    !is_without && *asked != Method::HEAD
}

/// Whether a header lists a token.
pub(crate) fn has_token(value: &HeaderValue, token: &str) -> bool {
    let mut tokens = value.as_bytes().split(|byte| *byte == b',');
    tokens.any(|it| it.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

/// Headers as `name: value` lines.
pub(crate) fn write_headers(headers: &HeaderMap, out: &mut Vec<u8>) {
    for (name, value) in headers {
        write_header(name, value, out);
    }
}

pub(crate) fn write_header(name: &HeaderName, value: &HeaderValue, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_str().as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
}

pub(crate) fn write_length(length: u64, out: &mut Vec<u8>) {
    // Nothing fails to be written to memory.
    let _ = write!(out, "content-length: {length}\r\n");
}

fn unfinished<T>(n_bytes: usize) -> Result<Option<T>, Malformed> {
    bounded(n_bytes)?;
    Ok(None)
}

fn bounded(n_bytes: usize) -> Result<(), Malformed> {
    if n_bytes > MAX_HEAD {
        return Err(Malformed::too_long());
    }
    Ok(())
}

/// Leaves out empty lines before a first line (RFC 9112 2.2).
fn skip_empty_lines(input: &mut BytesMut) {
    loop {
        match **input {
            [b'\r', b'\n', ..] => input.advance(2),
            [b'\n', ..] => input.advance(1),
            _ => return,
        }
    }
}

/// Whether the lines of these fields, which end `n_bytes` of `input`, all end with CR LF and not with LF alone.
pub(crate) fn ends_with_crlf(input: &[u8], n_bytes: usize, fields: &[Header<'_>]) -> bool {
    let has_cr = |field: &Header<'_>| {
        let behind = &input[offset(input, field.value) + field.value.len()..];
        let mut behind = behind
            .iter()
            .skip_while(|byte| matches!(byte, b' ' | b'\t'));
        behind.next() == Some(&b'\r')
    };
    input[..n_bytes].ends_with(b"\r\n") && fields.iter().all(has_cr)
}

/// Where a part of `input` begins.
fn offset(input: &[u8], part: &[u8]) -> usize {
    part.as_ptr().addr() - input.as_ptr().addr()
}

/// The copy in `head` of a part of `input`.
fn part(head: &Bytes, input: &[u8], part: &[u8]) -> Bytes {
    let at = offset(input, part);
    head.slice(at..at + part.len())
}

/// The headers, as parts of `head`, and what they say together.
fn headers(
    head: &Bytes,
    input: &[u8],
    parsed: &[Header<'_>],
) -> Result<(HeaderMap, Says), Malformed> {
    let mut headers = HeaderMap::with_capacity(parsed.len());
    let mut says = Says::default();
    for header in parsed {
        let name = HeaderName::from_bytes(header.name.as_bytes());
        let name = name.map_err(|_| Malformed::Head("a header's name is not allowed"))?;
        let value = HeaderValue::from_maybe_shared(part(head, input, header.value));
        let value = value.map_err(|_| Malformed::Head("a header's value is not allowed"))?;
        match name {
            CONTENT_LENGTH => {
                let length = length(&value)?;
                match says.length.replace(length) {
                    None => {}
                    // Said again, it is one all the same.
                    Some(before) if before == length => continue,
                    Some(_) => return Err(Malformed::Length),
                }
            }
            TRANSFER_ENCODING => {
                let is_chunked = value
                    .as_bytes()
                    .trim_ascii()
                    .eq_ignore_ascii_case(b"chunked");
                says.is_chunked = Some(is_chunked && says.is_chunked.is_none());
            }
            CONNECTION => {
                says.closes |= has_token(&value, "close");
                says.keeps |= has_token(&value, "keep-alive");
            }
            HOST => says.n_hosts += 1,
            _ => {}
        }
        headers.append(name, value);
    }
    Ok((headers, says))
}

/// The number that a `content-length` is.
pub(crate) fn length(value: &HeaderValue) -> Result<u64, Malformed> {
    let digits = value.as_bytes();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Malformed::Length);
    }
    let digits = value.to_str().map_err(|_| Malformed::Length)?;
    digits.parse().map_err(|_| Malformed::Length)
}

// === impl Says ===

impl Says {
    /// Whether the connection may be used again: HTTP/1.0 has to say so, HTTP/1.1 not.
    fn lets_go_on(&self, is_11: bool) -> bool {
        !self.closes && (is_11 || self.keeps)
    }
}

// === impl Malformed ===

impl Malformed {
    pub(crate) fn too_long() -> Self {
        Self::TooLong {
            max_headers: MAX_HEADERS,
            max_bytes: MAX_HEAD,
        }
    }
}
