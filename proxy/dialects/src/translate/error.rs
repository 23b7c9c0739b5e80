//! Why something cannot be translated.

/// Why something cannot be expressed in the other API.
#[derive(Debug, thiserror::Error)]
pub enum TranslateError {
    /// The body is not JSON.
    #[error("the body is not JSON: {source}")]
    NotJson {
        /// The parse error.
        #[from]
        source: serde_json::Error,
    },
    /// The other API does not have a field, or a value of it.
    #[error("{field} is {given}, which cannot be said in {api}; allowed: {allowed}")]
    Unsayable {
        /// The path, for example `messages[2].content[0].type`.
        field: String,
        given: String,
        /// The API that cannot express it.
        api: &'static str,
        /// The allowed values.
        allowed: &'static str,
    },
    /// A field's value is invalid in its own API.
    #[error("{field} is {given}, but must be {allowed}")]
    Invalid {
        field: String,
        given: String,
        /// The required value.
        allowed: &'static str,
    },
}

// === impl TranslateError ===

impl TranslateError {
    /// Returns the field at fault, for the `param` of an error body.
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::NotJson { .. } => None,
            Self::Unsayable { field, .. } | Self::Invalid { field, .. } => Some(field),
        }
    }
}
