//! Tests a key and a model: asks the provider for its list of models.

use std::{fmt, time::Duration};

use metaclaw_chat::Secret;
use metaclaw_llm::http_client;
use metaclaw_settings::address::host;
use reqwest::{RequestBuilder, StatusCode};
use serde_json::Value;

use crate::{out, roots};

/// The timeout of the whole request.
const DEADLINE: Duration = Duration::from_secs(15);
/// The longest list that is read.
const MAX_LIST: usize = 8 << 20;
/// The number of characters of a server's refusal that are shown.
const MAX_TOLD: usize = 200;
/// The number of models that are shown to a person who named another.
const MAX_NEAR: usize = 5;
/// This provider's API expects its key in a header of its own.
const ANTHROPIC: &str = "api.anthropic.com";
const ANTHROPIC_VERSION: &str = "2023-06-01";
/// This is the prefix of a token from Anthropic's sign-in, which is not an API key.
const ANTHROPIC_TOKEN: &str = "sk-ant-oat";

/// The server to ask, and the key.
#[derive(Debug, Clone)]
pub(super) struct ModelServer {
    pub base: String,
    pub key: Option<Secret>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum OfferedModels {
    Listed(Vec<String>),
    /// The server answers and has no list, so the key was not tested.
    NoList {
        host: String,
        status: u16,
    },
    /// The server refuses the key, or requires one.
    Refused {
        host: String,
        status: u16,
        said: String,
        has_key: bool,
    },
    Unreachable {
        host: String,
        why: String,
    },
}

// === impl OfferedModels ===

impl OfferedModels {
    /// Returns whether a chat would fail as well.
    pub(super) fn is_failure(&self) -> bool {
        match self {
            Self::Listed(_) | Self::NoList { .. } => false,
            // Without a key in the settings, the caller's own key may be accepted.
            Self::Refused { has_key, .. } => *has_key,
            Self::Unreachable { .. } => true,
        }
    }
}

impl fmt::Display for OfferedModels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listed(models) => {
                let n_models = u64::try_from(models.len()).unwrap_or(u64::MAX);
                let models = out::count(n_models, "model");
                write!(f, "it answers, and has {models}")
            }
            Self::NoList { host, status } => write!(
                f,
                "{host} answers, and has no list of models ({status}): neither key nor model could be tried"
            ),
            Self::Refused {
                host,
                status,
                said,
                has_key: true,
            } => write!(f, "{host} refuses this key ({status}): {said}"),
            Self::Refused { host, .. } => write!(
                f,
                "{host} wants a key: what callers show will be passed on to it"
            ),
            Self::Unreachable { host, why } => write!(f, "{host} cannot be reached: {why}"),
        }
    }
}

/// Asks for the list of models.
pub(super) async fn ask(server: &ModelServer) -> OfferedModels {
    let host = host(&server.base).to_owned();
    match tokio::time::timeout(DEADLINE, list(server, &host)).await {
        Ok(Ok(models)) => models,
        Ok(Err(error)) => OfferedModels::Unreachable {
            host,
            why: cause(&error),
        },
        Err(_) => OfferedModels::Unreachable {
            host,
            why: format!("no answer in {} s", DEADLINE.as_secs()),
        },
    }
}

async fn list(server: &ModelServer, host: &str) -> anyhow::Result<OfferedModels> {
    let client = http_client(&roots::load())?;
    let asked = client.get(address(&server.base));
    let mut reply = with_key(asked, server.key.as_ref(), host).send().await?;
    let status = reply.status();
    let mut body = Vec::new();
    while let Some(piece) = reply.chunk().await? {
        anyhow::ensure!(body.len() + piece.len() <= MAX_LIST, "its list never ends");
        body.extend_from_slice(&piece);
    }
    let is_refusal = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status);
    // Google answers 400 to an invalid key.
    let is_refusal = is_refusal
        || status == StatusCode::BAD_REQUEST && String::from_utf8_lossy(&body).contains("API key");
    if is_refusal {
        return Ok(OfferedModels::Refused {
            host: host.to_owned(),
            status: status.as_u16(),
            said: said(&body),
            has_key: server.key.is_some(),
        });
    }
    let models = names(&body).filter(|_| status.is_success());
    Ok(models.map_or_else(
        || OfferedModels::NoList {
            host: host.to_owned(),
            status: status.as_u16(),
        },
        OfferedModels::Listed,
    ))
}

