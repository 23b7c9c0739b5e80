use metaclaw_chat::{AgentId, typed_at};
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};

use super::*;

fn read(api: Api, raw: &str) -> ChatRequest {
    ChatRequest::parse(api, Bytes::copy_from_slice(raw.as_bytes())).unwrap()
}

fn refused(raw: &'static str) -> String {
    let raw = Bytes::from_static(raw.as_bytes());
    ChatRequest::parse(Api::Chat, raw).unwrap_err().to_string()
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    insta::assert_snapshot!(refused(r#"{"messages":[{"role":"user"}"#), @"the request body is no JSON object: EOF while parsing a list at line 1 column 28");
    insta::assert_snapshot!(refused(r#"{"model":"m"}"#), @"messages: is missing; it must be an array of at least one message");
    insta::assert_snapshot!(refused(r#"{"messages":"hi"}"#), @"messages: is no array; it must be an array of at least one message");
    insta::assert_snapshot!(refused(r#"{"messages":[]}"#), @"messages: is empty; it must be an array of at least one message");
    insta::assert_snapshot!(refused(r#"{"messages":[{"role":"user"},7]}"#), @"messages[1]: a message must be a JSON object, this one is a number");
    insta::assert_snapshot!(refused(r#"{"messages":[{"content":"x"}]}"#), @r#"messages[0]: a message must have a "role" that is a string"#);
}

#[test]
fn a_response_may_go_on_from_what_the_upstream_keeps() {
    read(Api::Responses, r#"{"previous_response_id":"resp_1"}"#);
    read(
        Api::Responses,
        r#"{"input":[{"type":"reasoning","summary":[]}]}"#,
    );
    let raw = Bytes::from_static(br#"{"input":["hi"]}"#);
    let error = ChatRequest::parse(Api::Responses, raw).unwrap_err();
    let found = error.to_string();
    assert_eq!(
        found,
        "input[0]: a message must be a JSON object, this one is a string"
    );
}

#[test]
fn what_no_value_can_hold_is_no_reason_to_refuse() {
    let chat = read(
        Api::Chat,
        r#"{"n":1e999,"messages":[{"role":"user","x":1e999}]}"#,
    );
    assert!(chat.field("n").is_none());
    assert_eq!(chat.to_messages(), None);
}

/// Each message on a line: its role, `*` if it is the owner's, and its text.
fn said(request: &ChatRequest) -> String {
    let line = |message: MessageRef<'_>| {
        let is_owners = message.utterance().is_some_and(|said| said.is_owners());
        let mark = if is_owners { "*" } else { "" };
        format!("{:?}{mark} {:?}\n", message.role(), message.text())
    };
    request.messages().map(line).collect()
}

#[test]
fn a_chat_is_read_where_it_stands() {
    let raw = r#"{"messages":[{"role":"developer","content":"a"},{"role":"user","content":[{"type":"text","text":"b\n"},{"type":"image_url","image_url":{"url":"x"}},"c"]},{"role":"assistant","content":"d"},{"role":"toolResult","content":"e"},{"role":"user","content":[{"type":"text","text":"<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>x"}]}]}"#;
    let request = read(Api::Chat, raw);
    insta::assert_snapshot!(said(&request), @r#"
    System "a"
    User* "b\n\nc"
    Assistant ""
    Tool "e"
    User "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>x"
    "#);
    let last = request.messages().nth(1).unwrap();
    assert_eq!(
        (last.head(2), last.head(4)),
        ("b\n".into(), "b\n\nc".into())
    );
    assert!(request.has_media());
}

#[test]
fn anthropics_tools_speak_for_themselves() {
    let raw = r#"{"system":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"messages":[{"role":"user","content":"c"},{"role":"assistant","content":[{"type":"text","text":"d"}]},{"role":"user","content":[{"type":"text","text":"and"},{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"e"}]},{"type":"tool_result","content":"f"}]},{"role":"user","content":[{"type":"tool_result","content":"g"}]}]}"#;
    insta::assert_snapshot!(said(&read(Api::Messages, raw)), @r#"
    System "a\nb"
    User* "c"
    Assistant ""
    Tool "e"
    Tool "f"
    User* "and"
    Tool "g"
    "#);
    // The fuzz target of identity found this. No client writes it, and the log reads it in this way.
    let beside = r#"{"messages":[{"role":"user","content":[{"type":"tool_result","text":"its"},{"type":"text","text":"go on"}]}]}"#;
    insta::assert_snapshot!(said(&read(Api::Messages, beside)), @r#"
    Tool ""
    User* "go on"
    "#);
}

#[test]
fn what_a_model_did_in_one_response_is_one_turn() {
    let raw = r#"{"instructions":"a","input":[{"role":"user","content":[{"type":"input_text","text":"b"}]},{"type":"reasoning","summary":[]},{"type":"function_call","call_id":"1","name":"x","arguments":"{}"},{"type":"function_call_output","call_id":"1","output":"c"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"d"}]},{"type":"item_reference","id":"i"},{"role":"user","content":"e"}]}"#;
    insta::assert_snapshot!(said(&read(Api::Responses, raw)), @r#"
    System "a"
    User* "b"
    Assistant ""
    Tool "c"
    Assistant ""
    User* "e"
    "#);
    let one = read(Api::Responses, r#"{"input":"hi"}"#);
    insta::assert_snapshot!(said(&one), @r#"User* "hi""#);
    let none = read(Api::Responses, r#"{"previous_response_id":"r"}"#);
    assert_eq!(said(&none), "");
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zé😀 \n\\\\\"]{0,12}",
        "[ \n]{0,200}<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>[a-z]{0,3}",
        Just("\u{a0}x\u{2003}y ".to_owned()),
    ]
}

/// A text, some of these parts, or nothing.
fn any_content(part: BoxedStrategy<Value>) -> impl Strategy<Value = Value> {
    prop_oneof![
        any_text().prop_map(Value::from),
        vec(part, 0..4).prop_map(Value::from),
        Just(Value::Null),
    ]
}

fn any_part() -> impl Strategy<Value = Value> {
    let text = any_text().prop_map(|text| json!({ "type": "text", "text": text }));
    let text = text.boxed();
    let result = any_content(text.clone());
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
    let content = any_content(any_part().boxed());
    let role = select(vec!["user", "assistant", "tool", "system"]);
    (role, content).prop_map(|(role, content)| json!({ "role": role, "content": content }))
}

fn any_item() -> impl Strategy<Value = Value> {
    let text = any_text().prop_map(|text| json!({ "type": "input_text", "text": text }));
    let output = any_content(text.boxed());
    let model = select(vec![
        json!({ "type": "reasoning", "summary": [] }),
        json!({ "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}" }),
        json!({ "type": "web_search_call", "id": "w" }),
        json!({ "type": "item_reference", "id": "i" }),
    ]);
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
    /// The code that identifies sessions reads requests in place, and the log reads values. Both must find the same
    /// text, because a session would otherwise not recognise its own turns.
    #[test]
    fn it_is_read_as_the_log_will_read_it((api, body) in any_request()) {
        let request = read(api, &body.to_string());
        let expected = request.to_messages().unwrap();
        let roles: Vec<Role> = request.messages().map(|message| message.role()).collect();
        prop_assert_eq!(roles, expected.iter().map(Message::role).collect::<Vec<_>>());
        for (at, (message, expected_message)) in request.messages().zip(&expected).enumerate() {
            prop_assert_eq!(message.utterance(), typed_at(&expected, at), "{:?}", expected_message);
            if message.role() != Role::Assistant {
                prop_assert_eq!(message.text(), expected_message.text());
            }
        }
        let agent = AgentId::default_agent();
        let chains = request.chains(ChainHash::start(&agent));
        prop_assert_eq!(&chains[1..], ChainHash::chain(&agent, &expected));
    }
}

#[test]
fn an_image_is_found_wherever_it_stands() {
    let has_media = |raw: &str| read(Api::Chat, raw).has_media();
    assert!(!has_media(
        r#"{"messages":[{"role":"user","content":[{"type":"text","text":"image_url"}]},{"role":"user","content":"image"}]}"#
    ));
    assert!(has_media(
        r#"{"messages":[{"role":"user","content":[{"type":"text","text":""},{"type":"image_url"}]},{"role":"user","content":"x"}]}"#
    ));
}
