//! The recorded cases, as far as no server is needed: the gateway's tests put all of them through a whole proxy.

#[path = "../../../testdata/corpus.rs"]
mod recorded;

use recorded::{Case, cases, differs};

use super::*;

#[test]
fn every_recorded_request_is_sent_as_its_case_says() {
    for (name, case) in cases() {
        let path = Direction::path(case.caller, case.upstream);
        if path.is_empty() {
            continue;
        }
        let told = case.told(&name);
        match (request_along(path, &case.request, 1), &case.refused) {
            (Ok((sent, _)), None) => {
                let expected = case.sent.as_ref().unwrap_or(&Value::Null);
                let why = (!expected.is_null())
                    .then(|| differs(expected, &sent))
                    .flatten();
                assert_eq!(why, None, "{told}\n{sent:#}");
            }
            (Err(error), Some(words)) => {
                assert!(error.to_string().contains(words), "{told}\n{error}");
            }
            (sent, _) => panic!("{told}\n{sent:?}"),
        }
    }
}

#[test]
fn every_recorded_answer_is_read_as_its_case_says() {
    for (name, case) in cases() {
        let path = Direction::path(case.caller, case.upstream);
        let Ok((_, steps)) = request_along(path, &case.request, 1) else {
            continue;
        };
        if steps.is_empty() {
            continue;
        }
        // Another form than was asked for is the gateway's to change.
        let answers = case.answers.iter();
        for answer in answers.filter(|it| it.is_events() == case.wants_stream()) {
            let why = said(&steps, &case, answer.bytes(case.upstream));
            assert_eq!(why, None, "{}", case.told(&name));
        }
    }
}

fn said(steps: &[(Direction, ReplyContext)], case: &Case, mut bytes: Vec<u8>) -> Option<String> {
    let mut status = 200;
    for (direction, context) in steps.iter().rev() {
        if case.wants_stream() {
            let out = rewritten(stream(*direction, context), [&bytes[..]]);
            let in_pieces = rewritten(stream(*direction, context), bytes.chunks(7));
            assert_eq!(String::from_utf8(out.clone()), String::from_utf8(in_pieces));
            bytes = out;
        } else if status == 200 {
            match reply(*direction, context, &bytes) {
                Ok(out) => (status, bytes) = (out.error.unwrap_or(200), out.body),
                Err(error) => return Some(error.to_string()),
            }
        } else {
            bytes = error(*direction, status, &bytes);
        }
    }
    case.differs(status, &bytes, case.wants_stream())
}
