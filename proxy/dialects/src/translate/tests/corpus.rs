//! The recorded cases, as far as no server is needed: the gateway's tests put all of them through a whole proxy.

#[path = "../../../testdata/corpus.rs"]
mod recorded;

use recorded::{Case, cases, differs};

use super::*;
use crate::{Api, Reply};

#[test]
fn every_recorded_request_is_sent_as_its_case_says() {
    for (name, case) in cases() {
        let Some(direction) = Direction::between(case.caller, case.upstream) else {
            continue;
        };
        let told = case.told(&name);
        match (request(direction, &case.request), &case.refused) {
            (Ok(sent), None) => {
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
        let Some(direction) = Direction::between(case.caller, case.upstream) else {
            continue;
        };
        let context = ReplyContext::for_request(&case.request, 1);
        // Another form than was asked for is the gateway's to change.
        let answers = case.answers.iter();
        for answer in answers.filter(|it| it.is_events() == case.wants_stream()) {
            let bytes = answer.bytes(case.upstream);
            let why = said(direction, &context, &case, &bytes);
            assert_eq!(why, None, "{}", case.told(&name));
        }
    }
}

fn said(direction: Direction, context: &ReplyContext, case: &Case, bytes: &[u8]) -> Option<String> {
    if case.wants_stream() {
        let out = rewritten(stream(direction, context), [bytes]);
        let split = bytes.chunks(7);
        let in_pieces = rewritten(stream(direction, context), split);
        assert_eq!(String::from_utf8(out.clone()), String::from_utf8(in_pieces));
        return case.differs(200, &out, true);
    }
    match reply(direction, context, bytes) {
        Ok(out) => case.differs(out.error.unwrap_or(200), &out.body, false),
        Err(error) => Some(error.to_string()),
    }
}
