//! Checks the origin of requests: the scripts of any site that the owner opens run on this machine, and could send
//! requests to a proxy that listens there.
//!
//! A browser names the page that sends a request (`Origin`), even if the page may not read the answer. Pages of this
//! machine are accepted, those of `proxy.allow_origins`, any page that sends a key of this proxy, and no others.
//! Clients that are not browsers send no `Origin`, even if they imitate one otherwise.
//!
//! Desktop programs whose window is a web page may have the origin `null`, like any page in a sandbox. Before a browser
//! sends a page's key, it asks for permission (preflight). If a key is needed, any page gets this permission, and
//! nothing else.
//!
//! A site can also make its own host name resolve to this machine (DNS rebinding). Then its page has the same origin as
//! the proxy, and the browser lets it send GET requests and read the answers without an `Origin`. It cannot hide its
//! name in `Host`. Therefore, if no key is needed and the proxy can be reached only from this machine, it answers only
//! IP addresses, `localhost` and the configured names.
//!
//! A page can also include what it cannot read: a request for an image at our address has no `Origin`, and would reach
//! an upstream with the owner's key. Browsers mark such a request as one of another site.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
    header, uri::Authority,
};
use tower::service_fn;

use crate::{
    auth::{Authenticator, caller::KEY_HEADERS},
    body::{Body, full},
    config::ConfigError,
    handler::{Answer, Handler},
};

/// The origin of pages that have none: in a sandbox, from a file, in some desktop programs.
const NULL: &str = "null";
/// The origin of a page from a file in Electron.
const FILE: &str = "file://";
/// How long a browser may cache a permission.
const REMEMBERED: &str = "600";
/// A page on the internet that requests a machine of the private network sends this header, and needs permission:
/// <https://wicg.github.io/private-network-access/>.
const PRIVATE_NETWORK_ASKED: HeaderName =
    HeaderName::from_static("access-control-request-private-network");
const PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-allow-private-network");
/// The header with which a browser says whose page requests something: <https://www.w3.org/TR/fetch-metadata/>.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

#[derive(Debug, thiserror::Error)]
pub(crate) enum OriginError {
    #[error(
        "web pages of {origin:?} may not speak to this proxy: if they should, add it to proxy.allow_origins (in quotes), or let them show a key of this proxy{}",
        if *has_keys { "" } else { " (none is set: proxy.api_key)" }
    )]
    Foreign { origin: String, has_keys: bool },
    #[error("a web page of another site asks for this: it may not")]
    CrossSite,
    #[error(
        "this proxy was asked for as {host:?}, which may be any site's name, and no key is set: ask for it as 127.0.0.1, set proxy.api_key, or add http://{host} to proxy.allow_origins"
    )]
    Host { host: String },
    #[error("host: must be given once, and be a name or an address")]
    BadHost,
    #[error("origin: must be given once")]
    ManyOrigins,
}

/// Refuses other sites' pages, and lets accepted pages read the answer, including errors.
#[derive(Debug, Clone)]
pub(crate) struct OriginLayer {
    pub origins: Arc<Origins>,
    pub authenticator: Arc<Authenticator>,
}

