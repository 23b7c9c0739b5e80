//! Address and parameters of a chat model.

use std::collections::BTreeMap;

use metaclaw_aws::CredentialSource;
use metaclaw_chat::{Secret, Span};
use reqwest::Url;
use serde::Deserialize;
use serde_json::{Map, Value};
use smart_default::SmartDefault;

use crate::azure;

/// One OpenAI-compatible chat model: `llm.*`, `judge.*` and similar sections. The crate `cli` fills it in.
#[derive(Debug, Clone, SmartDefault, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct LlmConfig {
    /// The base of the API, for example `https://api.openai.com/v1`.
    pub url: String,
    /// The model's name.
    pub model: String,
    /// The key, or none if the server needs none.
    pub key: Option<Secret>,
    /// The deadline of one request, for all its attempts and waits together.
    #[default(Span::secs(60))]
    pub timeout: Span,
    /// Whether the server is Azure's, with its own addresses and key header.
    pub azure: bool,
    /// The version of Azure's API, for example `2024-10-21`. Without one, the address must end in `/openai/v1` or is
    /// completed with it.
    pub api_version: Option<String>,
    /// What the server is told besides the chat.
    pub extra: ExtraParts,
    /// Who we are at AWS. Requests to Amazon Bedrock without a key are signed with it.
    #[serde(skip)]
    pub aws: CredentialSource,
}

/// What a server is told besides the chat: OpenRouter's headers and fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ExtraParts {
    /// Headers by name. One that no request can have is left out.
    pub headers: BTreeMap<String, String>,
    /// Fields of the request.
    pub fields: Map<String, Value>,
}

/// Why a chat model cannot be used as configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The address is not a usable URL.
    #[error("url {url:?} is not allowed: {why}; it must be as in \"https://api.openai.com/v1\"")]
    Url {
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// The key contains characters that a header cannot have.
    #[error("key {key} is not allowed: it holds characters that a header cannot")]
    Key {
        /// The key, shown in part.
        key: Secret,
    },
}

// === impl LlmConfig ===

impl LlmConfig {
    pub(crate) fn endpoint(&self) -> Result<Url, ConfigError> {
        let refused = |why: String| ConfigError::Url {
            url: self.url.clone(),
            why,
        };
        let base = self.url.trim_end_matches('/');
        let url = if self.azure {
            azure::endpoint(base, &self.model, self.api_version.as_deref()).map_err(refused)?
        } else {
            let url: Result<Url, _> = format!("{base}/chat/completions").parse();
            let url = url.map_err(|error| refused(format!("{error}")))?;
            if url.query().is_some() {
                return Err(refused("it has a query".to_owned()));
            }
            url
        };
        if !matches!(url.scheme(), "http" | "https") {
            return Err(refused(format!("{:?} is not http or https", url.scheme())));
        }
        if url.fragment().is_some() {
            return Err(refused("it has a fragment".to_owned()));
        }
        Ok(url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(url: &str) -> Result<String, String> {
        let config = LlmConfig {
            url: url.to_owned(),
            ..LlmConfig::default()
        };
        config
            .endpoint()
            .map(Into::into)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_endpoint_stands_below_the_base() {
        for url in ["https://host/v1", "https://host/v1/"] {
            assert_eq!(endpoint(url).unwrap(), "https://host/v1/chat/completions");
        }
    }

    #[test]
    fn what_is_no_url_is_refused_with_the_reason() {
        assert!(
            endpoint("")
                .unwrap_err()
                .starts_with("url \"\" is not allowed")
        );
        assert!(
            endpoint("ftp://host")
                .unwrap_err()
                .contains("\"ftp\" is not http or https")
        );
        assert!(
            endpoint("https://host/v1?a=b")
                .unwrap_err()
                .contains("query")
        );
    }
}
