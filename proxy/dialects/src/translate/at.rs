//! Values of a body with their paths, which errors name.

use serde_json::{Map, Value};

use super::{error::TranslateError, wire::given};

/// The largest part of a value that an error repeats, in characters.
const SHOWN: usize = 80;

pub(super) const MESSAGES: &str = "Anthropic messages";
pub(super) const CHAT: &str = "chat completions";

/// A value of a body (`null` if it is missing), and its path, for example `messages[2].content[0].type`.
#[derive(Debug, Clone, derive_more::Deref)]
pub(super) struct PathValue<'a> {
    path: String,
    #[deref(forward)]
    pub(super) value: &'a Value,
}

// === impl At ===

impl<'a> PathValue<'a> {
    pub(super) fn new(path: &str, value: &'a Value) -> Self {
        Self {
            path: path.to_owned(),
            value,
        }
    }

    pub(super) fn top(body: &'a Value, name: &str) -> Self {
        Self::new(name, &body[name])
    }

    pub(super) fn field(&self, name: &str) -> Self {
        Self {
            path: format!("{}.{name}", self.path),
            value: &self.value[name],
        }
    }

    pub(super) fn with<'b>(&self, value: &'b Value) -> PathValue<'b> {
        let path = self.path.clone();
        PathValue { path, value }
    }

    pub(super) fn given(self) -> Option<Self> {
        given(self.value).is_some().then_some(self)
    }

    pub(super) fn object(&self) -> Result<&'a Map<String, Value>, TranslateError> {
        let object = self.value.as_object();
        object.ok_or_else(|| self.invalid("an object"))
    }

    pub(super) fn string(&self) -> Result<&'a str, TranslateError> {
        let text = self.value.as_str();
        text.ok_or_else(|| self.invalid("a string"))
    }

    pub(super) fn list(&self) -> Result<&'a [Value], TranslateError> {
        match self.value {
            Value::Null => Ok(&[]),
            Value::Array(list) => Ok(list),
            _ => Err(self.invalid("a list")),
        }
    }

    pub(super) fn items(&self) -> Result<impl Iterator<Item = PathValue<'a>>, TranslateError> {
        let items = self.list()?.iter().enumerate();
        Ok(items.map(|(n, value)| PathValue {
            path: format!("{}[{n}]", self.path),
            value,
        }))
    }

    pub(super) fn texts(&self) -> Result<Vec<&'a str>, TranslateError> {
        if let Value::String(text) = self.value {
            return Ok(vec![text]);
        }
        let text = |part: PathValue<'a>| match part.value {
            Value::String(text) => Ok(text.as_str()),
            value if value["type"] == "text" => part.field("text").string(),
            _ => Err(part.field("type").invalid("\"text\"")),
        };
        self.items()?.map(text).collect()
    }

    pub(super) fn invalid(&self, must: &'static str) -> TranslateError {
        TranslateError::Invalid {
            field: self.path.clone(),
            given: shown(self.value),
            allowed: must,
        }
    }

    pub(super) fn unsayable(&self, api: &'static str, allowed: &'static str) -> TranslateError {
        TranslateError::Unsayable {
            field: self.path.clone(),
            given: shown(self.value),
            api,
            allowed,
        }
    }

    pub(super) fn unsayable_kind(
        &self,
        api: &'static str,
        allowed: &'static str,
    ) -> TranslateError {
        match self.string() {
            Ok(_) => self.unsayable(api, allowed),
            Err(invalid) => invalid,
        }
    }
}

fn shown(value: &Value) -> String {
    if value.is_null() {
        return "missing".to_owned();
    }
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}
