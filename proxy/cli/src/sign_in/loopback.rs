//! The port of this machine to which the provider sends the browser, with a code, when the person has signed in.

use std::time::Duration;

use anyhow::{Context as _, bail};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use metaclaw_llm::bounded_body;
use reqwest::Url;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};

const SIGN_IN: Duration = Duration::from_secs(10 * 60);
const REQUEST: Duration = Duration::from_secs(10);
/// The longest head of a request that is read, in bytes.
const MAX_REQUEST: usize = 16 << 10;
/// The most connections that are read side by side. Further ones wait in the system's queue.
const MAX_CONNECTIONS: usize = 32;

const DONE: &str = "You are signed in. You can close this page.";
const FAILED: &str = "The sign-in failed. The terminal says why.";
const OTHER: &str = "This is no page of the sign-in.";
const MAX_ANSWER: usize = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Redirect {
    listener: TcpListener,
    pub(crate) port: u16,
    /// A random text that only the provider gets. A request without it is not the provider's answer.
    pub(crate) state: String,
}

enum ProviderAnswer {
    Code(String),
    Refusal(String),
    /// Another request, as for the icon of the page.
    Other,
}

// === impl Redirect ===

impl Redirect {
    /// Listens on a port of this machine; 0 takes a free one.
    pub(crate) async fn listen(port: u16) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await;
        let listener = listener.with_context(|| {
            format!(
                "cannot listen on port {port} of this machine: name another one with `--port N`"
            )
        })?;
        let port = listener.local_addr()?.port();
        Ok(Self {
            listener,
            port,
            state: format!("{:032x}", rand::random::<u128>()),
        })
    }

    /// Waits for the browser, and returns the provider's code.
    ///
    /// # Errors
    /// If the person refused, or nobody signed in for ten minutes.
    pub(crate) async fn code(&self) -> anyhow::Result<String> {
        let coming = timeout(SIGN_IN, async {
            // Side by side, because a browser also opens connections on which it sends nothing.
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = self.listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                        let (stream, _) = accepted?;
                        connections.spawn(reply(stream, self.state.clone()));
                    }
                    Some(replied) = connections.join_next() => {
                        if let Some(answer) = replied? {
                            return answer;
                        }
                    }
                }
            }
        });
        let minutes = SIGN_IN.as_secs() / 60;
        coming
            .await
            .with_context(|| format!("nobody signed in within {minutes} minutes"))?
    }
}

/// Reads one request and replies to it. Returns `None` if it is not the provider's answer.
async fn reply(mut stream: TcpStream, state: String) -> Option<anyhow::Result<String>> {
    let request = timeout(REQUEST, line(&mut stream)).await.ok()??;
    let (status, text, answer) = match read(&request, &state) {
        ProviderAnswer::Code(code) => ("200 OK", DONE, Some(Ok(code))),
        ProviderAnswer::Refusal(why) => {
            let refused = anyhow::anyhow!("the provider did not sign you in: {why}");
            ("200 OK", FAILED, Some(Err(refused)))
        }
        ProviderAnswer::Other => ("404 Not Found", OTHER, None),
    };
    let reply = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{text}",
        text.len()
    );
    // The code counts, whether or not the browser shows a page.
    let _ = stream.write_all(reply.as_bytes()).await;
    answer
}

/// Reads the first line of a request: `GET /STATE?code=.. HTTP/1.1`, or the state as a parameter.
fn read(line: &str, state: &str) -> ProviderAnswer {
    let target = line
        .strip_prefix("GET ")
        .and_then(|rest| rest.split(' ').next());
    let url = target.and_then(|target| Url::parse(&format!("http://localhost{target}")).ok());
    let Some(url) = url else {
        return ProviderAnswer::Other;
    };
    let value = |name: &str| {
        let mut pairs = url.query_pairs();
        let found = pairs.find(|(given, _)| given == name);
        found.map(|(_, value)| value.into_owned())
    };
    let is_ours = url.path().trim_matches('/') == state || value("state").as_deref() == Some(state);
    match (is_ours, value("code"), value("error")) {
        (true, Some(code), _) if !code.is_empty() => ProviderAnswer::Code(code),
        (true, _, Some(why)) => ProviderAnswer::Refusal(why),
        _ => ProviderAnswer::Other,
    }
}

/// Reads the first line of a request, and the rest of its head, so that the answer is not lost.
async fn line(stream: &mut TcpStream) -> Option<String> {
    let mut read = Vec::new();
    while !read.windows(4).any(|part| part == b"\r\n\r\n") {
        if read.len() > MAX_REQUEST || stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    }
    let text = String::from_utf8_lossy(&read);
    text.lines().next().map(str::to_owned)
}

