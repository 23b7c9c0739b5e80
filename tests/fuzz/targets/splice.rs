//! Adding to a body: the parser accepts what other JSON parsers accept, before and after; all bytes except the
//! additions are the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use metaclaw_dialects::request::{
    Absent, Changes, ChatRequest, OWN_FIELDS, RequestError, SHARED_FIELDS, splice,
};
use metaclaw_fuzz::{
    Input, api,
    json::{self, Members},
};

const LESSON: &str = "Answer in \"one\" sentence.\nLesson \u{1f980}";
const LINE: &str = "Remember: be brief.";
const MODEL: &str = "our/model";
/// Fields that lessons are added to.
const SPOKEN: [&str; 4] = ["messages", "input", "system", "instructions"];
/// Fields that may be added.
const ADDED: [&str; 4] = ["model", "metaclaw_system_append", "system", "instructions"];

fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let choice = input.byte();
    let changes = Changes {
        model: (choice & 1 != 0).then_some(MODEL),
        system: (choice & 2 != 0).then_some(LESSON),
        absent: if choice & 4 == 0 {
            Absent::Insert
        } else {
            Absent::Field
        },
        user_line: (choice & 8 != 0).then_some(LINE),
        sender_lines: None,
        dropped: &[],
        fields: &[],
        cuts_shared: true,
    };
    let raw = input.rest();
    let request = ChatRequest::parse(api(choice >> 4), raw.to_vec().into());
    let is_object = !matches!(
        request,
        Err(RequestError::NotUtf8 { .. }
            | RequestError::NotJson(_)
            | RequestError::NotAnObject { .. })
    );
    assert_eq!(is_object, json::is_object(raw), "two readers disagree");
    let Ok(request) = request else {
        return;
    };
    let raw = std::str::from_utf8(raw).expect("JSON is UTF-8");
    let out = splice(&request, changes).concat();
    assert_eq!(
        splice(&request, changes).concat(),
        out,
        "the same lessons, the same bytes"
    );
    let out = String::from_utf8(out).expect("UTF-8 stays UTF-8");
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&out).is_ok();
    assert!(is_json, "no JSON came out: {out}");
    compare(raw, &out, changes);
});

fn is_cut(name: &str) -> bool {
    OWN_FIELDS.contains(&name) || SHARED_FIELDS.contains(&name)
}

fn compare(raw: &str, out: &str, changes: Changes<'_>) {
    let (Some(Members(old)), Some(Members(new))) = (json::members(raw), json::members(out)) else {
        panic!("no object: {raw} {out}");
    };
    let key = |raw: &str| json::text(raw).unwrap_or_default();
    assert!(
        !new.iter().any(|(name, _)| is_cut(&key(name.get()))),
        "a field of ours goes upstream: {out}"
    );
    let n_old = old.len();
    let kept: Vec<_> = old
        .into_iter()
        .filter(|(name, _)| !is_cut(&key(name.get())))
        .collect();
    let n_added = new.len().checked_sub(kept.len()).expect("a field is gone");
    let (added, same) = new.split_at(n_added);
    for (name, value) in added {
        let (name, value) = (key(name.get()), key(value.get()));
        assert!(ADDED.contains(&&*name), "a field nobody asked for: {out}");
        assert!(value == MODEL || value == LESSON, "{out}");
    }
    let texts: Vec<&str> = [changes.system, changes.user_line]
        .into_iter()
        .flatten()
        .collect();
    for (old, new) in kept.iter().zip(same) {
        assert_eq!(old.0.get(), new.0.get(), "another key: {raw} {out}");
        let name = key(old.0.get());
        let (before, after) = (old.1.get(), new.1.get());
        let is_right = before == after
            || name == "model" && changes.model.is_some() && key(after) == MODEL
            || SPOKEN.contains(&&*name) && json::grew(before, after, &texts);
        assert!(is_right, "{name} was {before} and is {after}");
    }
    // Returns the bytes between the values: with additions only, every byte is still there, in order.
    let is_addition = kept.len() == n_old && changes.model.is_none() && !raw.contains("null");
    if is_addition {
        let mut bytes = out.bytes();
        assert!(
            raw.bytes().all(|byte| bytes.any(|other| other == byte)),
            "a byte is gone: {raw} {out}"
        );
    }
    if changes.model.is_none() && texts.is_empty() && kept.len() == n_old {
        assert_eq!(raw, out, "nothing was to be changed");
    }
}