#[derive(Debug)]
pub(crate) struct Origins {
    allowed: Vec<HeaderValue>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keys {
    None,
    /// It has no known key.
    Missing,
    Shown,
    /// It asks for permission to send one.
    Asked,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Page(HeaderValue);

// === impl Origins ===

impl Origins {
    pub(crate) fn new(allowed: &[String]) -> Result<Self, ConfigError> {
        let read = |given: &String| {
            let origin = given.to_ascii_lowercase();
            let origin = match origin.trim_end_matches('/') {
                "file:" => FILE.to_owned(),
                origin => origin.to_owned(),
            };
            let has_host = origin
                .split_once("://")
                .is_some_and(|(scheme, host)| !scheme.is_empty() && is_host(host));
            let is_origin = has_host || [NULL, FILE].contains(&origin.as_str());
            let value = HeaderValue::try_from(origin).ok().filter(|_| is_origin);
            value.ok_or_else(|| ConfigError::Origin {
                given: given.clone(),
            })
        };
        let allowed = allowed.iter().map(read).collect::<Result<_, _>>()?;
        Ok(Self { allowed })
    }

    /// Refuses a request whose `Host` may be the name of a site on the internet. `is_open` says that no key is needed.
    fn check_host<B>(&self, request: &Request<B>, is_open: bool) -> Result<(), OriginError> {
        let mut given = request.headers().get_all(header::HOST).iter();
        let (first, second) = (given.next(), given.next());
        if second.is_some() {
            return Err(OriginError::BadHost);
        }
        // A request for an absolute address has the host's name there.
        let named = request.uri().authority();
        if named.is_none() && first.is_some_and(has_address) {
            return Ok(());
        }
        let authority = match (named, first) {
            (Some(named), _) => named.clone(),
            (None, Some(given)) => {
                Authority::try_from(given.as_bytes()).map_err(|_| OriginError::BadHost)?
            }
            (None, None) if request.version() < Version::HTTP_11 => return Ok(()),
            (None, None) => return Err(OriginError::BadHost),
        };
        let host = authority.host().trim_end_matches('.').to_ascii_lowercase();
        if authority.as_str().contains('@') || host.is_empty() {
            return Err(OriginError::BadHost);
        }
        let is_named = |origin: &HeaderValue| host_of(origin).is_some_and(|named| named == host);
        if is_open && !is_local_name(&host) && !self.allowed.iter().any(is_named) {
            return Err(OriginError::Host { host });
        }
        Ok(())
    }

    /// Returns the page that sends the request, or `None` if no page does. `keys` says which key it sends, or may be
    /// about to send.
    fn page(&self, headers: &HeaderMap, keys: Keys) -> Result<Option<Page>, OriginError> {
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let (Some(origin), second) = (origins.next(), origins.next()) else {
            let mut sites = headers.get_all(FETCH_SITE).iter();
            if keys != Keys::Shown && sites.any(|site| site == "cross-site") {
                return Err(OriginError::CrossSite);
            }
            return Ok(None);
        };
        if second.is_some() {
            return Err(OriginError::ManyOrigins);
        }
        let is_allowed = |allowed: &HeaderValue| {
            let (allowed, origin) = (allowed.as_bytes(), origin.as_bytes());
            allowed.eq_ignore_ascii_case(origin)
        };
        let is_named = is_of_this_machine(origin) || self.allowed.iter().any(is_allowed);
        if is_named || matches!(keys, Keys::Shown | Keys::Asked) {
            return Ok(Some(Page(origin.clone())));
        }
        Err(OriginError::Foreign {
            origin: String::from_utf8_lossy(origin.as_bytes()).into_owned(),
            has_keys: keys != Keys::None,
        })
    }
}

fn asks_to_show_a_key<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    let names = headers.get_all(header::ACCESS_CONTROL_REQUEST_HEADERS);
    let mut names = names
        .iter()
        .filter_map(|names| names.to_str().ok())
        .flat_map(|names| names.split(','));
    let is_key = |name: &str| KEY_HEADERS.iter().any(|key| key.as_str() == name);
    *request.method() == Method::OPTIONS
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
        && names.any(|name| is_key(&name.trim().to_ascii_lowercase()))
}

fn is_host(host: &str) -> bool {
    !host.is_empty() && !host.contains(['/', '@', '?', '#']) && !host.contains(char::is_whitespace)
}

fn is_of_this_machine(origin: &HeaderValue) -> bool {
    let Some(host) = host_of(origin) else {
        return false;
    };
    match address(&host) {
        Some(address) => address.is_loopback(),
        None => is_local_name(&host),
    }
}

/// Returns whether a site cannot have this name: an address, or this machine's own name (RFC 6761 6.3).
fn is_local_name(host: &str) -> bool {
    address(host).is_some() || host == "localhost" || host.ends_with(".localhost")
}

fn host_of(origin: &HeaderValue) -> Option<String> {
    let uri: Uri = origin.to_str().ok()?.parse().ok()?;
    Some(uri.host()?.to_ascii_lowercase())
}

/// In almost all cases it is an address and a port, which need not be parsed.
fn has_address(host: &HeaderValue) -> bool {
    let host = host.to_str().ok();
    host.is_some_and(|host| host.parse::<SocketAddr>().is_ok())
}

fn address(host: &str) -> Option<IpAddr> {
    host.trim_matches(['[', ']']).parse().ok()
}

// === impl OriginLayer ===

impl OriginLayer {
    fn check<B>(&self, request: &Request<B>) -> Result<Option<Page>, OriginError> {
        let is_open = !self.authenticator.requires_key();
        self.origins.check_host(request, is_open)?;
        self.origins.page(request.headers(), self.keys(request))
    }

