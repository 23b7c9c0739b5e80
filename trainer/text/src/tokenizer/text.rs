//! Converts text to ids with control tokens off.

use serde_json::{Value, json};
use tokenizers::Tokenizer;

use crate::content::ControlTokens;

/// Why a text cannot be converted to ids.
#[derive(Debug, thiserror::Error)]
#[error("the text cannot be tokenised: {0}")]
pub struct EncodeError(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Start,
    AfterControl,
    Inside,
}

/// A tokenizer that treats control tokens as text, and adds a blank before a text only at the beginning.
///
/// SentencePiece tokenizers add `▁` before a text. Text that continues after ids must not get one.
#[derive(Debug)]
pub(super) struct TextEncoder {
    lead: Tokenizer,
    /// The tokenizer that adds no `▁` before a text, or `None` if it never does.
    inside: Option<Tokenizer>,
    /// Whether `▁` comes only before the first text, and not after each control token.
    lead_once: bool,
}

impl TextEncoder {
    /// Makes it from a tokenizer and its file.
    ///
    /// # Errors
    /// Fails if `tokenizers` refuses the change.
    pub(super) fn new(
        mut lead: Tokenizer,
        mut json: Value,
        controls: &ControlTokens,
    ) -> tokenizers::Result<Self> {
        let tokens = controls.as_special();
        let as_text = |tokenizer: &mut Tokenizer| {
            // Only special tokens can be treated as text by it.
            tokenizer.add_special_tokens(&tokens);
            tokenizer.set_encode_special_tokens(true);
        };
        as_text(&mut lead);
        let lead_once = first_only(&json["pre_tokenizer"]);
        let before = (json["normalizer"].clone(), json["pre_tokenizer"].clone());
        for part in ["normalizer", "pre_tokenizer"] {
            json[part] = without_lead(json[part].take());
        }
        let inside = if before == (json["normalizer"].clone(), json["pre_tokenizer"].clone()) {
            None
        } else {
            let mut inside: Tokenizer = json.to_string().parse()?;
            as_text(&mut inside);
            Some(inside)
        };
        Ok(Self {
            lead,
            inside,
            lead_once,
        })
    }

    /// Appends the ids of a text.
    ///
    /// # Errors
    /// Returns [`EncodeError`] if there is no token for a part and no fall-back.
    pub(super) fn encode(
        &self,
        text: &str,
        place: Place,
        ids: &mut Vec<u32>,
    ) -> Result<(), EncodeError> {
        let leads = match place {
            Place::Start => true,
            Place::AfterControl => !self.lead_once,
            Place::Inside => false,
        };
        let tokenizer = match &self.inside {
            Some(inside) if !leads => inside,
            _ => &self.lead,
        };
        let encoding = tokenizer
            .encode_fast(text, false)
            .map_err(|error| EncodeError(error.to_string()))?;
        ids.extend_from_slice(encoding.get_ids());
        Ok(())
    }

    pub(super) fn token_to_id(&self, token: &str) -> Option<u32> {
        self.lead.token_to_id(token)
    }
}

fn steps(part: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["normalizers", "pretokenizers"].into_iter();
    lists.filter_map(|key| part[key].as_array()).flatten()
}

fn first_only(pre_tokenizer: &Value) -> bool {
    pre_tokenizer["prepend_scheme"] == "first" || steps(pre_tokenizer).any(first_only)
}

/// Returns it without the step that adds `▁` before a text.
fn without_lead(mut part: Value) -> Value {
    for key in ["normalizers", "pretokenizers"] {
        if let Some(list) = part.get_mut(key).and_then(Value::as_array_mut) {
            let steps = std::mem::take(list).into_iter().map(without_lead);
            *list = steps.filter(|step| !step.is_null()).collect();
        }
    }
    match part["type"].as_str() {
        Some("Prepend") => Value::Null,
        Some("Metaspace") => {
            part["prepend_scheme"] = json!("never");
            part["add_prefix_space"] = json!(false);
            part
        }
        _ => part,
    }
}
