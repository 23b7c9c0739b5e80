//! The splice: what is JSON to others is JSON here, before and after; all but our edits is the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use metaclaw_fuzz::{
    Input, api,
    json::{self, Members},
};
use metaclaw_gateway::fuzzing::{self, Edits};

const LESSON: &str = "Answer in \"one\" sentence.\nLesson \u{1f980}";
const LINE: &str = "Remember: be brief.";
const MODEL: &str = "our/model";
/// Fields that are addressed to us.
const OWN: [&str; 6] = [
    "session_id",
    "session_done",
    "turn_type",
    "memory_scope",
    "user_id",
    "workspace_id",
];
/// Fields that lessons are put into.
const SPOKEN: [&str; 4] = ["messages", "input", "system", "instructions"];
/// Fields that may be added.
const ADDED: [&str; 4] = ["model", "metaclaw_system_append", "system", "instructions"];

fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let choice = input.byte();
    let edits = Edits {
        model: (choice & 1 != 0).then_some(MODEL),
        system: (choice & 2 != 0).then_some(LESSON),
        in_field: choice & 4 != 0,
        user_line: (choice & 8 != 0).then_some(LINE),
    };
    let api = api(choice >> 4);
    let raw = input.rest();
    assert_eq!(
        fuzzing::is_object(api, raw),
        json::is_object(raw),
        "two parsers disagree"
    );
    let Ok(out) = fuzzing::splice(api, raw, edits) else {
        return;
    };
    assert!(json::is_object(raw), "no JSON was taken for some");
    let raw = std::str::from_utf8(raw).expect("JSON is UTF-8");
    let out = String::from_utf8(out).expect("UTF-8 stays UTF-8");
    assert_eq!(
        fuzzing::splice(api, raw.as_bytes(), edits).expect("as before"),
        out.as_bytes(),
        "the same lessons, the same bytes"
    );
    // A lesson may go one level below the deepest.
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&out).is_ok();
    assert!(is_json, "no JSON came out: {out}");
    compare(raw, &out, edits);
});

fn compare(raw: &str, out: &str, edits: Edits<'_>) {
    let (Some(Members(old)), Some(Members(new))) = (json::members(raw), json::members(out)) else {
        panic!("no object: {raw} {out}");
    };
    let key = |raw: &str| json::text(raw).unwrap_or_default();
    assert!(
        !new.iter().any(|(name, _)| OWN.contains(&&*key(name.get()))),
        "a field of ours goes upstream: {out}"
    );
    let n_old = old.len();
    let kept: Vec<_> = old
        .into_iter()
        .filter(|(name, _)| !OWN.contains(&&*key(name.get())))
        .collect();
    let n_added = new.len().checked_sub(kept.len()).expect("a field is gone");
    let (added, same) = new.split_at(n_added);
    for (name, value) in added {
        let (name, value) = (key(name.get()), key(value.get()));
        assert!(ADDED.contains(&&*name), "a field nobody asked for: {out}");
        assert!(value == MODEL || value == LESSON, "{out}");
    }
    let texts: Vec<&str> = [edits.system, edits.user_line]
        .into_iter()
        .flatten()
        .collect();
    for (old, new) in kept.iter().zip(same) {
        assert_eq!(old.0.get(), new.0.get(), "another key: {raw} {out}");
        let name = key(old.0.get());
        let (before, after) = (old.1.get(), new.1.get());
        let is_right = before == after
            || name == "model" && edits.model.is_some() && key(after) == MODEL
            || SPOKEN.contains(&&*name) && json::grew(before, after, &texts);
        assert!(is_right, "{name} was {before} and is {after}");
    }
    // What stands between the values: with additions alone, every byte is still there, in order.
    let is_addition = kept.len() == n_old && edits.model.is_none() && !raw.contains("null");
    if is_addition {
        let mut bytes = out.bytes();
        assert!(
            raw.bytes().all(|byte| bytes.any(|other| other == byte)),
            "a byte is gone: {raw} {out}"
        );
    }
    if edits.model.is_none() && texts.is_empty() && kept.len() == n_old {
        assert_eq!(raw, out, "nothing was to be changed");
    }
}
