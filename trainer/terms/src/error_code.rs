//! The stable words by which programs tell errors of the training server apart.

use serde::{Deserialize, Serialize};

/// Defines [`ErrorCode`] with the word that each code has on the wire.
macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident = $word:literal,)*) => {
        /// The `code` of an error body: what a program matches on, where the message is for people.
        ///
        /// A word that this version does not know is kept as [`ErrorCode::Other`], so that a newer peer's code reaches
        /// the log and the next hop unchanged.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, derive_more::Display)]
        #[display("{}", self.as_str())]
        #[serde(from = "String", into = "String")]
        pub enum ErrorCode {
            $($(#[$doc])* $name,)*
            /// A code that this version does not know, as the peer wrote it.
            Other(Box<str>),
        }

        impl ErrorCode {
            /// The word as it stands on the wire.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$name => $word,)*
                    Self::Other(word) => word,
                }
            }
        }

        impl From<&str> for ErrorCode {
            fn from(word: &str) -> Self {
                match word {
                    $($word => Self::$name,)*
                    other => Self::Other(other.into()),
                }
            }
        }

        #[cfg(test)]
        const KNOWN: &[ErrorCode] = &[$(ErrorCode::$name,)*];
    };
}

error_codes! {
    /// The checkpoint or adapter file is damaged, so that no retry can load it.
    AdapterDamaged = "adapter_damaged",
    /// The adapter serves or trains at the moment, so that it cannot be deleted.
    AdapterInUse = "adapter_in_use",
    /// The adapter does not fit the model that the server has loaded.
    AdapterRefused = "adapter_refused",
    BodyTooLarge = "body_too_large",
    /// The body came more slowly than the server waits for.
    BodyTooSlow = "body_too_slow",
    CheckpointInUse = "checkpoint_in_use",
    CheckpointNotFound = "checkpoint_not_found",
    /// The prompt leaves no room for a reply in the model's context.
    ContextLengthExceeded = "context_length_exceeded",
    /// A browser page of another origin sent the request.
    ForeignPage = "foreign_page",
    /// What was asked for existed, and was dropped.
    Gone = "gone",
    GradientNotFinite = "gradient_not_finite",
    /// The inference server in front of the trainer refuses to work as it is configured.
    InferenceRefused = "inference_refused",
    InvalidApiKey = "invalid_api_key",
    InvalidJson = "invalid_json",
    /// The request needs more of the key-value cache than the server has.
    KvBudgetExceeded = "kv_budget_exceeded",
    /// The loss of one datum is not finite, although the weights answer with numbers.
    LossNotFinite = "loss_not_finite",
    /// The server still downloads the model that was named.
    ModelFetching = "model_fetching",
    ModelNotFound = "model_not_found",
    /// The training service does not offer the base model that was configured.
    ModelNotOffered = "model_not_offered",
    /// An optimiser step was asked for before any gradient.
    NoGradients = "no_gradients",
    /// No model is loaded yet.
    NoModel = "no_model",
    /// The training service has no room for another model.
    NoRoom = "no_room",
    /// The model's tokenizer has not been fetched yet. Only our own process makes this code.
    NoTokenizer = "no_tokenizer",
    OutOfMemory = "out_of_memory",
    QueueFull = "queue_full",
    RunNotFound = "run_not_found",
    /// The server keeps no record of that reply's token ids.
    SampledNotFound = "sampled_not_found",
    SamplerFailed = "sampler_failed",
    SamplerNotFound = "sampler_not_found",
    SamplerPaymentRequired = "sampler_payment_required",
    SamplerUnauthorized = "sampler_unauthorized",
    /// A sequence number came again with another request.
    SeqIdReused = "seq_id_reused",
    /// The chat template refuses the conversation.
    TemplateRefused = "template_refused",
    TooManyBodies = "too_many_bodies",
    UnknownRoute = "unknown_route",
    UnknownParameter = "unknown_parameter",
    UnsupportedParameter = "unsupported_parameter",
    UnsupportedValue = "unsupported_value",
    /// The model answers with values that are not numbers, whatever it is asked.
    WeightsNotFinite = "weights_not_finite",
}

// === impl ErrorCode ===

impl ErrorCode {
    /// Whether an adapter cannot serve: the server does not have it, cannot use it, or gets no numbers from it.
    pub fn is_unfit_adapter(&self) -> bool {
        matches!(
            self,
            Self::ModelNotFound
                | Self::AdapterRefused
                | Self::AdapterDamaged
                | Self::WeightsNotFinite
        )
    }

    /// Whether a prompt needs more than the server can give it at any time: a retry fails in the same way.
    pub fn is_prompt_too_large(&self) -> bool {
        matches!(
            self,
            Self::ContextLengthExceeded
                | Self::BodyTooLarge
                | Self::KvBudgetExceeded
                | Self::OutOfMemory
        )
    }
}

impl From<String> for ErrorCode {
    fn from(word: String) -> Self {
        word.as_str().into()
    }
}

impl From<ErrorCode> for String {
    fn from(code: ErrorCode) -> Self {
        match code {
            ErrorCode::Other(word) => word.into(),
            known => known.as_str().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_is_read_as_it_was_written() {
        for code in KNOWN {
            let json = serde_json::to_string(code).unwrap();
            assert_eq!(json, format!("\"{code}\""));
            assert_eq!(serde_json::from_str::<ErrorCode>(&json).unwrap(), *code);
        }
    }

    #[test]
    fn a_newer_peers_code_keeps_its_text() {
        let code: ErrorCode = serde_json::from_str("\"of_tomorrow\"").unwrap();
        assert_eq!(code, ErrorCode::Other("of_tomorrow".into()));
        assert_eq!(serde_json::to_string(&code).unwrap(), "\"of_tomorrow\"");
        assert!(!code.is_unfit_adapter() && !code.is_prompt_too_large());
    }
}
