//! What a text-only model cannot take: images and the like.

use metaclaw_chat::Message;
use serde_json::Value;

/// Types of content parts, in OpenAI's and Anthropic's words, that are no text.
const MEDIA: [&str; 9] = [
    "image_url",
    "input_image",
    "image",
    "input_audio",
    "audio",
    "video_url",
    "file",
    "input_file",
    "document",
];

/// Whether any message holds more than text.
pub(crate) fn is_in(messages: &[Message]) -> bool {
    let parts = messages
        .iter()
        .filter_map(|message| message.get("content")?.as_array());
    parts.flatten().any(is_media)
}

fn is_media(part: &Value) -> bool {
    part["type"].as_str().is_some_and(|it| MEDIA.contains(&it))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_image_is_found_wherever_it_stands() {
        let message = |content| Message::try_from(json!({"role": "user", "content": content}));
        let text = message(json!([{"type": "text", "text": "image_url"}])).unwrap();
        let image = message(json!([{"type": "text", "text": ""}, {"type": "image_url"}])).unwrap();
        assert!(!is_in(&[text.clone(), Message::user("image")]));
        assert!(is_in(&[image, text]));
    }
}
