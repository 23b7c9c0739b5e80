//! The end of a stream, known by its last bytes.

/// Whether the last event of `tail` has one of these names and its data have come whole: a cheap look
/// before the event is read.
///
/// By its `event:` line, or by the `type` with which its data begins. An event whose beginning is not
/// in `tail` is not known.
pub(crate) fn ends_with_event(tail: &[u8], names: &[&str]) -> bool {
    // A long line that comes in pieces is not looked through again with each.
    if !tail.ends_with(b"\n") && !tail.ends_with(b"\r") {
        return false;
    }
    let (before, line) = last_line(tail.trim_ascii_end());
    let Some(data) = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii) else {
        return false;
    };
    if !data.ends_with(b"}") {
        return false;
    }
    let (_, before) = last_line(before);
    let name = before.strip_prefix(b"event:").map(<[u8]>::trim_ascii);
    match name.or_else(|| leading_type(data)) {
        Some(name) => names.iter().any(|known| known.as_bytes() == name),
        None => false,
    }
}

/// The last event of `tail` with its blank line, if that has come.
pub(crate) fn last_event(tail: &[u8]) -> Option<&[u8]> {
    if !ends_blank(tail) {
        return None;
    }
    let mut at = tail.trim_ascii_end().len();
    while let Some(end) = tail[..at].iter().rposition(|b| matches!(b, b'\n' | b'\r')) {
        if ends_blank(&tail[..=end]) {
            return Some(&tail[end + 1..]);
        }
        at = end;
    }
    Some(tail)
}

/// Whether the last line is a blank one, and its end has come.
fn ends_blank(tail: &[u8]) -> bool {
    let without_line_end = |text: &[u8]| match text {
        [before @ .., b'\r', b'\n'] | [before @ .., b'\n' | b'\r'] => Some(before.len()),
        _ => None,
    };
    let before = without_line_end(tail).map(|end| &tail[..end]);
    before.is_some_and(|before| without_line_end(before).is_some())
}

/// What stands before the last line, without its line end, and the line.
fn last_line(text: &[u8]) -> (&[u8], &[u8]) {
    let Some(end) = text.iter().rposition(|b| matches!(b, b'\n' | b'\r')) else {
        return (&[], text);
    };
    let before = match text[..end].strip_suffix(b"\r") {
        Some(before) if text[end] == b'\n' => before,
        Some(_) | None => &text[..end],
    };
    (before, &text[end + 1..])
}

/// `x` of `{"type":"x", ..`, as all known servers write it.
fn leading_type(data: &[u8]) -> Option<&[u8]> {
    let rest = data.strip_prefix(b"{")?.trim_ascii_start();
    let rest = rest.strip_prefix(b"\"type\"")?.trim_ascii_start();
    let rest = rest.strip_prefix(b":")?.trim_ascii_start();
    let rest = rest.strip_prefix(b"\"")?;
    let end = rest.iter().position(|b| *b == b'"')?;
    Some(&rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(tail: &str) -> bool {
        ends_with_event(tail.as_bytes(), &["message_stop"])
    }

    #[test]
    fn an_event_is_known_by_its_name_or_by_its_type() {
        assert!(ends(
            "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
        ));
        assert!(ends("event:message_stop\r\ndata:{\"a\":1}\r\n\r\n"));
        assert!(ends("data: { \"type\" : \"message_stop\", \"a\": {} }\n"));
        assert!(ends(
            "event: ping\ndata: {}\n\ndata: {\"type\":\"message_stop\"}\r\r"
        ));
    }

    #[test]
    fn an_event_ends_with_its_blank_line() {
        let last = |tail: &str| {
            let event = last_event(tail.as_bytes()).map(<[u8]>::to_vec);
            event.map(|event| String::from_utf8(event).unwrap())
        };
        for (tail, event) in [
            ("data: a\n\n", Some("data: a\n\n")),
            ("data: a\n\nid: 1\ndata: b\n\n", Some("id: 1\ndata: b\n\n")),
            ("data: a\r\n\r\ndata: b\r\n\r\n", Some("data: b\r\n\r\n")),
            ("data: a\r\rdata: b\r\r\n", Some("data: b\r\r\n")),
            ("data: a\n\ndata: b\n", None),
            ("data: a\n\ndata: b\r\n", None),
            ("\n", None),
            ("", None),
        ] {
            assert_eq!(last(tail).as_deref(), event, "{tail:?}");
        }
    }

    #[test]
    fn what_only_looks_like_the_end_is_not_it() {
        for tail in [
            "",
            "\n\n",
            "event: message_stop\n",
            "event: message_stop\ndata: {\"type\":\"message_stop\"}",
            "event: message_stop\ndata: {\"type\":\n",
            "event: message_stop\ndata: {}\n\nevent: ping\ndata: {}\n\n",
            "data: {\"text\":\"\\\"type\\\":\\\"message_stop\\\"\"}\n\n",
            "message_stop\"}\n\n",
        ] {
            assert!(!ends(tail), "{tail:?}");
        }
    }
}
