//! Web pages: any site that the owner opens runs its scripts on this machine, and could speak to a
//! proxy that listens there.
//!
//! A browser says whose page asks (`Origin`), also where the page must not read the answer. Pages of
//! this machine are let in, those of `proxy.allow_origins`, and nobody else's. Clients that are no
//! browsers send no `Origin`, whatever else they borrow from one.
//!
//! A site can also make its own name mean this machine (DNS rebinding). Then its page is of one origin
//! with us, and the browser lets it GET and read without an `Origin`; what it cannot hide is the name,
//! in `Host`. So without a key we answer only to names that no site can have.

use std::net::{IpAddr, SocketAddr};

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header,
    uri::Authority,
};

use crate::{
    config::ConfigError,
    refusal::Refusal,
    relay::{Body, full},
};

/// How long a browser may remember what a page is allowed.
const REMEMBERED: &str = "600";
/// A page of the internet that asks for a machine of the private network says so, and wants to be told
/// that it may: <https://wicg.github.io/private-network-access/>.
const PRIVATE_NETWORK_ASKED: HeaderName =
    HeaderName::from_static("access-control-request-private-network");
const PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-allow-private-network");

/// Names that are nobody's on the internet: RFC 6761, 6762 and 8375, and what ICANN set aside.
const PRIVATE_NAMES: [&str; 5] = [".localhost", ".local", ".internal", ".home.arpa", ".test"];

/// Whose pages may speak to the proxy.
#[derive(Debug)]
pub(crate) struct Origins {
    allowed: Vec<HeaderValue>,
}

/// A page that may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page(HeaderValue);

// === impl Origins ===

impl Origins {
    /// Checks `proxy.allow_origins`.
    pub(crate) fn new(allowed: &[String]) -> Result<Self, ConfigError> {
        let read = |given: &String| {
            let origin = given.trim_end_matches('/').to_ascii_lowercase();
            let is_origin = origin
                .split_once("://")
                .is_some_and(|(scheme, host)| !scheme.is_empty() && is_host(host));
            let value = HeaderValue::try_from(origin).ok().filter(|_| is_origin);
            value.ok_or_else(|| ConfigError::Origin {
                given: given.clone(),
            })
        };
        let allowed = allowed.iter().map(read).collect::<Result<_, _>>()?;
        Ok(Self { allowed })
    }

    /// Refuses what asks for us by a name that a site of the internet may have.
    pub(crate) fn check_name<B>(&self, request: &Request<B>) -> Result<(), Refusal> {
        let given = request.headers().get(header::HOST);
        let named = request.uri().authority();
        if named.is_none() && given.is_some_and(has_address) {
            return Ok(());
        }
        let given = given.and_then(|it| Authority::try_from(it.as_bytes()).ok());
        // HTTP/2 has it there, as has a request for a whole address.
        let Some(given) = named.cloned().or(given) else {
            return Ok(());
        };
        let host = given.host().trim_end_matches('.').to_ascii_lowercase();
        let is_address = address(&host).is_some();
        let is_private = PRIVATE_NAMES.iter().any(|it| host.ends_with(it));
        let is_named = |origin: &HeaderValue| host_of(origin).is_some_and(|it| it == host);
        if is_address || !host.contains('.') || is_private || self.allowed.iter().any(is_named) {
            return Ok(());
        }
        Err(Refusal::Host { host })
    }

    /// The page that asks; `None` where no page does.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> Result<Option<Page>, Refusal> {
        let Some(origin) = headers.get(header::ORIGIN) else {
            return Ok(None);
        };
        let is_allowed = |allowed: &HeaderValue| {
            let (allowed, origin) = (allowed.as_bytes(), origin.as_bytes());
            allowed.eq_ignore_ascii_case(origin)
        };
        if is_of_this_machine(origin) || self.allowed.iter().any(is_allowed) {
            return Ok(Some(Page(origin.clone())));
        }
        Err(Refusal::Origin {
            origin: String::from_utf8_lossy(origin.as_bytes()).into_owned(),
        })
    }
}