/// Sends a request, and reads the answer as JSON. The value is `null` if the answer is no JSON.
///
/// # Errors
/// If the provider refuses, with its own words. Also if it cannot be reached, or its answer is too long or too late.
pub(crate) async fn answered(request: reqwest::RequestBuilder) -> anyhow::Result<Value> {
    let told = |error: reqwest::Error| anyhow::Error::from(error.without_url());
    let answer = request.timeout(TIMEOUT).send().await.map_err(told)?;
    let status = answer.status();
    let body = bounded_body(answer, MAX_ANSWER).await.map_err(told)?;
    let too_long = || format!("the answer has more than {MAX_ANSWER} bytes, which is the limit");
    let body = body.with_context(too_long)?;
    let value: Value = serde_json::from_slice(&body).unwrap_or_default();
    if !status.is_success() {
        let why = ["error_description", "error"]
            .iter()
            .find_map(|one| value[*one].as_str());
        let nested = value["error"]["message"].as_str();
        bail!(
            "the answer is {status}: {}",
            why.or(nested).unwrap_or("no reason is given")
        );
    }
    Ok(value)
}

/// The secret of one sign-in, and its hash, which the provider gets first. It has no `Debug`, so that no log shows it.
pub(crate) struct Pkce {
    pub(crate) verifier: String,
    pub(crate) challenge: String,
}

// === impl Pkce ===

impl Pkce {
    pub(crate) fn new() -> Self {
        Self::of(BASE64_URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>()))
    }

    fn of(verifier: String) -> Self {
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()));
        Self {
            verifier,
            challenge,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn asked(redirect: &Redirect, target: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", redirect.port))
            .await
            .unwrap();
        let request = format!("GET {target} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        reply
    }

    #[tokio::test]
    async fn only_the_providers_answer_ends_a_sign_in() {
        let redirect = Redirect::listen(0).await.unwrap();
        let state = redirect.state.clone();
        let browser = async {
            let icon = asked(&redirect, "/favicon.ico").await;
            let forged = asked(&redirect, "/?code=stolen&state=guessed").await;
            let real = asked(&redirect, &format!("/{state}?code=a%2Fb")).await;
            (icon, forged, real)
        };
        let (code, (icon, forged, real)) = tokio::join!(redirect.code(), browser);
        assert_eq!(code.unwrap(), "a/b");
        assert!(icon.starts_with("HTTP/1.1 404"), "{icon}");
        assert!(forged.starts_with("HTTP/1.1 404"), "{forged}");
        assert!(real.ends_with(DONE), "{real}");
    }

    #[tokio::test]
    async fn a_connection_without_a_request_delays_no_sign_in() {
        let redirect = Redirect::listen(0).await.unwrap();
        let _silent = TcpStream::connect(("127.0.0.1", redirect.port))
            .await
            .unwrap();
        let target = format!("/{}?code=c", redirect.state);
        let both = async { tokio::join!(redirect.code(), asked(&redirect, &target)) };
        let (code, page) = timeout(REQUEST / 2, both).await.unwrap();
        assert_eq!(code.unwrap(), "c");
        assert!(page.ends_with(DONE), "{page}");
    }

    #[tokio::test]
    async fn a_refusal_is_told() {
        let redirect = Redirect::listen(0).await.unwrap();
        let target = format!("/?error=access_denied&state={}", redirect.state);
        let (code, page) = tokio::join!(redirect.code(), asked(&redirect, &target));
        assert!(code.unwrap_err().to_string().ends_with("access_denied"));
        assert!(page.ends_with(FAILED), "{page}");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_waited_for_without_end() {
        let redirect = Redirect::listen(0).await.unwrap();
        let why = redirect.code().await.unwrap_err().to_string();
        assert_eq!(why, "nobody signed in within 10 minutes");
    }
}

#[cfg(test)]
mod answer_tests {
    use metaclaw_test_kit::{Reply, Server};

    use super::*;

    #[tokio::test]
    async fn an_answer_is_read_up_to_the_limit() {
        let server =
            Server::scripted([3, MAX_ANSWER + 1].map(|length| Reply::bytes("1".repeat(length))));
        let client = metaclaw_llm::loopback_client().unwrap();
        let fits = answered(client.get(server.url())).await;
        assert_eq!(fits.unwrap(), 111);
        let why = answered(client.get(server.url())).await;
        assert_eq!(
            why.unwrap_err().to_string(),
            "the answer has more than 1048576 bytes, which is the limit"
        );
    }
}

#[cfg(test)]
mod pkce_tests {
    use super::*;

    /// RFC 7636, appendix B.
    #[test]
    fn the_challenge_is_that_of_the_standard() {
        let pkce = Pkce::of("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned());
        let challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
        assert_eq!(pkce.challenge, challenge);
        let (one, other) = (Pkce::new(), Pkce::new());
        assert_ne!(one.verifier, other.verifier);
        assert_eq!(one.verifier.len(), 43);
    }
}
