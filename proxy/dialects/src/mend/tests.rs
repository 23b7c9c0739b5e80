//! Tests with recorded histories: a request, the session's replies in the log, and the request that the upstream
//! accepts.

use std::{fmt::Write as _, fs};

use metaclaw_chat::Message;
use serde::Deserialize;
use serde_json::Value;

use super::{Demands, PastReply, mend};
use crate::Api;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// Who reported it, and what went wrong.
    #[expect(dead_code, reason = "for people")]
    why: String,
    api: Api,
    target: Api,
    /// The upstream's earlier refusal.
    #[serde(default)]
    refusal: Value,
    past: Vec<Past>,
    request: Value,
    expected: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Past {
    own: bool,
    #[serde(default)]
    masked: bool,
    reply: Message,
}

#[test]
fn every_recorded_history_is_mended_as_it_says() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/histories");
    let (mut n, mut wrong) = (0, String::new());
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let case: Case = serde_json::from_slice(&fs::read(&path).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if let Err(why) = check(&case) {
            writeln!(wrong, "{}: {why}", path.display()).unwrap();
        }
        n += 1;
    }
    assert!(wrong.is_empty(), "\n{wrong}");
    assert!(n >= 30, "{n} cases");
}

fn check(case: &Case) -> Result<(), String> {
    let past = case.past.iter().map(|it| PastReply {
        is_own: it.own,
        is_masked: it.masked,
        reply: &it.reply,
    });
    let past: Vec<PastReply<'_>> = past.collect();
    let demands = Demands::of_refusal(400, case.refusal.to_string().as_bytes());
    let mut request = case.request.clone();
    let mended = mend(case.api, case.target, &mut request, &past, demands);
    if request != case.expected {
        return Err(format!("sent {request}\n  not {}", case.expected));
    }
    if mended.is_nothing() != (case.request == case.expected) {
        return Err(format!("said to be changed: {mended}"));
    }
    // Mending a second time changes nothing.
    mend(case.api, case.target, &mut request, &past, demands);
    if request != case.expected {
        return Err(format!("sent {request} the second time"));
    }
    Ok(())
}
