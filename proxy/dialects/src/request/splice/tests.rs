use serde_json::Value;

use super::*;

mod any;

fn parse(api: Api, raw: &str) -> ChatRequest {
    ChatRequest::parse(api, Bytes::copy_from_slice(raw.as_bytes())).unwrap()
}

fn edit_as(api: Api, raw: &str, changes: Changes<'_>) -> String {
    let pieces = splice(&parse(api, raw), changes);
    String::from_utf8(pieces.concat()).unwrap()
}

fn edit(raw: &str, changes: Changes<'_>) -> String {
    edit_as(Api::Chat, raw, changes)
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
    let edit_bare = |raw, changes| edit_as(Api::Responses, raw, changes);
    let strict = Changes {
        cuts_shared: true,
        ..Changes::default()
    };
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
        assert_eq!(edit_bare(raw, strict), expected);
    }
    let model = Changes {
        model: Some("m"),
        ..strict
    };
    assert_eq!(
        edit_bare(r#"{"session_id":"a"}"#, model),
        r#"{"model":"m"}"#
    );
    assert_eq!(edit_bare(r"{ }", model), r#"{"model":"m" }"#);
    assert_eq!(
        edit_bare(r#"{"model":"a", "model" :null}"#, model),
        r#"{"model":"a", "model" :"m"}"#
    );
}

#[test]
fn what_providers_have_a_meaning_for_stays_unless_the_upstream_refuses_it() {
    let raw = r#"{"session_id":"goose-1","user_id":7,"turn_type":"main","input":"hi"}"#;
    let edit_bare = |changes| edit_as(Api::Responses, raw, changes);
    assert_eq!(
        edit_bare(Changes::default()),
        r#"{"session_id":"goose-1","user_id":7,"input":"hi"}"#
    );
    let strict = Changes {
        cuts_shared: true,
        ..Changes::default()
    };
    assert_eq!(edit_bare(strict), r#"{"input":"hi"}"#);
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
fn anthropics_system_text_stands_beside_the_messages() {
    let system = |system: &str| {
        let raw =
            format!(r#"{{"model":"m",{system}"messages":[{{"role":"user","content":"hi"}}]}}"#);
        edit_as(Api::Messages, &raw, lesson("L"))
    };
    assert_eq!(
        system(r#""system":"a","#),
        r#"{"model":"m","system":"a\n\nL","messages":[{"role":"user","content":"hi"}]}"#
    );
    assert_eq!(
        system(r#""system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}],"#),
        r#"{"model":"m","system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"text","text":"L"}],"messages":[{"role":"user","content":"hi"}]}"#
    );
    assert_eq!(
        system(""),
        r#"{"system":"L","model":"m","messages":[{"role":"user","content":"hi"}]}"#
    );
    assert_eq!(
        system(r#""system":null,"#),
        r#"{"model":"m","system":"L","messages":[{"role":"user","content":"hi"}]}"#
    );
}

#[test]
fn a_response_has_its_system_text_where_the_client_puts_it() {
    let edit = |raw| edit_as(Api::Responses, raw, lesson("L"));
    insta::assert_snapshot!(edit(r#"{"instructions":"a","input":"hi"}"#), @r#"{"instructions":"a\n\nL","input":"hi"}"#);
    insta::assert_snapshot!(edit(r#"{"instructions":null,"input":"hi"}"#), @r#"{"instructions":"L","input":"hi"}"#);
    insta::assert_snapshot!(edit(r#"{"input":"hi"}"#), @r#"{"instructions":"L","input":"hi"}"#);
    insta::assert_snapshot!(edit(r#"{"previous_response_id":"r"}"#), @r#"{"instructions":"L","previous_response_id":"r"}"#);
    insta::assert_snapshot!(edit(r#"{"input":[{"role":"developer","content":[{"type":"input_text","text":"a"}]},{"role":"user","content":"hi"}]}"#), @r#"{"input":[{"role":"developer","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"L"}]},{"role":"user","content":"hi"}]}"#);
    insta::assert_snapshot!(edit(r#"{"instructions":"a","input":[{"role":"system","content":"b"}]}"#), @r#"{"instructions":"a\n\nL","input":[{"role":"system","content":"b"}]}"#);
}

#[test]
fn the_line_follows_what_the_owner_says_in_each_api() {
    let line = Changes {
        user_line: Some("(short)"),
        ..Changes::default()
    };
    insta::assert_snapshot!(edit_as(Api::Messages, r#"{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t"},{"type":"text","text":"go on"}]}]}"#, line), @r#"{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t"},{"type":"text","text":"go on"},{"type":"text","text":"(short)"}]}]}"#);
    insta::assert_snapshot!(edit_as(Api::Responses, r#"{"input":"hi"}"#, line), @r#"{"input":"hi\n\n(short)"}"#);
    insta::assert_snapshot!(edit_as(Api::Responses, r#"{"input":[{"type":"function_call_output","output":"x"},{"role":"user","content":[{"type":"input_text","text":"hi"}]}]}"#, line), @r#"{"input":[{"type":"function_call_output","output":"x"},{"role":"user","content":[{"type":"input_text","text":"hi"},{"type":"input_text","text":"(short)"}]}]}"#);
}

#[test]
fn each_person_of_a_group_gets_her_own_line_behind_everyones() {
    let message = |sender: &str, said: &str| {
        let text = format!(
            "Conversation info: ⟦openclaw:ctx⟧\n```json\n{{\"is_group_chat\": true, \"sender\": {{\"id\": \"{sender}\"}}}}\n```\n\n{said}"
        );
        serde_json::json!({"role": "user", "content": text})
    };
    let raw = serde_json::json!({"messages": [message("100", "Hi"), message("200", "And?"), {"role": "user", "content": "Hm"}]});
    let lines = BTreeMap::from([("100".parse().unwrap(), "(short)".to_owned())]);
    let ends = |user_line| {
        let changes = Changes {
            user_line,
            sender_lines: Some(&lines),
            ..Changes::default()
        };
        let edited: Value = serde_json::from_str(&edit(&raw.to_string(), changes)).unwrap();
        let messages = edited["messages"].as_array().unwrap().clone();
        let end = |message: &Value| {
            let text = message["content"].as_str().unwrap();
            text.rsplit("```\n\n").next().unwrap().to_owned()
        };
        messages.iter().map(end).collect::<Vec<_>>()
    };
    assert_eq!(ends(None), ["Hi\n\n(short)", "And?", "Hm"]);
    let both = ["Hi\n\n(all)\n\n(short)", "And?\n\n(all)", "Hm\n\n(all)"];
    assert_eq!(ends(Some("(all)")), both);
}

#[test]
fn nothing_to_change_copies_nothing() {
    let request = parse(Api::Chat, r#"{"messages":[{"role":"user"}]}"#);
    let pieces = splice(&request, Changes::default());
    assert_eq!(pieces.len(), 1);
    assert_eq!(pieces[0].as_ptr(), request.raw().as_ptr());
}
