use metaclaw_chat::Message;
use proptest::{collection::vec, prelude::*};
use serde_json::{Map, Value, json};

use super::*;
use crate::scan::scan;

fn edit(raw: &str, changes: Changes<'_>) -> String {
    let raw = Bytes::copy_from_slice(raw.as_bytes());
    let layout = scan(&raw).unwrap();
    let body: Value = serde_json::from_slice(&raw).unwrap();
    let is_owners = |message: &Value| {
        Message::try_from(message.clone()).is_ok_and(|message| message.is_owners())
    };
    let messages = body["messages"].as_array().cloned().unwrap_or_default();
    let owners: Vec<bool> = messages.iter().map(is_owners).collect();
    String::from_utf8(splice(&raw, &layout, &owners, changes).to_vec()).unwrap()
}

fn lesson(text: &str) -> Changes<'_> {
    Changes {
        system: Some(text),
        ..Changes::default()
    }
}

#[test]
fn a_system_text_gets_the_lesson_at_its_end_and_keeps_its_escapes() {
    let raw = r#"{ "messages" : [ {"content":"caf\u00e9\n", "role":"system"},{"role":"user","content":"hi"}], "temperature":1.0e0}"#;
    let out = edit(raw, lesson("Be \"brief\"."));
    let expected = r#"{ "messages" : [ {"content":"caf\u00e9\n\n\nBe \"brief\".", "role":"system"},{"role":"user","content":"hi"}], "temperature":1.0e0}"#;
    assert_eq!(out, expected);
}

