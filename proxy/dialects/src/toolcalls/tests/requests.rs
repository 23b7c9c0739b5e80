use super::*;

fn changed(message: &Value) -> String {
    let body = json!({ "model": "m", "messages": [message] });
    match request(&body) {
        Some(body) => body["messages"][0].to_string(),
        None => "as it was".to_owned(),
    }
}

#[test]
fn a_session_begun_anew_is_said_in_plain_words() {
    let text =
        "A new session was started via /new or /reset. Greet the user in your configured persona.";
    let plain = json!({ "role": "user", "content": text });
    insta::assert_snapshot!(changed(&plain), @r#"{"role":"user","content":"A new chat session has just started. Greet the user briefly, in one to three sentences, and ask what they would like to do."}"#);
    let parts =
        json!({ "role": "user", "content": [{ "type": "text", "text": format!("[Fri] {text}") }] });
    assert_eq!(changed(&parts), changed(&plain));
    let quoted = json!({ "role": "assistant", "content": text });
    assert_eq!(changed(&quoted), "as it was");
}

#[test]
fn openclaws_own_shapes_become_chats() {
    insta::assert_snapshot!(changed(&json!({ "role": "developer", "content": "x" })), @r#"{"role":"system","content":"x"}"#);
    insta::assert_snapshot!(changed(&json!({ "role": "toolResult", "toolCallId": "c1", "toolName": "exec", "isError": false,
        "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }] })), @r#"{"role":"tool","tool_call_id":"c1","name":"exec","content":"a\nb"}"#);
    insta::assert_snapshot!(changed(&json!({ "role": "toolResult", "tool_call_id": "c1", "name": "look", "content": [{ "type": "image_url", "image_url": {} }] })), @r#"{"role":"tool","tool_call_id":"c1","name":"look","content":[{"type":"image_url","image_url":{}}]}"#);
    insta::assert_snapshot!(changed(&json!({ "role": "assistant", "content": [
        { "type": "thinking", "thinking": "hm" }, { "type": "text", "text": "I look." },
        { "type": "toolCall", "id": "c1", "name": "exec", "arguments": { "command": "ls" } }, { "type": "toolCall", "name": "now" } ] })), @r#"{"role":"assistant","content":"I look.","reasoning_content":"hm","tool_calls":[{"id":"c1","type":"function","function":{"name":"exec","arguments":"{\"command\":\"ls\"}"}},{"id":"call_1","type":"function","function":{"name":"now","arguments":"{}"}}]}"#);
    insta::assert_snapshot!(changed(&json!({ "role": "assistant", "content": null, "tool_calls": [{ "function": { "name": "f", "arguments": {} } }] })), @r#"{"role":"assistant","content":null,"tool_calls":[{"type":"function","id":"call_0","function":{"name":"f","arguments":"{}"}}]}"#);
}

#[test]
fn what_has_the_shape_of_chat_is_left_alone() {
    let call =
        json!({ "id": "c", "type": "function", "function": { "name": "f", "arguments": "{}" } });
    let custom = json!({ "id": "c", "type": "custom", "custom": { "name": "f", "input": "x" } });
    for message in [
        json!({ "role": "user", "content": "x" }),
        json!({ "role": "tool", "tool_call_id": "c", "content": "x" }),
        json!({ "role": "assistant", "content": "x", "tool_calls": [call, custom] }),
        json!({ "role": "assistant", "content": [{ "type": "text", "text": "x" }] }),
        json!({ "role": "assistant", "content": "x", "tool_calls": [] }),
        json!(7),
    ] {
        assert_eq!(changed(&message), "as it was", "{message}");
    }
    assert_eq!(request(&json!({ "messages": 7 })), None);
}
