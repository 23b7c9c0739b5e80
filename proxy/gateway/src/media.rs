//! What a text-only model cannot take: images and the like.

use crate::request::Conversation;

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

/// Whether any message to the model holds more than text.
pub(crate) fn is_in(conversation: &Conversation) -> bool {
    let mut all = conversation.each().iter();
    all.any(|said| {
        let kinds = conversation.part_kinds(said);
        kinds.iter().any(|kind| MEDIA.contains(&kind.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use metaclaw_chat::Message;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_image_is_found_wherever_it_stands() {
        let message = |content| Message::try_from(json!({"role": "user", "content": content}));
        let text = message(json!([{"type": "text", "text": "image_url"}])).unwrap();
        let image = message(json!([{"type": "text", "text": ""}, {"type": "image_url"}])).unwrap();
        let is_in = |messages: &[Message]| is_in(&Conversation::of(messages));
        assert!(!is_in(&[text.clone(), Message::user("image")]));
        assert!(is_in(&[image, text]));
    }
}