#[test]
fn every_shape_of_system_message_is_known() {
    let system = |message: &str| {
        let raw = format!(r#"{{"messages":[{message},{{"role":"user","content":"hi"}}]}}"#);
        let out: Value = serde_json::from_str(&edit(&raw, lesson("L"))).unwrap();
        out["messages"][0].to_string()
    };
    assert_eq!(
        system(r#"{"role":"developer","content":"a"}"#),
        r#"{"role":"developer","content":"a\n\nL"}"#
    );
    assert_eq!(
        system(r#"{"role":"system","content":""}"#),
        r#"{"role":"system","content":"L"}"#
    );
    assert_eq!(
        system(r#"{"role":"system","content":null}"#),
        r#"{"role":"system","content":"L"}"#
    );
    assert_eq!(
        system(r#"{"role":"system"}"#),
        r#"{"role":"system","content":"L"}"#
    );
    assert_eq!(
        system(r#"{"role":"system","content":[ ]}"#),
        r#"{"role":"system","content":[{"type":"text","text":"L"}]}"#
    );
    assert_eq!(
        system(r#"{"role":"system","content":[{"type":"text","text":"a"}]}"#),
        r#"{"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"L"}]}"#
    );
    assert_eq!(
        system(r#"{"role":"system","content":7}"#),
        r#"{"role":"system","content":7}"#
    );
}

#[test]
fn without_a_system_message_one_is_made_or_our_trainer_is_told() {
    let raw = r#"{"messages":[{"role":"user","content":"hi"},{"role":"system","content":"late"}]}"#;
    insta::assert_snapshot!(edit(raw, lesson("L")), @r#"{"messages":[{"role":"system","content":"L"},{"role":"user","content":"hi"},{"role":"system","content":"late"}]}"#);
    let field = Changes {
        absent: Absent::Field,
        model: Some("a1"),
        ..lesson("L")
    };
    insta::assert_snapshot!(edit(raw, field), @r#"{"model":"a1","metaclaw_system_append":"L","messages":[{"role":"user","content":"hi"},{"role":"system","content":"late"}]}"#);
}

#[test]
fn of_several_opening_system_messages_the_last_is_appended_to() {
    let raw = r#"{"messages":[{"role":"system","content":"a"},{"role":"developer","content":"b"},{"role":"user","content":"c"}]}"#;
    assert!(edit(raw, lesson("L")).contains(r#"{"role":"developer","content":"b\n\nL"}"#));
}

#[test]
fn our_own_fields_go_with_one_comma_each() {
    for (raw, expected) in [
        (r#"{"session_id":"a","model":"m"}"#, r#"{"model":"m"}"#),
        (
            r#"{"model":"m" , "turn_type":"main","user_id":1 }"#,
            r#"{"model":"m" }"#,
        ),
        (
            r#"{"a":1,"session_done":true,"workspace_id":[{}],"b":2}"#,
            r#"{"a":1,"b":2}"#,
        ),
        (r#"{"session_id":"a"}"#, r"{}"),
        (r#"{"session_id":"a","b":1,"session_id":"c"}"#, r#"{"b":1}"#),
        (r#"{"x":{"session_id":"a"}}"#, r#"{"x":{"session_id":"a"}}"#),
    ] {
        assert_eq!(edit(raw, Changes::default()), expected);
    }
    let model = Changes {
        model: Some("m"),
        ..Changes::default()
    };
    assert_eq!(edit(r#"{"session_id":"a"}"#, model), r#"{"model":"m"}"#);
    assert_eq!(edit(r"{ }", model), r#"{"model":"m" }"#);
    assert_eq!(
        edit(r#"{"model":"a", "model" :null}"#, model),
        r#"{"model":"a", "model" :"m"}"#
    );
}

#[test]
fn the_line_follows_each_of_the_owners_messages_and_no_other() {
    let raw = r#"{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]},{"role":"user","content":"<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>x"}]}"#;
    let line = Changes {
        user_line: Some("(short)"),
        ..Changes::default()
    };
    insta::assert_snapshot!(edit(raw, line), @r#"{"messages":[{"role":"user","content":"a\n\n(short)"},{"role":"assistant","content":"b"},{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}},{"type":"text","text":"(short)"}]},{"role":"user","content":"<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>x"}]}"#);
}

#[test]
fn nothing_to_change_copies_nothing() {
    let raw = Bytes::from_static(br#"{"messages":[]}"#);
    let layout = scan(&raw).unwrap();
    let out = splice(&raw, &layout, &[], Changes::default());
    assert_eq!(out.as_ptr(), raw.as_ptr());
}

/// Any JSON, written with odd spaces and escapes.
fn any_json() -> impl Strategy<Value = String> {
    let text = "[a-zé\"\\\\\n{}\\[\\],:😀]{0,6}".prop_map(|text| {
        let plain = json!(text).to_string();
        plain
            .replace('é', "\\u00E9")
            .replace('😀', "\\ud83d\\uDE00")
    });
    let leaf = prop_oneof![
        text.clone(),
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("-0.10e+2".to_owned()),
        Just("12345678901234567890".to_owned()),
    ];
    leaf.prop_recursive(5, 40, 4, move |inner| {
        let space = prop_oneof![Just(""), Just(" "), Just("\n\t")];
        let member =
            (text.clone(), inner.clone()).prop_map(|(key, value)| format!("{key} : {value}"));
        prop_oneof![
            (vec(inner, 0..4), space.clone()).prop_map(|(v, s)| format!("[{s}{}{s}]", v.join(","))),
            (vec(member, 0..4), space).prop_map(|(v, s)| format!("{{{s}{}{s}}}", v.join(", "))),
        ]
    })
}

fn any_content() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z é\"\\\\]{0,9}".prop_map(|text| json!(text).to_string()),
        Just("null".to_owned()),
        Just(r#"[{"type":"text","text":"x"}]"#.to_owned()),
        Just("[ ]".to_owned()),
    ]
}

/// What `splice` is to do, done on parsed values instead of bytes.
fn expected(body: &str, changes: Changes<'_>) -> Value {
    let mut body: Map<String, Value> = serde_json::from_str(body).unwrap();
    for field in OWN_FIELDS {
        body.shift_remove(field);
    }
    body.insert("model".into(), changes.model.into());
    let messages = body["messages"].as_array_mut().unwrap();
    for message in messages
        .iter_mut()
        .filter(|message| message["role"] == "user")
    {
        append_value(message, changes.user_line.unwrap());
    }
    let system =
        |message: &&mut Value| message["role"] == "system" || message["role"] == "developer";
    match messages.iter_mut().take_while(system).last() {
        Some(message) => append_value(message, changes.system.unwrap()),
        None => messages.insert(0, json!({ "role": "system", "content": changes.system })),
    }
    body.into()
}

fn append_value(message: &mut Value, text: &str) {
    match &mut message["content"] {
        Value::Array(parts) => parts.push(json!({ "type": "text", "text": text })),
        Value::String(content) if !content.is_empty() => {
            content.push_str("\n\n");
            content.push_str(text);
        }
        content => *content = text.into(),
    }
}

proptest! {
    /// The bytes come out as the same edit on parsed values would have it; and with the edits taken
    /// back out, what is left is the client's bytes.
    #[test]
    fn any_request_survives_with_all_else_as_it_was(
        roles in vec((prop_oneof![Just("system"), Just("user"), Just("developer"), Just("assistant")], any_content(), any_json()), 1..6),
        fields in vec((prop_oneof![
            Just("model".to_owned()), Just("session_id".to_owned()), Just("turn\\u005ftype".to_owned()), Just("user_id".to_owned()), "[f-k]{1,3}",
        ], any_json()), 0..6),
        first in 0usize..7,
        system in "[A-Z\"\n]{1,8}", user_line in "[A-Z\\\\]{1,8}",
    ) {
        let message = |(role, content, more): &(&str, String, String)| {
            format!(r#"{{"x": {more}, "content": {content},"role":"{role}"}}"#)
        };
        let messages: Vec<String> = roles.iter().map(message).collect();
        let mut members: Vec<String> = fields.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
        members.insert(first.min(members.len()), format!("\"messages\" : [{} ]", messages.join(" ,")));
        let raw = format!("{{ {}}}\n", members.join(", "));
        let changes = Changes { model: Some("new"), system: Some(&system), absent: Absent::Insert, user_line: Some(&user_line) };
        let out = edit(&raw, changes);
        let parsed: Value = serde_json::from_str(&out).unwrap();
        prop_assert_eq!(&parsed, &expected(&raw, changes), "{}\n{}", raw, out);
        for (key, value) in &fields {
            if !OWN_FIELDS.contains(&key.replace("\\u005f", "_").as_str()) && key != "model" {
                let kept = format!("\"{key}\":{value}");
                prop_assert!(out.contains(&kept), "{} in {}", kept, out);
            }
        }
        let untouched = edit(&raw, Changes::default());
        if fields.iter().all(|(key, _)| key == "model" || key.len() <= 3) {
            prop_assert_eq!(untouched, raw);
        }
    }
}
