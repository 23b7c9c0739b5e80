//! The ids of a conversation, split where the assistant's last reply begins: what a model reads, and what it is to say.

use serde_json::Value;

use super::{
    CONTROL_BYTES, ChatTokenizer, EncodeError, KeyPart, Place,
    rendered::{Rendered, parts},
};
use crate::template::{RenderError, RenderRequest};

const SHOWN: usize = 48;

/// A conversation as the chat template writes it, without the assistant's last reply and with it.
#[derive(Debug, Clone)]
pub struct RenderedReply {
    prompt: Rendered,
    whole: Rendered,
}

/// A conversation up to the end of the assistant's last reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitReply {
    /// The prompt and the reply, which ends with the token that ends it.
    pub ids: Vec<u32>,
    /// The number of ids of the prompt.
    pub start: usize,
}

/// Why a conversation cannot be split.
#[derive(Debug, thiserror::Error)]
pub enum SplitReplyError {
    #[error("the last message has role {role}, and has to be the assistant's")]
    NotAReply { role: String },
    #[error(transparent)]
    Render(#[from] RenderError),
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The text of the prompt is not the beginning of the text with the reply.
    #[error(
        "the model's chat template does not show where the assistant's text begins: where the prompt of the reply ends with {prompt:?}, the conversation with the reply has {whole:?}"
    )]
    NotABeginning { prompt: String, whole: String },
    #[error(
        "the model's chat template writes no token that ends a reply, so that a model which is trained on its text would not learn to stop"
    )]
    NoEnd,
}

// === impl RenderedReply ===

impl RenderedReply {
    /// Returns the text with the reply.
    pub fn text(&self) -> &str {
        self.whole.text()
    }
}

// === impl ChatTokenizer ===

impl ChatTokenizer {
    /// Renders a conversation that ends with an assistant's message, twice: up to where the model is asked for this
    /// message, and with it. `add_generation_prompt` of the request has no effect.
    ///
    /// # Errors
    /// Returns [`SplitReplyError`] if the last message is not the assistant's, or the template refuses one of both.
    pub fn render_reply(
        &self,
        request: &RenderRequest<'_>,
    ) -> Result<RenderedReply, SplitReplyError> {
        let prompt = self.render_request(&RenderRequest {
            messages: before_reply(request.messages)?,
            add_generation_prompt: true,
            ..*request
        })?;
        let whole = self.render_request(&RenderRequest {
            add_generation_prompt: false,
            ..*request
        })?;
        Ok(RenderedReply { prompt, whole })
    }

    /// Returns the ids of a rendered conversation. The prompt has the ids that it has when the model is asked for this
    /// reply, and the reply is what the model has to say then, with the token that ends it.
    ///
    /// # Errors
    /// Returns [`SplitReplyError`] if the template does not show where the reply begins or ends.
    pub fn encode_reply(&self, rendered: &RenderedReply) -> Result<SplitReply, SplitReplyError> {
        let RenderedReply { prompt, whole } = rendered;
        // Some of Gemma's templates put an empty thought before a reply only if they ask for it.
        let empty = Rendered::new("<|channel>thought\n<channel|>".into(), None, &self.controls).key;
        let asked = prompt.key.strip_suffix(empty.as_slice());
        let mut asked = [Some(prompt.key.as_slice()), asked].into_iter().flatten();
        let Some(reply) = asked.find_map(|asked| whole.key.strip_prefix(asked)) else {
            return Err(not_a_beginning(prompt, whole));
        };
        let end = end_of_reply(reply, &self.end_ids()).ok_or(SplitReplyError::NoEnd)?;
        let mut ids = self.encode_rendered(prompt)?;
        let place = match ids.last() {
            None => Place::Start,
            Some(&id) if self.is_control(id) => Place::AfterControl,
            Some(_) => Place::Inside,
        };
        let start = ids.len();
        ids.extend(self.encode_key(&reply[..end], place)?);
        Ok(SplitReply { ids, start })
    }
}

fn before_reply(messages: &[Value]) -> Result<&[Value], SplitReplyError> {
    let Some((last, before)) = messages.split_last() else {
        let role = "none".to_owned();
        return Err(SplitReplyError::NotAReply { role });
    };
    let role = last["role"].as_str().unwrap_or("none");
    if role != "assistant" {
        let role = role.to_owned();
        return Err(SplitReplyError::NotAReply { role });
    }
    Ok(before)
}

fn end_of_reply(key: &[u8], end_ids: &[u32]) -> Option<usize> {
    let (mut at, mut end) = (0, None);
    for part in parts(key) {
        match part {
            KeyPart::Text(text) => at += text.len(),
            KeyPart::Control(id) => {
                at += CONTROL_BYTES;
                end = end_ids.contains(&id).then_some(at).or(end);
            }
        }
    }
    end
}

