use super::*;

/// Each row has a message, and what it becomes, or nothing if it has the shape of chat and is left alone.
#[test]
fn openclaws_own_shapes_become_chats() {
    for (message, expected) in testing::rows::<(Value, Option<String>)>("openclaws_messages") {
        let body = json!({ "model": "m", "messages": [message] });
        let changed = request(&body).map(|body| body["messages"][0].to_string());
        assert_eq!(changed, expected, "{message}");
    }
    assert_eq!(request(&json!({ "messages": 7 })), None);
}
