//! Asks a provider for its list of models, which costs nothing and tests the address and the key.

use std::time::Duration;

use anyhow::Context as _;
use metaclaw_chat::Secret;
use metaclaw_gateway::innermost;
use metaclaw_llm::bounded_body;
use metaclaw_settings::address::host;
use reqwest::{RequestBuilder, StatusCode};
use serde_json::Value;

use crate::{out, roots};

const DEADLINE: Duration = Duration::from_secs(15);
const SPEAKS_TLS: &str = ". If the server speaks TLS, its address is https://";
const MAX_LIST: usize = 8 << 20;
const MAX_TOLD: usize = 200;
const MAX_NEAR: usize = 5;
/// This provider's API expects its key in a header of its own.
const ANTHROPIC: &str = "api.anthropic.com";
const ANTHROPIC_VERSION: &str = "2023-06-01";
/// This is the prefix of a token from Anthropic's sign-in, which is not an API key.
const ANTHROPIC_TOKEN: &str = "sk-ant-oat";

#[derive(Debug)]
pub(super) struct ModelServer {
    pub base: String,
    pub key: Option<Secret>,
}

#[derive(Debug)]
pub(super) enum ModelList {
    Listed(Vec<String>),
    /// The server answers and has no list, so the key was not tested.
    Missing(StatusCode),
    /// The server refuses the key, or requires one.
    Refused {
        status: StatusCode,
        said: String,
    },
    Unreachable(String),
}

// === impl ModelServer ===

impl ModelServer {
    pub(super) async fn models(&self) -> ModelList {
        match tokio::time::timeout(DEADLINE, self.ask()).await {
            Ok(Ok(models)) => models,
            Ok(Err(error)) => {
                let hint = if self.answers_no_http(&error) {
                    SPEAKS_TLS
                } else {
                    ""
                };
                ModelList::Unreachable(innermost(error.as_ref()) + hint)
            }
            Err(_) => ModelList::Unreachable(format!("no answer in {} s", DEADLINE.as_secs())),
        }
    }

    /// Returns whether a server at an http:// address took the connection and sent no reply to the request.
    fn answers_no_http(&self, error: &anyhow::Error) -> bool {
        let sent = error
            .downcast_ref()
            .is_some_and(|error: &reqwest::Error| error.is_request() && !error.is_connect());
        sent && self.base.starts_with("http://")
    }

    /// Returns whether a chat would fail as well.
    pub(super) fn would_fail(&self, list: &ModelList) -> bool {
        match list {
            ModelList::Listed(_) | ModelList::Missing(_) => false,
            // Without a key in the settings, the caller's own key may be accepted.
            ModelList::Refused { .. } => self.key.is_some(),
            ModelList::Unreachable(_) => true,
        }
    }

    pub(super) fn describe(&self, list: &ModelList) -> String {
        let host = host(&self.base);
        match list {
            ModelList::Listed(models) => {
                let n_models = u64::try_from(models.len()).unwrap_or(u64::MAX);
                format!("it answers, and has {}", out::count(n_models, "model"))
            }
            ModelList::Missing(status) => format!(
                "{host} answers, and has no list of models ({}): neither key nor model could be tried",
                status.as_u16()
            ),
            ModelList::Refused { status, said } if self.key.is_some() => {
                format!("{host} refuses this key ({}): {said}", status.as_u16())
            }
            ModelList::Refused { .. } => {
                format!("{host} requires a key: the keys that callers send will be passed on to it")
            }
            ModelList::Unreachable(why) => format!("{host} cannot be reached: {why}"),
        }
    }

