//! Any request of any of the three APIs survives the splice with all else as it was.

use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Map, Value, json};

use super::*;
use crate::request::layout::conversation;

/// Fields that are set, whatever stood there.
const SET: [(&str, &str); 2] = [("logprobs", "true"), ("return_token_ids", "true")];

/// Any JSON, written with odd spaces and escapes, now and then deep.
fn any_json() -> impl Strategy<Value = String> {
    let text = "[a-zé\"\\\\\n{}\\[\\],:😀]{0,6}".prop_map(|text| {
        let plain = json!(text).to_string();
        plain
            .replace('é', "\\u00E9")
            .replace('😀', "\\ud83d\\uDE00")
    });
    let bare = ["null", "true", "-0.10e+2", "12345678901234567890"].map(str::to_owned);
    let leaf = prop_oneof![text.clone(), select(bare.to_vec())];
    let shallow = leaf.prop_recursive(5, 40, 4, move |inner| {
        let space = select(vec!["", " ", "\n\t"]);
        let member =
            (text.clone(), inner.clone()).prop_map(|(key, value)| format!("{key} : {value}"));
        prop_oneof![
            (vec(inner, 0..4), space.clone()).prop_map(|(v, s)| format!("[{s}{}{s}]", v.join(","))),
            (vec(member, 0..4), space).prop_map(|(v, s)| format!("{{{s}{}{s}}}", v.join(", "))),
        ]
    });
    // What this test reads it with goes 127 levels deep: the request, its array and a message are three, the
    // value itself at most six.
    let deepest: usize = 127 - 3 - 6;
    let depth = prop_oneof![9 => Just(0), 1 => 0..=deepest];
    (shallow, depth).prop_map(|(json, n)| format!("{}{json}{}", "[".repeat(n), "]".repeat(n)))
}

/// What a text can stand as.
fn any_content() -> impl Strategy<Value = String> {
    let part = select(vec![
        r#"{"type":"text","text":"x"}"#,
        r#"{"type":"text", "text":"\u0041","cache_control":{"type":"ephemeral"}}"#,
        r#"{"type":"tool_result","tool_use_id":"t","content":"y"}"#,
    ]);
    prop_oneof![
        "[a-z é\"\\\\]{0,9}".prop_map(|text| json!(text).to_string()),
        select(["null", "[ ]", "7"].map(str::to_owned).to_vec()),
        vec(part, 1..3).prop_map(|parts| format!("[{}\n]", parts.join(" , "))),
    ]
}