fn is_host(host: &str) -> bool {
    !host.is_empty() && !host.contains(['/', '@', '?', '#']) && !host.contains(char::is_whitespace)
}

fn is_of_this_machine(origin: &HeaderValue) -> bool {
    let Some(host) = host_of(origin) else {
        return false;
    };
    let is_local = address(&host).is_some_and(|it| it.is_loopback());
    is_local || host == "localhost" || host.ends_with(".localhost")
}

fn host_of(origin: &HeaderValue) -> Option<String> {
    let uri: Uri = origin.to_str().ok()?.parse().ok()?;
    Some(uri.host()?.to_ascii_lowercase())
}

/// Nearly always it is: an address and a port, which need not be taken apart.
fn has_address(host: &HeaderValue) -> bool {
    let host = host.to_str().ok();
    host.is_some_and(|host| host.parse::<SocketAddr>().is_ok())
}

fn address(host: &str) -> Option<IpAddr> {
    host.trim_matches(['[', ']']).parse().ok()
}

// === impl Page ===

impl Page {
    /// The answer to a browser that asks whether it may ask; `None` where that is not the question.
    pub(crate) fn preflight<B>(&self, request: &Request<B>) -> Option<Response<Body>> {
        let asked = request.headers();
        let method = asked.get(header::ACCESS_CONTROL_REQUEST_METHOD)?;
        if *request.method() != Method::OPTIONS {
            return None;
        }
        let mut response = Response::new(full(bytes::Bytes::new()));
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, method.clone());
        if let Some(names) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
        }
        if asked.contains_key(PRIVATE_NETWORK_ASKED) {
            headers.insert(PRIVATE_NETWORK, HeaderValue::from_static("true"));
        }
        let remembered = HeaderValue::from_static(REMEMBERED);
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, remembered);
        self.let_read(headers);
        Some(response)
    }

    /// Lets the page read an answer. What the upstream says of pages is said of its own address.
    pub(crate) fn let_read(&self, headers: &mut HeaderMap) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, self.0.clone());
        let all = HeaderValue::from_static("*");
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, all);
        headers.append(header::VARY, HeaderValue::from_static("origin"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(origin: &'static str) -> bool {
        let origins = Origins::new(&["https://Ui.example/".to_owned()]).unwrap();
        let headers = [(header::ORIGIN, HeaderValue::from_static(origin))];
        origins.admit(&HeaderMap::from_iter(headers)).is_ok()
    }

    #[test]
    fn pages_of_this_machine_and_those_named_may_speak() {
        for origin in [
            "http://localhost:3000",
            "http://127.0.0.1",
            "http://[::1]:30000",
            "https://app.localhost",
            "tauri://localhost",
            "https://ui.example",
        ] {
            assert!(admitted(origin), "{origin}");
        }
        for origin in [
            "https://evil.example",
            "https://ui.example.evil.example",
            "http://ui.example",
            "http://localhost.evil.example",
            "http://127.0.0.1.evil.example",
            "null",
            "",
            "chrome-extension://abc",
        ] {
            assert!(!admitted(origin), "{origin}");
        }
        assert_eq!(
            Origins::new(&[]).unwrap().admit(&HeaderMap::new()).unwrap(),
            None
        );
    }

    #[test]
    fn what_is_no_origin_is_refused_in_words() {
        for bad in ["*", "ui.example", "https://", "https://a/b", "null"] {
            assert!(Origins::new(&[bad.to_owned()]).is_err(), "{bad}");
        }
        let refused = Origins::new(&["ui.example".to_owned()]).unwrap_err();
        insta::assert_snapshot!(refused, @r#"proxy.allow_origins: "ui.example" is no origin: it must be as in https://chat.example or http://host:8080"#);
    }
}
