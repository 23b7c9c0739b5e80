//! Requests to the hub's server.

use std::{path::PathBuf, time::Duration};

use reqwest::{Client, Method, Response, Url, header};
use tokio::time::timeout;

use super::{answer, error::HubError, place::home_dir};
use crate::regular;

/// The hub's address unless `HF_ENDPOINT` names another.
pub(super) const ENDPOINT: &str = "https://huggingface.co";
/// The largest number of redirections.
const REDIRECTS: usize = 8;
/// If an answer or a body is silent for this long, it counts as broken off.
pub(super) const SILENCE: Duration = Duration::from_secs(30);

/// The hub's server, and the credentials for it.
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
        let token = set("HF_TOKEN").or_else(kept);
        let token = token.map(|token| token.trim().to_owned());
        let endpoint = set("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
        Self {
            client,
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token: token.filter(|token| !token.is_empty()),
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
        let unreachable = |url: &str, why: String| HubError::Unreachable {
            url: url.to_owned(),
            why,
            cache: self.cache.clone(),
        };
        let mut at = Url::parse(url).map_err(|error| unreachable(url, error.to_string()))?;
        let home = at.origin();
        for _ in 0..REDIRECTS {
            let mut request = self.client.request(method.clone(), at.clone());
            // Without compression, a given length is that of the file itself.
            request = request.header(header::ACCEPT_ENCODING, "identity");
            if from > 0 {
                request = request.header(header::RANGE, format!("bytes={from}-"));
            }
            if let Some(token) = self.token.as_ref().filter(|_| at.origin() == home) {
                request = request.bearer_auth(token);
            }
            let sent = timeout(SILENCE, request.send()).await;
            let sent = sent.map_err(|_| unreachable(url, format!("no answer in {SILENCE:?}")))?;
            let response = sent.map_err(|error| unreachable(url, reason(&error)))?;
            match next_of(&at, &response, &method) {
                Some(next) => at = next,
                None => return Ok(response),
            }
        }
        Err(HubError::Unreadable {
            url: url.to_owned(),
            why: format!("more than {REDIRECTS} redirections"),
        })
    }
}

/// Returns where an answer redirects to. The first answer describes the file, even if its bytes are at another server.
/// So HEAD follows only a redirection to another path of the same server, which is a model's new name.
fn next_of(at: &Url, response: &Response, method: &Method) -> Option<Url> {
    let location = answer::text(response.headers(), "location");
    let location = location.filter(|_| response.status().is_redirection())?;
    let is_path = location.starts_with('/') && !location.starts_with("//");
    at.join(&location)
        .ok()
        .filter(|_| is_path || *method != Method::HEAD)
}

/// Formats an error of reqwest with its causes, because the outermost one only says that a request failed.
pub(super) fn reason(error: &reqwest::Error) -> String {
    let mut words = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        words = error.to_string();
        source = error.source();
    }
    words
}
