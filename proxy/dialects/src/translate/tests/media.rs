//! Media types of images and files: the first bytes decide, then the given type in any spelling.

use serde_json::json;

use super::*;
use crate::testing;

/// Translates a message with this part, and returns the part.
fn sent(direction: Direction, field: &str, part: &Value) -> Result<Value, TranslateError> {
    let body = json!({ field: [{ "role": "user", "content": [part] }] });
    Ok(request(direction, &body)?["messages"][0]["content"][0].clone())
}

/// A row has the given URL, and the kind, the type and the data that Anthropic gets. The others are refused.
#[test]
fn anthropic_gets_the_type_that_the_bytes_have() {
    type Row = (String, Option<String>, Option<String>, Option<String>);
    for (url, kind, media_type, data) in testing::rows::<Row>("media_for_anthropic") {
        let image = json!({ "type": "image_url", "image_url": { "url": url } });
        let Some(data) = data else {
            let error = sent(ChatToMessages, "messages", &image).unwrap_err();
            assert_eq!(error.field(), Some("messages[0].content[0].image_url.url"));
            continue;
        };
        let file = json!({ "type": "file", "file": { "file_data": url, "filename": "a" } });
        for part in [image, file] {
            let block = sent(ChatToMessages, "messages", &part).unwrap();
            let source = json!({ "type": "base64", "media_type": media_type, "data": data });
            assert_eq!(
                [&block["type"], &block["source"]],
                [&json!(kind), &source],
                "{part}"
            );
        }
        let input = json!({ "type": "input_image", "image_url": url });
        let part = sent(ResponsesToChat, "input", &input).unwrap();
        let url = format!("data:{};base64,{data}", media_type.unwrap());
        assert_eq!(part["image_url"]["url"], url);
    }
}

#[test]
fn a_chat_server_gets_the_type_that_the_bytes_have() {
    type Row = (Option<String>, String, String);
    for (given, data, media_type) in testing::rows::<Row>("media_for_chat") {
        let source = json!({ "type": "base64", "media_type": given, "data": data });
        let image = json!({ "type": "image", "source": source });
        let part = sent(MessagesToChat, "messages", &image).unwrap();
        let url = format!("data:{media_type};base64,{data}");
        assert_eq!(part["image_url"]["url"], url, "{given:?}");
    }
    let untyped = json!({ "type": "image", "source": { "type": "base64", "data": "AAAA" } });
    let error = sent(MessagesToChat, "messages", &untyped).unwrap_err();
    assert!(error.to_string().contains("source.media_type"), "{error}");
}
