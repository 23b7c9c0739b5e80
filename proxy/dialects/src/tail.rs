//! Finds the last event of an unfinished stream.

use memchr::memrchr2;

pub(crate) fn last_event(tail: &[u8]) -> Option<&[u8]> {
    if !ends_blank(tail) {
        return None;
    }
    let mut at = tail.trim_ascii_end().len();
    while let Some(end) = memrchr2(b'\n', b'\r', &tail[..at]) {
        if ends_blank(&tail[..=end]) {
            return Some(&tail[end + 1..]);
        }
        at = end;
    }
    Some(tail)
}

fn ends_blank(tail: &[u8]) -> bool {
    let without_line_end = |text: &[u8]| match text {
        [before @ .., b'\r', b'\n'] | [before @ .., b'\n' | b'\r'] => Some(before.len()),
        _ => None,
    };
    let before = without_line_end(tail).map(|end| &tail[..end]);
    before.is_some_and(|before| without_line_end(before).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
