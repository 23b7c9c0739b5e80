//! Names that the other API would refuse, and their reverse mapping.
//!
//! A name is changed in the same way every time, so that it is equal in a tool, in `tool_choice` and in each call of
//! the history, and in every request of a session.

use std::borrow::Cow;

use serde_json::Value;

/// The longest name of a tool that both APIs accept.
const MAX_NAME: usize = 64;
/// The longest id of a call that OpenAI accepts.
const MAX_ID: usize = 40;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ToolNames(Vec<(String, String)>);

/// Returns the name of a tool in the form that both APIs accept: up to 64 letters, digits, `_` and `-`.
pub(super) fn tool(name: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.len() <= MAX_NAME && name.chars().all(fits) {
        return Cow::Borrowed(name);
    }
    let plain: String = name
        .chars()
        .map(|c| if fits(c) { c } else { '_' })
        .collect();
    Cow::Owned(shortened(&plain, name, MAX_NAME))
}

pub(super) fn chat_id(id: &str) -> Cow<'_, str> {
    if id.len() <= MAX_ID || !id.is_ascii() {
        return Cow::Borrowed(id);
    }
    Cow::Owned(shortened(id, id, MAX_ID))
}

/// Returns the id of a call in the form that Anthropic accepts: letters, digits, `_` and `-`. Other ids, such as
/// `functions.exec:0`, have more.
pub(super) fn messages_id(id: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    id.chars().map(|c| if fits(c) { c } else { '_' }).collect()
}

/// Returns the beginning of `plain`, which is ASCII, as far as it fits, and a hash that distinguishes `name` from
/// others.
fn shortened(plain: &str, name: &str, limit: usize) -> String {
    let hash = format!("_{:08x}", fnv1a(name));
    let head = &plain[..plain.len().min(limit - hash.len())];
    format!("{head}{hash}")
}

/// The hash is FNV-1a with 32 bits. It is the same in every build, so that a session keeps its prompt cache over an
/// update.
fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

// === impl ToolNames ===

impl ToolNames {
    pub(super) fn of_request(body: &Value) -> Self {
        let tools = body["tools"].as_array().into_iter().flatten();
        let names = tools.filter_map(|tool| {
            let name = tool["function"]["name"]
                .as_str()
                .or_else(|| tool["name"].as_str())?;
            match self::tool(name) {
                Cow::Owned(sent) => Some((sent, name.to_owned())),
                Cow::Borrowed(_) => None,
            }
        });
        Self(names.collect())
    }

    pub(super) fn given<'a>(&'a self, sent: &'a str) -> &'a str {
        let known = self.0.iter().find(|(name, _)| name == sent);
        known.map_or(sent, |(_, given)| given)
    }
}
