use metaclaw_chat::{AgentId, Message};
use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};

use super::*;

fn read(api: Api, raw: &str) -> Conversation {
    read_after(api, raw, &scan::Seen::default())
}

fn read_after(api: Api, raw: &str, seen: &scan::Seen) -> Conversation {
    let raw = Bytes::copy_from_slice(raw.as_bytes());
    let layout = scan::scan(&raw, api, seen).unwrap();
    Conversation::read(api, &raw, &layout)
}

/// Role and text of each message.
fn said(api: Api, raw: &str) -> Vec<(Role, String)> {
    let conversation = read(api, raw);
    let each = conversation.each().iter();
    each.map(|said| (said.role, conversation.text(said).into_owned()))
        .collect()
}

#[test]
fn a_chat_is_read_where_it_stands() {
    let raw = r#"{"messages":[{"role":"developer","content":"a"},{"role":"user","content":[{"type":"text","text":"b\n"},{"type":"image_url","image_url":{"url":"x"}},"c"]},{"role":"assistant","content":"d"},{"role":"toolResult","content":"e"},{"role":"user","content":[{"type":"text","text":"<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>x"}]}]}"#;
    let texts = [
        (Role::System, "a"),
        (Role::User, "b\n\nc"),
        (Role::Assistant, ""),
        (Role::Tool, "e"),
        (Role::User, "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>x"),
    ];
    assert_eq!(
        said(Api::Chat, raw),
        texts.map(|(role, text)| (role, text.to_owned()))
    );
    let conversation = read(Api::Chat, raw);
    assert_eq!(conversation.owners(), [false, true, false, false, false]);
    let last = conversation.last_owners().unwrap();
    assert_eq!(conversation.head(last, 2), "b\n");
}

#[test]
fn anthropics_tools_speak_for_themselves() {
    let raw = r#"{"system":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"messages":[{"role":"user","content":"c"},{"role":"assistant","content":[{"type":"text","text":"d"}]},{"role":"user","content":[{"type":"text","text":"and"},{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"e"}]},{"type":"tool_result","content":"f"}]},{"role":"user","content":[{"type":"tool_result","content":"g"}]}]}"#;
    let texts = [
        (Role::System, "a\nb"),
        (Role::User, "c"),
        (Role::Assistant, ""),
        (Role::Tool, "e"),
        (Role::Tool, "f"),
        (Role::User, "and"),
        (Role::Tool, "g"),
    ];
    assert_eq!(
        said(Api::Messages, raw),
        texts.map(|(role, text)| (role, text.to_owned()))
    );
    assert_eq!(
        read(Api::Messages, raw).owners(),
        [true, false, true, false]
    );
}

#[test]
fn what_a_model_did_in_one_response_is_one_turn() {
    let raw = r#"{"instructions":"a","input":[{"role":"user","content":[{"type":"input_text","text":"b"}]},{"type":"reasoning","summary":[]},{"type":"function_call","call_id":"1","name":"x","arguments":"{}"},{"type":"function_call_output","call_id":"1","output":"c"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"d"}]},{"type":"item_reference","id":"i"},{"role":"user","content":"e"}]}"#;
    let texts = [
        (Role::System, "a"),
        (Role::User, "b"),
        (Role::Assistant, ""),
        (Role::Tool, "c"),
        (Role::Assistant, ""),
        (Role::User, "e"),
    ];
    assert_eq!(
        said(Api::Responses, raw),
        texts.map(|(role, text)| (role, text.to_owned()))
    );
    let one = read(Api::Responses, r#"{"input":"hi"}"#);
    assert_eq!((one.each().len(), one.owners()), (1, vec![true]));
    assert!(
        read(Api::Responses, r#"{"previous_response_id":"r"}"#)
            .each()
            .is_empty()
    );
}

/// A request's messages as the dialects read them.
fn by_value(api: Api, body: &Value) -> Vec<Message> {
    let beside = ["system", "instructions"];
    let beside = beside.into_iter().find_map(|name| body.get(name));
    let system = beside.and_then(|value| api.system(value));
    let mut messages = Vec::from_iter(system);
    for item in body[scan::conversation(api)].as_array().unwrap() {
        api.push(&mut messages, item).unwrap();
    }
    messages
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zé😀 \n\\\\\"]{0,12}",
        "[ \n]{0,200}<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>[a-z]{0,3}",
        Just("\u{a0}x\u{2003}y ".to_owned()),
    ]
}

fn any_part() -> impl Strategy<Value = Value> {
    let text = any_text().prop_map(|text| json!({ "type": "text", "text": text }));
    let text = text.boxed();
    let result = prop_oneof![
        any_text().prop_map(Value::from),
        vec(text.clone(), 0..3).prop_map(Value::from),
        Just(Value::Null),
    ];
    prop_oneof![
        text,
        result.prop_map(
            |content| json!({ "type": "tool_result", "tool_use_id": "t", "content": content })
        ),
        Just(
            json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "x" } })
        ),
    ]
}