    fn keys<B>(&self, request: &Request<B>) -> Keys {
        let headers = request.headers();
        if !self.authenticator.requires_key() {
            Keys::None
        } else if self.authenticator.authenticate(headers).is_ok() {
            Keys::Shown
        } else if asks_to_show_a_key(request) {
            Keys::Asked
        } else {
            Keys::Missing
        }
    }

    pub(crate) fn around<B>(
        self,
        mut inner: impl Handler<B, Infallible>,
    ) -> impl Handler<B, OriginError> {
        service_fn(move |request: Request<B>| -> Answer<OriginError> {
            let page = match self.check(&request) {
                Ok(page) => page,
                Err(error) => return Box::pin(async { Err(error) }),
            };
            if let Some(answer) = page.as_ref().and_then(|page| page.preflight(&request)) {
                return Box::pin(async { Ok(answer) });
            }
            let answer = inner.call(request);
            Box::pin(async move {
                let Ok(mut answer) = answer.await;
                if let Some(page) = page {
                    page.let_read(answer.headers_mut());
                }
                Ok(answer)
            })
        })
    }
}

// === impl Page ===

impl Page {
    fn preflight<B>(&self, request: &Request<B>) -> Option<Response<Body>> {
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

    /// Lets the page read an answer. CORS headers of the upstream concern its own address, so they are replaced.
    fn let_read(&self, headers: &mut HeaderMap) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, self.0.clone());
        let all = HeaderValue::from_static("*");
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, all);
        headers.append(header::VARY, HeaderValue::from_static("origin"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(allowed: &[&str], name: HeaderName, value: &'static str, keys: Keys) -> bool {
        let allowed: Vec<String> = allowed.iter().map(|origin| (*origin).to_owned()).collect();
        let headers = HeaderMap::from_iter([(name, HeaderValue::from_static(value))]);
        let origins = Origins::new(&allowed).unwrap();
        origins.page(&headers, keys).is_ok()
    }

    #[test]
    fn pages_of_this_machine_and_those_named_may_speak() {
        const NAMED: [&str; 1] = ["https://Ui.example/"];
        const PROGRAMS: [&str; 4] = [
            "null",
            "file://",
            "app://obsidian.md",
            "vscode-webview://1x",
        ];
        for (allowed, origin, may_speak) in [
            (&NAMED[..], "http://localhost:3000", true),
            (&NAMED, "http://127.0.0.1", true),
            (&NAMED, "http://[::1]:30000", true),
            (&NAMED, "https://app.localhost", true),
            (&NAMED, "tauri://localhost", true),
            (&NAMED, "https://ui.example", true),
            (&NAMED, "https://evil.example", false),
            (&NAMED, "https://ui.example.evil.example", false),
            (&NAMED, "http://ui.example", false),
            (&NAMED, "http://localhost.evil.example", false),
            (&NAMED, "http://127.0.0.1.evil.example", false),
            (&NAMED, "null", false),
            (&NAMED, "", false),
            (&NAMED, "chrome-extension://abc", false),
            (&PROGRAMS, "null", true),
            (&PROGRAMS, "NULL", true),
            (&PROGRAMS, "file://", true),
            (&PROGRAMS, "app://obsidian.md", true),
            (&PROGRAMS, "vscode-webview://1x", true),
        ] {
            let admitted = admits(allowed, header::ORIGIN, origin, Keys::None);
            assert_eq!(admitted, may_speak, "{origin}");
        }
        let no_page = Origins::new(&[])
            .unwrap()
            .page(&HeaderMap::new(), Keys::None);
        assert_eq!(no_page.unwrap(), None);
    }

    #[test]
    fn any_page_that_shows_a_key_may_speak() {
        let all = [Keys::None, Keys::Missing, Keys::Shown, Keys::Asked];
        for origin in ["null", "https://ui.example", "app://obsidian.md", "file://"] {
            let may = all.map(|keys| admits(&[], header::ORIGIN, origin, keys));
            assert_eq!(may, [false, false, true, true], "{origin}");
        }
        let may = all.map(|keys| admits(&[], FETCH_SITE, "cross-site", keys));
        assert_eq!(may, [false, false, true, false]);
    }

    #[test]
    fn a_picture_on_a_page_of_another_site_is_not_asked_for() {
        for (site, is_let_in) in [("cross-site", false), ("same-site", true), ("none", true)] {
            assert_eq!(
                admits(&[], FETCH_SITE, site, Keys::None),
                is_let_in,
                "{site}"
            );
        }
    }

    #[test]
    fn an_origin_that_is_given_twice_is_refused() {
        let origins = Origins::new(&["https://ui.example".to_owned()]).unwrap();
        let page = |name: &HeaderName, values: &[&'static str], keys| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(name, HeaderValue::from_static(value));
            }
            origins.page(&headers, keys)
        };
        let local = "http://localhost";
        for values in [
            [local, "https://evil.example"],
            ["https://evil.example", local],
            [local, local],
            ["https://ui.example", "null"],
        ] {
            for keys in [Keys::None, Keys::Missing, Keys::Shown, Keys::Asked] {
                let refused = page(&header::ORIGIN, &values, keys).unwrap_err();
                assert!(matches!(refused, OriginError::ManyOrigins), "{values:?}");
            }
        }
        for values in [["none", "cross-site"], ["cross-site", "same-origin"]] {
            let refused = page(&FETCH_SITE, &values, Keys::None).unwrap_err();
            assert!(matches!(refused, OriginError::CrossSite), "{values:?}");
        }
    }

    #[test]
    fn without_a_key_only_names_that_no_site_can_have_are_answered_to() {
        let origins = Origins::new(&["http://metaclaw:30000".to_owned()]).unwrap();
        let checked = |host: &[&str], is_open| {
            let mut request = Request::get("/v1/models");
            for host in host {
                request = request.header(header::HOST, *host);
            }
            origins.check_host(&request.body(()).unwrap(), is_open)
        };
        let local = "127.0.0.1:1 [::1]:1 10.0.0.7 localhost. a.localhost:1 METACLAW";
        for host in local.split(' ') {
            assert!(checked(&[host], true).is_ok(), "{host}");
        }
        let others = "evil.example printer.local host.docker.internal:1 nas 1.2.3.4.evil";
        for host in others.split(' ') {
            let refused = checked(&[host], true).unwrap_err();
            assert!(matches!(refused, OriginError::Host { .. }), "{host}");
            assert!(checked(&[host], false).is_ok(), "{host}");
        }
        // A name that is unreadable or ambiguous is refused, with or without a key.
        for host in [
            &["evil.com:80:80"][..],
            &["evil.com#.local"],
            &["a b"],
            &[""],
            &["evil.com@127.0.0.1"],
            &["127.0.0.1", "127.0.0.1"],
            &[],
        ] {
            let refused = checked(host, false);
            assert!(matches!(refused, Err(OriginError::BadHost)), "{host:?}");
        }
    }

    #[test]
    fn what_is_no_origin_is_refused_in_words() {
        for bad in ["*", "ui.example", "https://", "https://a/b", "nul", ""] {
            assert!(Origins::new(&[bad.to_owned()]).is_err(), "{bad}");
        }
        let refused = Origins::new(&["ui.example".to_owned()]).unwrap_err();
        insta::assert_snapshot!(refused, @r#"proxy.allow_origins: "ui.example" is no origin: it must be as in https://chat.example or http://host:8080, or "null" or file://"#);
    }
}