fn with_key(request: RequestBuilder, key: Option<&Secret>, host: &str) -> RequestBuilder {
    let Some(key) = key.map(Secret::expose) else {
        return request;
    };
    if host != ANTHROPIC {
        return request.bearer_auth(key);
    }
    let request = request.header("anthropic-version", ANTHROPIC_VERSION);
    if key.starts_with(ANTHROPIC_TOKEN) {
        request
            .bearer_auth(key)
            .header("anthropic-beta", "oauth-2025-04-20")
    } else {
        request.header("x-api-key", key)
    }
}

/// Returns the address of the list: next to the chat route, whether or not the address contains `/v1`.
fn address(base: &str) -> String {
    let base = base.trim_end_matches('/');
    let routes = ["/chat/completions", "/messages", "/responses"];
    let above = routes.iter().find_map(|route| base.strip_suffix(route));
    let base = above.unwrap_or(base);
    let has_path = base
        .split_once("://")
        .is_some_and(|(_, it)| it.contains('/'));
    if has_path {
        format!("{base}/models")
    } else {
        format!("{base}/v1/models")
    }
}

/// Returns the names in a list of models, or `None` if it is no such list.
fn names(body: &[u8]) -> Option<Vec<String>> {
    let list: Value = serde_json::from_slice(body).ok()?;
    let list = list["data"].as_array()?;
    let id = |model: &Value| {
        let id = model["id"].as_str()?;
        // Google writes models/ before each name, and accepts names without it.
        Some(id.strip_prefix("models/").unwrap_or(id).to_owned())
    };
    Some(list.iter().filter_map(id).collect())
}

/// Returns the message of a refusal, or its beginning.
fn said(body: &[u8]) -> String {
    let json: Option<Value> = serde_json::from_slice(body).ok();
    let json = json.unwrap_or_default();
    // Google puts its error into a list.
    let error = json.get(0).unwrap_or(&json);
    let message = error["error"]["message"].as_str();
    let message = message.or_else(|| error["message"].as_str());
    let text = String::from_utf8_lossy(body);
    let one_line = message.unwrap_or(&text).split_whitespace();
    let one_line = one_line.collect::<Vec<_>>().join(" ");
    one_line.chars().take(MAX_TOLD).collect()
}

/// This is the innermost reason, because the outer ones say only that a request failed.
fn cause(error: &anyhow::Error) -> String {
    error.root_cause().to_string()
}

/// Returns what to say about a model that is not in the list.
pub(super) fn missed(model: &str, listed: &[String]) -> String {
    let mut near: Vec<(usize, &String)> = listed
        .iter()
        .map(|it| (strsim::damerau_levenshtein(it, model), it))
        .collect();
    near.sort();
    let near: Vec<&str> = near
        .iter()
        .take(MAX_NEAR)
        .map(|(_, it)| it.as_str())
        .collect();
    if near.is_empty() {
        return format!("{model:?} is not there: no model is");
    }
    format!("{model:?} is not there; nearest: {}", near.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_beside_the_chats() {
        for (base, list) in [
            (
                "https://api.openai.com/v1",
                "https://api.openai.com/v1/models",
            ),
            (
                "https://api.anthropic.com",
                "https://api.anthropic.com/v1/models",
            ),
            ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1/models"),
            (
                "https://h.example/api/v3/chat/completions",
                "https://h.example/api/v3/models",
            ),
        ] {
            assert_eq!(address(base), list);
        }
    }

    #[test]
    fn lists_and_refusals_are_read_as_each_says_them() {
        let list = br#"{"data":[{"id":"models/gemini-2.5-pro"},{"id":"b"},{"name":"c"}]}"#;
        assert_eq!(names(list).unwrap(), ["gemini-2.5-pro", "b"]);
        assert_eq!(names(b"<html>"), None);
        let openai = br#"{"error":{"message":"Incorrect API key\n provided"}}"#;
        assert_eq!(said(openai), "Incorrect API key provided");
        let google = br#"[{"error":{"message":"API key not valid."}}]"#;
        assert_eq!(said(google), "API key not valid.");
        assert_eq!(said(b"no"), "no");
    }

    #[test]
    fn a_model_that_is_not_there_is_told_its_neighbours() {
        let listed = ["gpt-4o", "gpt-4o-mini", "o3"].map(str::to_owned);
        assert_eq!(
            missed("gtp-4o", &listed),
            "\"gtp-4o\" is not there; nearest: gpt-4o, gpt-4o-mini, o3"
        );
    }
}
