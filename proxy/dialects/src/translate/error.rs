//! Why something cannot be translated.

/// Why something cannot be said in the other API.
#[derive(Debug, thiserror::Error)]
pub enum TranslateError {
    /// The body is no JSON.
    #[error("the body is not JSON: {source}")]
    NotJson {
        /// Where it stops being JSON.
        #[from]
        source: serde_json::Error,
    },
    /// A field, or a value of it, that the other API has not.
    #[error("{field} is {given}, which cannot be said in {api}; allowed: {allowed}")]
    Unsayable {
        /// Where it stands, as in `messages[2].content[0].type`.
        field: String,
        given: String,
        /// Whose words are wanting.
        api: &'static str,
        /// What could stand there instead.
        allowed: &'static str,
    },
    /// A field whose value is not what its own API says.
    #[error("{field} is {given}, but must be {allowed}")]
    Invalid {
        field: String,
        given: String,
        /// What must stand there.
        allowed: &'static str,
    },
}

// === impl TranslateError ===

impl TranslateError {
    /// The field at fault, for the `param` of an error body.
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::NotJson { .. } => None,
            Self::Unsayable { field, .. } | Self::Invalid { field, .. } => Some(field),
        }
    }
}