/// A request of one of the APIs.
fn any_request() -> impl Strategy<Value = (Api, String)> {
    let role = select(vec!["system", "user", "developer", "assistant"]);
    let message = (role, any_content(), any_json(), any::<bool>());
    let message = message.prop_map(|(role, content, more, is_twice)| {
        let first = if is_twice { r#""content":0,"# } else { "" };
        format!(r#"{{"x": {more}, {first}"content": {content},"role":"{role}"}}"#)
    });
    let names = [
        "model",
        "logprobs",
        "session_id",
        "turn\\u005ftype",
        "user_id",
    ];
    let name = prop_oneof![5 => select(names.map(str::to_owned).to_vec()), 1 => "[f-k]{1,3}"];
    let beside = select(vec!["system", "instructions"]);
    let parts = (
        vec(message, 1..6),
        vec((name, any_json()), 0..6),
        prop::option::of((beside, any_content())),
        0usize..7,
    );
    (
        select(vec![Api::Chat, Api::Messages, Api::Responses]),
        parts,
    )
        .prop_map(|(api, (messages, fields, beside, first))| {
            let member = |(key, value): (String, String)| format!("\"{key}\":{value}");
            let mut members: Vec<String> = fields.into_iter().map(member).collect();
            members.extend(beside.map(|(key, value)| member((key.to_owned(), value))));
            let items = format!("\"{}\" : [{} ]", conversation(api), messages.join(" ,"));
            members.insert(first.min(members.len()), items);
            (api, format!("{{ {}}}\n", members.join(", ")))
        })
}

/// What `splice` is to do, done on parsed values instead of bytes.
fn expected(api: Api, body: &str, model: &str, text: &str, user_line: &str) -> Value {
    let mut body: Map<String, Value> = serde_json::from_str(body).unwrap();
    for field in OWN_FIELDS.iter().chain(&SHARED_FIELDS) {
        body.shift_remove(*field);
    }
    body.insert("model".into(), model.into());
    for (key, _) in SET {
        body.insert(key.to_owned(), true.into());
    }
    let part = match api {
        Api::Responses => "input_text",
        Api::Chat | Api::Messages => "text",
    };
    let is_set =
        |body: &Map<String, Value>, key| body.get(key).is_some_and(|value| !value.is_null());
    let is_set = [is_set(&body, "system"), is_set(&body, "instructions")];
    let is_null = |key: &str| !is_set[usize::from(key == "instructions")];
    let items = body[conversation(api)].as_array_mut().unwrap();
    for message in items.iter_mut().filter(|message| is_owners(api, message)) {
        append_value(&mut message["content"], user_line, part);
    }
    let is_system =
        |message: &&Value| message["role"] == "system" || message["role"] == "developer";
    let opening = match api {
        Api::Messages => None,
        Api::Chat | Api::Responses => items.iter_mut().take_while(|m| is_system(&&**m)).last(),
    };
    let opening = opening.map(|message| &mut message["content"]);
    let beside = match api {
        Api::Chat => {
            match opening {
                Some(content) => append_value(content, text, part),
                None => items.insert(0, json!({ "role": "system", "content": text })),
            }
            return body.into();
        }
        Api::Messages => "system",
        Api::Responses => "instructions",
    };
    match opening {
        Some(content) if is_null(beside) => append_value(content, text, part),
        _ => append_value(body.entry(beside).or_insert(Value::Null), text, "text"),
    }
    body.into()
}

fn is_owners(api: Api, message: &Value) -> bool {
    let results = match &message["content"] {
        Value::Array(parts) if api == Api::Messages && !parts.is_empty() => {
            parts.iter().all(|part| part["type"] == "tool_result")
        }
        _ => false,
    };
    message["role"] == "user" && !results
}

fn append_value(value: &mut Value, text: &str, part: &str) {
    match value {
        Value::Array(parts) => parts.push(json!({ "type": part, "text": text })),
        Value::String(known) if !known.is_empty() => {
            known.push_str("\n\n");
            known.push_str(text);
        }
        Value::String(_) | Value::Null => *value = text.into(),
        _ => {}
    }
}

/// Whether an edit only adds, or takes away no more than it may: one of our own fields, the model, or
/// a text that says nothing.
fn is_allowed(raw: &str, edit: &Edit) -> bool {
    let was = &raw[edit.span.clone()];
    let is_ours = |was: &str| {
        let was = was.replace("\\u005f", "_");
        OWN_FIELDS
            .iter()
            .chain(&SHARED_FIELDS)
            .any(|field| was.contains(field))
    };
    let before = raw[..edit.span.start].trim_end();
    was.is_empty()
        || (edit.with.is_empty() && is_ours(was))
        || before.ends_with("\"model\":")
        || before.ends_with("\"logprobs\":")
        || was == "null"
        || was == "\"\""
}

proptest! {
    /// The bytes come out as the same edit on parsed values would have it; and with what was put in
    /// taken out again, and what was taken out put back, they are the client's.
    #[test]
    fn any_request_survives_with_all_else_as_it_was(
        (api, raw) in any_request(), system in "[A-Z\"\n😀]{1,8}", user_line in "[A-Z\\\\]{1,8}",
    ) {
        let changes = Changes {
            model: Some("new"),
            system: Some(&system),
            absent: Absent::Insert,
            user_line: Some(&user_line),
            sender_lines: None,
            fields: &SET,
            cuts_shared: true,
            dropped: &[],
        };
        let request = parse(api, &raw);
        let out = splice(&request, changes).concat();
        prop_assert_eq!(&out, &splice(&request, changes).concat(), "the same lessons, the same bytes");
        let out = std::str::from_utf8(&out).unwrap();
        let parsed: Value = serde_json::from_str(out).unwrap();
        prop_assert_eq!(&parsed, &expected(api, &raw, "new", &system, &user_line), "{:?}\n{}\n{}", api, raw, out);

        let mut edits = edits(&request, changes);
        edits.sort_by_key(|edit| (edit.span.start, edit.span.end));
        let (mut original, mut rest, mut at) = (String::new(), out, 0);
        for edit in edits {
            prop_assert!(is_allowed(&raw, &edit), "{:?} in {}", edit, raw);
            let (kept, after) = rest.split_at(edit.span.start - at);
            original = original + kept + &raw[edit.span.clone()];
            rest = after.strip_prefix(edit.with.as_str()).unwrap();
            at = edit.span.end;
        }
        prop_assert_eq!(original + rest, raw);
    }
}
