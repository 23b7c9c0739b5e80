//! Sends JSON to a configured address, such as a reward function's, in one attempt within a deadline.

use std::time::Duration;

use metaclaw_chat::{Secret, Span};
use reqwest::{
    StatusCode, Url,
    header::{AUTHORIZATION, HeaderValue},
};
use serde_json::Value;
use tokio::time::timeout;

use crate::{client::told, config::ConfigError, http::bounded_body};

const MAX_ANSWER: usize = 4 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// There is no connection, or it broke.
    #[error("{url} cannot be reached: {source}")]
    Unreachable {
        /// The address, without the part after a `?`.
        url: String,
        source: reqwest::Error,
    },
    #[error("{url} did not answer within {} s", .timeout.as_secs_f32())]
    Deadline { url: String, timeout: Duration },
    /// The server answered with an error.
    #[error("{url} answered {status}: {message}")]
    Status {
        url: String,
        status: StatusCode,
        message: String,
    },
    /// The answer cannot be used.
    #[error("{url} answered with {what}")]
    NoText { url: String, what: String },
}

/// Sends JSON to one address.
#[derive(derive_more::Debug)]
#[debug("PostClient({shown:?}, {timeout:?})")]
pub struct PostClient {
    http: reqwest::Client,
    url: Url,
    /// The address as it is shown, because a query may contain a key.
    shown: String,
    key: Option<HeaderValue>,
    timeout: Duration,
}

// === impl PostError ===

impl PostError {
    /// Returns whether the server was reached and refused or failed.
    pub fn was_asked(&self) -> bool {
        match self {
            Self::Status { .. } | Self::NoText { .. } => true,
            Self::Unreachable { .. } | Self::Deadline { .. } => false,
        }
    }
}

// === impl PostClient ===

impl PostClient {
    /// Makes a client for one address. If there is a key, it is sent as a bearer token.
    ///
    /// # Errors
    /// Returns [`ConfigError`] if the address or the key cannot be used.
    pub fn new(
        http: reqwest::Client,
        url: &str,
        key: Option<&Secret>,
        timeout: Span,
    ) -> Result<Self, ConfigError> {
        let refused = |why: String| ConfigError::Url {
            url: url.to_owned(),
            why,
        };
        let parsed: Url = url.parse().map_err(|error| refused(format!("{error}")))?;
        if !matches!(parsed.scheme(), "http" | "https") {
            return Err(refused(format!(
                "{:?} is not http or https",
                parsed.scheme()
            )));
        }
        let show = |key: &Secret| {
            let mut value = HeaderValue::try_from(format!("Bearer {}", key.expose()))
                .map_err(|_| ConfigError::Key { key: key.clone() })?;
            value.set_sensitive(true);
            Ok(value)
        };
        let host = parsed.host_str().unwrap_or_default();
        let port = parsed.port().map(|port| format!(":{port}"));
        let shown = format!(
            "{}://{host}{}{}",
            parsed.scheme(),
            port.unwrap_or_default(),
            parsed.path()
        );
        Ok(Self {
            http,
            shown,
            key: key.map(show).transpose()?,
            timeout: timeout.0,
            url: parsed,
        })
    }

    /// Sends `body` and returns the body of the answer.
    ///
    /// # Errors
    /// Returns a [`PostError`] for any failure.
    ///
    /// # Cancel safety
    /// If the future is dropped, the request is cancelled.
    pub async fn post(&self, body: &Value) -> Result<String, PostError> {
        let asked = timeout(self.timeout, self.try_post(body)).await;
        asked.unwrap_or_else(|_| {
            Err(PostError::Deadline {
                url: self.shown.clone(),
                timeout: self.timeout,
            })
        })
    }

    async fn try_post(&self, body: &Value) -> Result<String, PostError> {
        let unreachable = |source: reqwest::Error| PostError::Unreachable {
            url: self.shown.clone(),
            source: source.without_url(),
        };
        let no_text = |what: String| PostError::NoText {
            url: self.shown.clone(),
            what,
        };
        let mut request = self.http.post(self.url.clone()).json(body);
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, key.clone());
        }
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let bytes = bounded_body(response, MAX_ANSWER).await;
        let bytes = bytes.map_err(unreachable)?;
        let bytes = bytes.ok_or_else(|| no_text(format!("over {MAX_ANSWER} bytes")))?;
        if !status.is_success() {
            return Err(PostError::Status {
                url: self.shown.clone(),
                status,
                message: told(&bytes),
            });
        }
        String::from_utf8(bytes).map_err(|_| no_text("bytes that are no UTF-8".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;
    use crate::loopback_client;

    fn client(url: &str, timeout: Span) -> PostClient {
        let key = Secret::from("k-0123456789".to_owned());
        PostClient::new(loopback_client().unwrap(), url, Some(&key), timeout).unwrap()
    }

    /// Returns the result and the request that the server received. An empty `answer` means that the server does not
    /// answer.
    async fn exchange(answer: &'static str, timeout: Span) -> (Result<String, PostError>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/score?key=hidden", listener.local_addr().unwrap());
        let client = client(&url, timeout);
        let body = json!({"turns": []});
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"]}") {
                let mut bytes = [0; 4_096];
                let n = stream.read(&mut bytes).await.unwrap();
                if n == 0 {
                    assert!(answer.is_empty(), "the request ended early");
                    break;
                }
                asked.extend_from_slice(&bytes[..n]);
            }
            if answer.is_empty() {
                // The server waits until the client closes the connection.
                stream.read_to_end(&mut Vec::new()).await.unwrap();
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8(asked).unwrap().to_lowercase()
        };
        tokio::join!(client.post(&body), serve)
    }

    #[tokio::test]
    async fn a_body_is_posted_with_the_key_and_the_answer_comes_back() {
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
        let (answered, asked) = exchange(answer, Span::secs(30)).await;
        assert_eq!(answered.unwrap(), "{}");
        let is_so = asked.starts_with("post /score?key=hidden http/1.1");
        assert!(is_so, "{asked}");
        let is_so = asked.contains("authorization: bearer k-0123456789");
        assert!(is_so, "{asked}");
    }

    #[tokio::test]
    async fn errors_say_what_happened_and_never_the_query() {
        let answer = "HTTP/1.1 500 no\r\ncontent-length: 15\r\nconnection: close\r\n\r\n{\"error\":\"boom\"}";
        let (answered, _) = exchange(answer, Span::secs(30)).await;
        let error = answered.unwrap_err();
        assert!(error.was_asked());
        let said = error.to_string();
        let is_so = said.contains("answered 500") && !said.contains("hidden");
        assert!(is_so, "{said}");
        let (answered, _) = exchange("", Span(Duration::from_millis(20))).await;
        let error = answered.unwrap_err();
        assert!(!error.was_asked());
        let said = error.to_string();
        assert!(said.contains("did not answer within 0.02 s") && !said.contains("hidden"));
        let nobody = client("http://127.0.0.1:9/score?key=hidden", Span::secs(30));
        let error = nobody.post(&json!({})).await.unwrap_err();
        assert!(matches!(error, PostError::Unreachable { .. }));
        let is_so = !error.was_asked() && !error.to_string().contains("hidden");
        assert!(is_so, "{error}");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let http = loopback_client().unwrap();
        for url in ["", "ftp://h", "score"] {
            let error = PostClient::new(http.clone(), url, None, Span::secs(1)).unwrap_err();
            assert!(matches!(error, ConfigError::Url { .. }), "{url}");
        }
    }
}