fn not_a_beginning(prompt: &Rendered, whole: &Rendered) -> SplitReplyError {
    let both = prompt.text().char_indices().zip(whole.text().chars());
    let equal = both.take_while(|((_, one), other)| one == other);
    let same = equal.last().map_or(0, |((at, c), _)| at + c.len_utf8());
    let shown = |text: &str| text[same..].chars().take(SHOWN).collect::<String>();
    SplitReplyError::NotABeginning {
        prompt: shown(prompt.text()),
        whole: shown(whole.text()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{SPECIAL, TEMPLATE, write_tiny_text};
    use crate::tokenizer::tests::families::FAMILIES;

    const END: u32 = SPECIAL[2].1;

    #[test]
    fn an_empty_thought_of_the_prompt_alone_is_no_part_of_the_reply() {
        let gemma = FAMILIES.iter().find(|family| family.name == "gemma4");
        let tokenizer = gemma.unwrap().load();
        let function = json!({"name": "f", "arguments": {"a": "x"}});
        let call = json!({"role": "assistant", "content": "", "tool_calls": [{"id": "c", "function": function}]});
        let [user, said] = talk("Hello");
        for (reply, expected) in [
            (said, "Hello<turn|>"),
            (
                call,
                "<|tool_call>call:f{a:<|\"|>x<|\"|>}<tool_call|><|tool_response>",
            ),
        ] {
            let asked = tokenizer.render(std::slice::from_ref(&user), None, true);
            let asked = tokenizer.encode_rendered(&asked.unwrap()).unwrap();
            let SplitReply { ids, start } = split(&tokenizer, &[user.clone(), reply]).unwrap();
            assert_eq!(ids[..start], asked);
            assert!(tokenizer.decode(&asked).ends_with("thought\n<channel|>"));
            assert_eq!(tokenizer.decode_special(&ids[start..]), expected);
        }
    }

    fn tokenizer(template: &str) -> ChatTokenizer {
        let dir = tempfile::tempdir().unwrap();
        write_tiny_text(dir.path()).unwrap();
        let file = dir.path().join("tokenizer_config.json");
        let config = std::fs::read_to_string(&file).unwrap();
        let mut config: Value = serde_json::from_str(&config).unwrap();
        config["chat_template"] = json!(template);
        std::fs::write(&file, config.to_string()).unwrap();
        ChatTokenizer::load(dir.path()).unwrap()
    }

    fn split(tokenizer: &ChatTokenizer, messages: &[Value]) -> Result<SplitReply, String> {
        let request = RenderRequest {
            messages,
            ..RenderRequest::default()
        };
        let rendered = tokenizer.render_reply(&request);
        let split = rendered.and_then(|rendered| tokenizer.encode_reply(&rendered));
        split.map_err(|error| error.to_string())
    }

    fn talk(reply: &str) -> [Value; 2] {
        [
            json!({"role": "user", "content": "Hi"}),
            json!({"role": "assistant", "content": reply}),
        ]
    }

    #[test]
    fn a_reply_begins_where_the_model_is_asked_and_ends_with_its_end() {
        let tokenizer = tokenizer(TEMPLATE);
        let messages = talk("Hello");
        let SplitReply { ids, start } = split(&tokenizer, &messages).unwrap();
        let asked = tokenizer.render(&messages[..1], None, true).unwrap();
        assert_eq!(ids[..start], tokenizer.encode_rendered(&asked).unwrap());
        assert_eq!(tokenizer.decode_special(&ids[start..]), "Hello<|im_end|>");
        assert_eq!(ids.last(), Some(&END), "and not the line break after it");
    }

    #[test]
    fn content_that_looks_like_a_control_token_is_content() {
        let tokenizer = tokenizer(TEMPLATE);
        let messages = talk("a<|im_end|>b<|im_start|>user");
        let SplitReply { ids, start } = split(&tokenizer, &messages).unwrap();
        let ends = ids[start..].iter().filter(|id| **id == END);
        assert_eq!(ends.count(), 1, "only the template's own");
        assert_eq!(ids.last(), Some(&END));
    }

    #[test]
    fn a_template_that_does_not_show_where_the_reply_is_is_refused_in_words() {
        // It writes something else behind the prompt than in the conversation.
        let thinks = TEMPLATE.replace("assistant\n' }}{% endif", "assistant\n<think>' }}{% endif");
        assert_ne!(thinks, TEMPLATE);
        let refused = split(&tokenizer(&thinks), &talk("Hello")).unwrap_err();
        assert_eq!(
            refused,
            "the model's chat template does not show where the assistant's text begins: where the prompt of the reply ends \
            with \"<think>\", the conversation with the reply has \"Hello<|im_end|>\\n\""
        );
        let endless = TEMPLATE.replace("+ '<|im_end|>' + '\n'", "+ '\n'");
        assert_ne!(endless, TEMPLATE);
        let refused = split(&tokenizer(&endless), &talk("Hello")).unwrap_err();
        assert!(
            refused.contains("writes no token that ends a reply"),
            "{refused}"
        );
        let question = [json!({"role": "user", "content": "Hi"})];
        let refused = split(&tokenizer(TEMPLATE), &question).unwrap_err();
        assert_eq!(
            refused,
            "the last message has role user, and has to be the assistant's"
        );
        assert!(
            split(&tokenizer(TEMPLATE), &[])
                .unwrap_err()
                .contains("role none")
        );
    }
}
