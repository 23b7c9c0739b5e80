//! The head of a reply, as the request and the reply's body want it.

use std::{cell::RefCell, time::SystemTime};

use http::{HeaderMap, HeaderValue, Method, StatusCode, Version, header, response::Parts};
use http_body::Body;

use crate::{
    head::{Reason, RequestHead, has_body, write_header, write_headers, write_length},
    output::Output,
    sending::{How, announced, length},
};

/// What of a request its reply depends on.
#[derive(Debug)]
pub(super) struct Asked {
    method: Method,
    version: Version,
    takes_trailers: bool,
    /// The client would go on with another request.
    pub keeps: bool,
}

/// A date as HTTP writes it, and the second that it stands for.
struct Date {
    second: u64,
    text: String,
}

// === impl Asked ===

impl Asked {
    pub(super) fn of(head: &RequestHead) -> Self {
        Self {
            method: head.method.clone(),
            version: head.version,
            takes_trailers: head.takes_trailers,
            keeps: head.keeps,
        }
    }

    /// What could not be read.
    pub(super) fn unread() -> Self {
        Self {
            method: Method::GET,
            version: Version::HTTP_11,
            takes_trailers: false,
            keeps: false,
        }
    }

    /// The same, and nothing after it where the server is to end.
    pub(super) fn unless(self, is_ending: bool) -> Self {
        Self {
            keeps: self.keeps && !is_ending,
            ..self
        }
    }
}

/// Writes the head of a reply with this body, and says how that is to be sent.
pub(super) fn write_head(
    mut head: Parts,
    body: &impl Body,
    asked: &Asked,
    keeps: bool,
    output: &mut Output,
) -> How {
    let headers = &mut head.headers;
    // How the message is sent is ours to say.
    headers.remove(header::CONNECTION);
    headers.remove(header::TRANSFER_ENCODING);
    if head.status == StatusCode::NO_CONTENT {
        headers.remove(header::CONTENT_LENGTH);
    }
    let given = length(headers);
    let known = body.size_hint().exact();
    let is_10 = asked.version == Version::HTTP_10;
    let how = match (has_body(&asked.method, head.status), given.or(known)) {
        (false, _) => How::Nothing,
        (true, Some(length)) => How::Length(length),
        (true, None) if is_10 => How::ToTheEnd,
        (true, None) if asked.takes_trailers => How::Chunked(announced(headers)),
        (true, None) => How::Chunked(Vec::new()),
    };
    let keeps = keeps && !matches!(how, How::ToTheEnd);
    let told = match &how {
        How::Length(length) => Some(*length).filter(|_| given.is_none()),
        // A reply to HEAD tells of the body that it does not have; an empty one may be anything.
        How::Nothing if asked.method == Method::HEAD => {
            known.filter(|length| given.is_none() && *length > 0)
        }
        How::Nothing | How::Chunked(_) | How::ToTheEnd => None,
    };
    output.write(|out| {
        write_status(head.status, head.extensions.get(), out);
        write_headers(headers, out);
        if let Some(length) = told {
            write_length(length, out);
        }
        if matches!(how, How::Chunked(_)) {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
        }
        match (keeps, is_10) {
            (true, true) => out.extend_from_slice(b"connection: keep-alive\r\n"),
            (false, _) => out.extend_from_slice(b"connection: close\r\n"),
            (true, false) => {}
        }
        write_date(headers, out);
        out.extend_from_slice(b"\r\n");
    });
    how
}

fn write_status(status: StatusCode, reason: Option<&Reason>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(match reason {
        Some(Reason(words)) => words,
        None => status.canonical_reason().unwrap_or_default().as_bytes(),
    });
    out.extend_from_slice(b"\r\n");
}

/// The date, where nobody has given one: it is put in words once a second.
fn write_date(headers: &HeaderMap, out: &mut Vec<u8>) {
    thread_local! {
        static NOW: RefCell<Option<Date>> = const { RefCell::new(None) };
    }
    if headers.contains_key(header::DATE) {
        return;
    }
    let now = SystemTime::now();
    let second = now.duration_since(SystemTime::UNIX_EPOCH);
    let second = second.map_or(0, |since| since.as_secs());
    NOW.with_borrow_mut(|date| {
        if date.as_ref().is_none_or(|date| date.second != second) {
            let text = httpdate::fmt_http_date(now);
            *date = Some(Date { second, text });
        }
        let text = date.as_ref().map_or("", |date| &date.text);
        if let Ok(value) = HeaderValue::from_str(text) {
            write_header(&header::DATE, &value, out);
        }
    });
}