fn any_message() -> impl Strategy<Value = Value> {
    let content = prop_oneof![
        any_text().prop_map(Value::from),
        vec(any_part(), 0..4).prop_map(Value::from),
        Just(Value::Null),
    ];
    let role = prop_oneof![
        Just("user"),
        Just("assistant"),
        Just("tool"),
        Just("system")
    ];
    (role, content).prop_map(|(role, content)| json!({ "role": role, "content": content }))
}

fn any_item() -> impl Strategy<Value = Value> {
    let text = any_text().prop_map(|text| json!({ "type": "input_text", "text": text }));
    let output = prop_oneof![
        any_text().prop_map(Value::from),
        vec(text.boxed(), 0..3).prop_map(Value::from),
        Just(Value::Null),
    ];
    let model = prop_oneof![
        Just(json!({ "type": "reasoning", "summary": [] })),
        Just(json!({ "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}" })),
        Just(json!({ "type": "web_search_call", "id": "w" })),
        Just(json!({ "type": "item_reference", "id": "i" })),
    ];
    prop_oneof![
        2 => any_message(),
        1 => output.prop_map(|output| json!({ "type": "function_call_output", "call_id": "c", "output": output })),
        1 => model,
    ]
}

fn any_request() -> impl Strategy<Value = (Api, Value)> {
    let text = prop_oneof![any_text().prop_map(Value::from), Just(Value::Null)];
    prop_oneof![
        vec(any_message(), 1..6).prop_map(|said| (Api::Chat, json!({ "messages": said }))),
        (vec(any_message(), 1..6), vec(any_part(), 0..3)).prop_map(|(said, system)| {
            (Api::Messages, json!({ "messages": said, "system": system }))
        }),
        (vec(any_item(), 0..6), text).prop_map(|(said, text)| {
            (
                Api::Responses,
                json!({ "input": said, "instructions": text }),
            )
        }),
    ]
}

proptest! {
    /// What identity reads where it stands is what the log reads as values: else a session would not
    /// know its own turns.
    #[test]
    fn it_is_read_as_the_log_will_read_it((api, body) in any_request()) {
        let conversation = read(api, &body.to_string());
        let expected = by_value(api, &body);
        let roles: Vec<Role> = conversation.each().iter().map(|said| said.role).collect();
        prop_assert_eq!(roles, expected.iter().map(Message::role).collect::<Vec<_>>());
        for (said, message) in conversation.each().iter().zip(&expected) {
            prop_assert_eq!(said.is_owners, message.is_owners(), "{:?}", message);
            if said.role != Role::Assistant {
                prop_assert_eq!(conversation.text(said), message.text());
            }
        }
        let agent = AgentId::default_agent();
        let chains = conversation.chains(ChainHash::start(&agent));
        prop_assert_eq!(&chains[1..], ChainHash::chain(&agent, &expected));
    }
}

/// Found by the fuzz target of identity: no client writes so, and the log reads it so.
#[test]
fn a_text_beside_what_a_tool_returned_is_not_the_owners() {
    let raw = r#"{"messages":[{"role":"user","content":[{"type":"tool_result","text":"its"},{"type":"text","text":"go on"}]}]}"#;
    let expected = [
        (Role::Tool, String::new()),
        (Role::User, "go on".to_owned()),
    ];
    assert_eq!(said(Api::Messages, raw), expected);
}

/// What tools returned is several parts of one message, and may come again after itself.
#[test]
fn the_hash_is_the_same_whatever_came_before() {
    let result = |text: &str| json!({ "type": "tool_result", "content": text });
    let (a, b) = (result(&"a ".repeat(600)), result("b"));
    let both = json!({ "role": "user", "content": [a, b] });
    let one = json!({ "role": "user", "content": [a] });
    let seen = scan::Seen::default();
    let start = ChainHash::start(&AgentId::default_agent());
    for messages in [
        json!([both]),
        json!([one, both]),
        json!([both, both]),
        json!([one, both]),
    ] {
        let raw = json!({ "messages": messages }).to_string();
        let alone = read(Api::Messages, &raw).chains(start);
        assert_eq!(
            read_after(Api::Messages, &raw, &seen).chains(start),
            alone,
            "{raw}"
        );
    }
}