    async fn ask(&self) -> anyhow::Result<ModelList> {
        let request = roots::http_client()?.get(list_url(&self.base));
        let reply = self.with_key(request).send().await?;
        let status = reply.status();
        let body = bounded_body(reply, MAX_LIST).await?;
        let body = body.context("its list never ends")?;
        // Google answers 400 to an invalid key.
        let is_refusal = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status)
            || status == StatusCode::BAD_REQUEST
                && String::from_utf8_lossy(&body).contains("API key");
        if is_refusal {
            let said = message(&body);
            return Ok(ModelList::Refused { status, said });
        }
        let models = names(&body).filter(|_| status.is_success());
        Ok(models.map_or(ModelList::Missing(status), ModelList::Listed))
    }

    fn with_key(&self, request: RequestBuilder) -> RequestBuilder {
        let Some(key) = self.key.as_ref().map(Secret::expose) else {
            return request;
        };
        if host(&self.base) != ANTHROPIC {
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
}

/// Returns the address of the list: next to the chat route, whether or not the address contains `/v1`.
pub(super) fn list_url(base: &str) -> String {
    let base = base.trim_end_matches('/');
    let routes = ["/chat/completions", "/messages", "/responses"];
    let above = routes.iter().find_map(|route| base.strip_suffix(route));
    let base = above.unwrap_or(base);
    let has_path = base
        .split_once("://")
        .is_some_and(|(_, rest)| rest.contains('/'));
    let version = if has_path { "" } else { "/v1" };
    format!("{base}{version}/models")
}

fn names(body: &[u8]) -> Option<Vec<String>> {
    let list: Value = serde_json::from_slice(body).ok()?;
    let id = |model: &Value| {
        let id = model["id"].as_str()?;
        // Google writes models/ before each name, and accepts names without it.
        Some(id.strip_prefix("models/").unwrap_or(id).to_owned())
    };
    Some(list["data"].as_array()?.iter().filter_map(id).collect())
}

fn message(body: &[u8]) -> String {
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    // Google puts its error into a list.
    let error = json.get(0).unwrap_or(&json);
    let message = error["error"]["message"].as_str();
    let text = String::from_utf8_lossy(body);
    let message = message
        .or_else(|| error["message"].as_str())
        .unwrap_or(&text);
    let words: Vec<&str> = message.split_whitespace().collect();
    words.join(" ").chars().take(MAX_TOLD).collect()
}

/// Returns whether a list has a model. The model may be named without the date of its release, or without `:latest`.
pub(super) fn lists(listed: &[String], model: &str) -> bool {
    listed.iter().any(|name| {
        let rest = name.strip_prefix(model);
        let is_date = |date: &str| date.len() == 8 && date.bytes().all(|it| it.is_ascii_digit());
        rest.is_some_and(|rest| {
            ["", ":latest"].contains(&rest) || rest.strip_prefix('-').is_some_and(is_date)
        })
    })
}

pub(super) fn missed(model: &str, listed: &[String]) -> String {
    let mut near: Vec<&str> = listed.iter().map(String::as_str).collect();
    near.sort_by_cached_key(|name| (strsim::damerau_levenshtein(name, model), *name));
    near.truncate(MAX_NEAR);
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
            assert_eq!(list_url(base), list);
        }
    }

    #[test]
    fn lists_and_refusals_are_read_as_each_says_them() {
        let list = br#"{"data":[{"id":"models/gemini-2.5-pro"},{"id":"b"},{"name":"c"}]}"#;
        assert_eq!(names(list).unwrap(), ["gemini-2.5-pro", "b"]);
        assert_eq!(names(b"<html>"), None);
        let openai = br#"{"error":{"message":"Incorrect API key\n provided"}}"#;
        assert_eq!(message(openai), "Incorrect API key provided");
        let google = br#"[{"error":{"message":"API key not valid."}}]"#;
        assert_eq!(message(google), "API key not valid.");
        assert_eq!(message(b"no"), "no");
    }

    #[test]
    fn a_model_is_found_by_its_name_with_and_without_a_release() {
        let listed = ["claude-opus-4-1-20250805", "qwen3:latest", "gpt-4o-mini"].map(str::to_owned);
        for (model, is_listed) in [
            ("claude-opus-4-1-20250805", true),
            ("claude-opus-4-1", true),
            ("claude-opus-4", false),
            ("qwen3", true),
            ("qwen", false),
            ("gpt-4o", false),
            ("", false),
        ] {
            assert_eq!(lists(&listed, model), is_listed, "{model}");
        }
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
