//! Requests to the hub's server, and what its answers say of a file.

use std::{path::PathBuf, time::Duration};

use reqwest::{
    Client, Method, Response, StatusCode, Url,
    header::{self, HeaderMap},
};
use tokio::time::timeout;

use super::{
    error::HubError,
    place::{HubName, home_dir, is_part},
};
use crate::regular;

/// The hub's address unless `HF_ENDPOINT` names another.
pub(super) const ENDPOINT: &str = "https://huggingface.co";
const REDIRECTS: usize = 8;
/// If an answer or a body is silent for this long, it counts as broken off.
pub(super) const SILENCE: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub(super) struct HubServer {
    client: Client,
    /// Its address without a slash at the end.
    pub(super) endpoint: String,
    pub(super) token: Option<String>,
    /// The folder that errors name as the place for files that are added by hand.
    cache: PathBuf,
}

// === impl HubServer ===

impl HubServer {
    /// `set` returns variables that are not empty.
    pub(super) fn from_env(
        client: Client,
        cache: PathBuf,
        set: &impl Fn(&str) -> Option<String>,
    ) -> Self {
        let kept = || {
            let own = set("HF_TOKEN_PATH").map(PathBuf::from);
            let file = own.or_else(|| Some(home_dir(set)?.join("token")))?;
            regular(&file).and_then(std::fs::read_to_string).ok()
        };
        let token = set("HF_TOKEN").or_else(kept).unwrap_or_default();
        let endpoint = set("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
        Self {
            client,
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token: Some(token.trim().to_owned()).filter(|token| !token.is_empty()),
            cache,
        }
    }

    /// Requests `url` and follows redirections. The token is sent only to the hub.
    pub(super) async fn ask(
        &self,
        method: Method,
        url: &str,
        from: u64,
    ) -> Result<Response, HubError> {
        let unreachable = |why: String| HubError::Unreachable {
            url: url.to_owned(),
            why,
            cache: self.cache.clone(),
        };
        let mut at = Url::parse(url).map_err(|error| unreachable(error.to_string()))?;
        let home = at.origin();
        for _ in 0..REDIRECTS {
            // Without compression, a given length is that of the file itself.
            let plain = self.client.request(method.clone(), at.clone());
            let mut request = plain.header(header::ACCEPT_ENCODING, "identity");
            if from > 0 {
                request = request.header(header::RANGE, format!("bytes={from}-"));
            }
            if let Some(token) = self.token.as_ref().filter(|_| at.origin() == home) {
                request = request.bearer_auth(token);
            }
            let silent = |_| unreachable(format!("no answer in {SILENCE:?}"));
            let sent = timeout(SILENCE, request.send()).await.map_err(silent)?;
            let response = sent.map_err(|error| unreachable(reason(&error)))?;
            match next_of(&at, &response, &method) {
                Some(next) => at = next,
                None => return Ok(response),
            }
        }
        Err(HubError::unreadable(
            url,
            format!("more than {REDIRECTS} redirections"),
        ))
    }
}

/// Returns where an answer redirects to. The first answer describes the file, even if its bytes are at another server.
/// So HEAD follows only a redirection to another path of the same server, which is a model's new name.
fn next_of(at: &Url, response: &Response, method: &Method) -> Option<Url> {
    let location = text(response.headers(), "location");
    let location = location.filter(|_| response.status().is_redirection())?;
    let is_path = location.starts_with('/') && !location.starts_with("//");
    at.join(&location)
        .ok()
        .filter(|_| is_path || *method != Method::HEAD)
}

/// Formats the last cause of an error of reqwest, because the outermost one only says that a request failed.
pub(super) fn reason(error: &reqwest::Error) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileMeta {
    pub(super) commit: String,
    /// The hash of its content: SHA-256 of a large file, git's hash of a small one.
    pub(super) etag: String,
    pub(super) size: Option<u64>,
}

/// Reads the headers of an answer, which is the file or a redirection to it.
///
/// # Errors
/// Returns [`HubError::Unreadable`] if a header is missing that a hub sends.
pub(super) fn meta(url: &str, response: &Response) -> Result<FileMeta, HubError> {
    let headers = response.headers();
    let unreadable = |why: &str| HubError::unreadable(url, why);
    let either = |one, other| text(headers, one).or_else(|| text(headers, other));
    let commit = text(headers, "x-repo-commit").filter(|commit| is_part(commit));
    let etag = either("x-linked-etag", "etag").unwrap_or_default();
    let etag = etag.trim_start_matches("W/").trim_matches('"');
    // The length of a redirection is not that of the file.
    let size = if response.status().is_redirection() {
        text(headers, "x-linked-size")
    } else {
        either("x-linked-size", "content-length")
    };
    Ok(FileMeta {
        commit: commit.ok_or_else(|| unreadable("no X-Repo-Commit"))?,
        etag: Some(etag.to_owned())
            .filter(|etag| is_part(etag))
            .ok_or_else(|| unreadable("no ETag"))?,
        size: size.and_then(|size| size.parse().ok()),
    })
}

pub(super) fn is_absent(response: &Response) -> bool {
    let code = text(response.headers(), "x-error-code");
    response.status() == StatusCode::NOT_FOUND && code.is_none_or(|code| code == "EntryNotFound")
}

// === impl HubServer ===

impl HubServer {
    pub(super) async fn refusal(&self, model: &HubName, url: &str, response: Response) -> HubError {
        let has_token = self.token.is_some();
        let code = text(response.headers(), "x-error-code");
        let (model, url) = (model.to_string(), url.to_owned());
        let status = response.status().as_u16();
        match (status, code.as_deref()) {
            (401 | 403, Some("GatedRepo")) => HubError::Gated {
                model,
                url,
                status,
                has_token,
            },
            (401 | 403, _) => HubError::Unauthorized {
                model,
                url,
                status,
                has_token,
            },
            (404, _) => HubError::NoModel { model, url },
            _ => {
                let text = response.text().await.unwrap_or_default();
                let line = text.lines().next().unwrap_or("nothing more is said");
                let message = line.chars().take(200).collect();
                HubError::Status {
                    url,
                    status,
                    message,
                }
            }
        }
    }
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.trim().to_owned())
}
