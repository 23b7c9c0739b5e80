//! The hub's server, asked.

use std::{path::PathBuf, time::Duration};

use reqwest::{Client, Method, Response, Url, header};
use tokio::time::timeout;

use super::{answer, error::HubError, place::home_dir};

/// Where models are unless `HF_ENDPOINT` says otherwise.
pub(super) const ENDPOINT: &str = "https://huggingface.co";
/// How often an answer may send us elsewhere.
const REDIRECTS: usize = 8;
/// An answer or a body that is silent for so long has broken off.
pub(super) const SILENCE: Duration = Duration::from_secs(30);

/// The hub's server, and who asks it.
#[derive(Clone)]
pub(super) struct Server {
    client: Client,
    /// Without a slash at its end.
    pub(super) endpoint: String,
    pub(super) token: Option<String>,
    /// Named where files may be put by hand.
    cache: PathBuf,
}

// === impl Server ===

impl Server {
    /// `set` are the variables that are not empty.
    pub(super) fn from_env(
        client: Client,
        cache: PathBuf,
        set: &impl Fn(&str) -> Option<String>,
    ) -> Self {
        let kept = || {
            let own = set("HF_TOKEN_PATH").map(PathBuf::from);
            let file = own.or_else(|| Some(home_dir(set)?.join("token")))?;
            std::fs::read_to_string(file).ok()
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

    /// Asks for `url` and wherever it leads; the token goes to the hub alone.
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
            // A length that is said is that of the file itself.
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

/// Where an answer says that the thing is. What a file is stands in the first answer, even where its bytes are
/// elsewhere: HEAD goes on only to another path of the same server, which is a model's new name.
fn next_of(at: &Url, response: &Response, method: &Method) -> Option<Url> {
    let location = answer::text(response.headers(), "location");
    let location = location.filter(|_| response.status().is_redirection())?;
    let is_path = location.starts_with('/') && !location.starts_with("//");
    at.join(&location)
        .ok()
        .filter(|_| is_path || *method != Method::HEAD)
}

/// An error of reqwest with what is behind it: the outermost says only that something was sent.
pub(super) fn reason(error: &reqwest::Error) -> String {
    let mut words = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        words = error.to_string();
        source = error.source();
    }
    words
}
