//! The address of an upstream, parsed once.

use std::{fmt::Write as _, net::IpAddr, str::FromStr};

use http::{
    Uri,
    uri::{Authority, Parts, PathAndQuery, Scheme},
};

use crate::config::Provider;

/// Routes that people copy together with an address.
const ROUTES: [&str; 3] = ["/chat/completions", "/messages", "/responses"];
const API_VERSION: &str = "api-version=";

/// Why a text is not a valid address of an upstream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It is not an address.
    #[error(
        "{url:?} is no address: it must be as in https://api.openai.com/v1, without a query or a password"
    )]
    NoAddress {
        /// The given text, without parts that may be secret.
        url: String,
    },
    /// A route of Azure's deployments needs an API version.
    #[error(
        "{url:?} is a deployment, which needs an api_version, as in 2024-10-21; an address that ends in /openai/v1 needs none"
    )]
    NoVersion { url: String },
}

/// `scheme://host[:port][/prefix]` of a chat API. The prefix replaces the `/v1` of our own routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UpstreamAddress {
    scheme: Scheme,
    authority: Authority,
    /// The prefix without a slash at its end.
    prefix: String,
    /// `api-version=…`, which is added to every route.
    query: Option<String>,
    /// Whether the model's name is a part of the route, after the prefix, as for Azure's deployments.
    pub(crate) by_model: bool,
}

// === impl UpstreamAddress ===

impl UpstreamAddress {
    /// Parses an upstream's address as people write it: with or without `/v1`, or with the whole route of its chats, to
    /// which nothing is added.
    pub(crate) fn for_upstream(
        url: &str,
        dialect: Provider,
        api_version: Option<&str>,
    ) -> Result<Self, AddressError> {
        let (base, in_query) = match (url.split_once('?'), dialect) {
            (Some((base, query)), Provider::Azure) => (base, query.strip_prefix(API_VERSION)),
            _ => (url, None),
        };
        let mut address: Self = base.parse()?;
        let route = ROUTES
            .iter()
            .find_map(|route| address.prefix.strip_suffix(route));
        let exact = route.map(str::to_owned);
        let is_exact = exact.is_some();
        address.prefix = exact.unwrap_or(address.prefix);
        let version = api_version.or(in_query);
        address.query = version.map(|version| format!("{API_VERSION}{version}"));
        match dialect {
            Provider::Azure => address.complete_azure(url)?,
            Provider::Anthropic if !is_exact => address.ensure_v1(),
            Provider::Openai | Provider::Vllm if !is_exact && address.prefix.is_empty() => {
                address.ensure_v1();
            }
            Provider::Openai | Provider::Vllm | Provider::Anthropic => {}
        }
        Ok(address)
    }

    /// Completes `/openai/v1`, `/openai/deployments/NAME`, or the resource alone, for which the API version decides.
    fn complete_azure(&mut self, url: &str) -> Result<(), AddressError> {
        let is_versioned = self.query.is_some();
        let is_deployment = self.prefix.contains("/deployments/");
        if is_deployment && !is_versioned {
            let url = url.to_owned();
            return Err(AddressError::NoVersion { url });
        }
        if matches!(self.prefix.as_str(), "" | "/openai") {
            self.by_model = is_versioned;
            let rest = if is_versioned { "deployments" } else { "v1" };
            self.prefix = format!("/openai/{rest}");
        }
        Ok(())
    }

    pub(crate) fn ensure_v1(&mut self) {
        if !self.prefix.ends_with("/v1") {
            self.prefix.push_str("/v1");
        }
    }

    /// Returns the address for one of our routes: `/v1/models?a=b` becomes `{prefix}/models?a=b`. Returns `None` for a
    /// route that is not below `/v1`, or would lead out of it.
    pub(crate) fn uri(&self, route: &PathAndQuery, model: Option<&str>) -> Option<Uri> {
        let rest = route.path().strip_prefix("/v1")?;
        if !rest.starts_with('/') || leads_up(rest) {
            return None;
        }
        if self.keeps_routes() {
            return self.at(route.clone());
        }
        let mut path = match (self.by_model, model) {
            (true, Some(model)) => format!("{}/{}{rest}", self.prefix, segment(model)?),
            // Routes without a model are beside the deployments.
            (true, None) => format!("/openai{rest}"),
            (false, _) => format!("{}{rest}", self.prefix),
        };
        let queries = [route.query(), self.query.as_deref()];
        for (n, query) in queries.into_iter().flatten().enumerate() {
            path.push(if n == 0 { '?' } else { '&' });
            path.push_str(query);
        }
        self.at(path.try_into().ok()?)
    }

    pub(crate) fn beside(&self, path: &str) -> Option<Uri> {
        let prefix = self.prefix.strip_suffix("/v1").unwrap_or(&self.prefix);
        self.at(format!("{prefix}{path}").try_into().ok()?)
    }

    fn keeps_routes(&self) -> bool {
        self.prefix == "/v1" && !self.by_model && self.query.is_none()
    }

    fn at(&self, route: PathAndQuery) -> Option<Uri> {
        let mut parts = Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(route);
        Uri::from_parts(parts).ok()
    }

    pub(crate) fn host(&self) -> &str {
        self.authority.as_str()
    }

    pub(crate) fn base(&self) -> Uri {
        self.at(PathAndQuery::from_static("/")).unwrap_or_default()
    }

    pub(crate) fn is_this_machine(&self) -> bool {
        let host = self.name();
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }

    pub(crate) fn name(&self) -> &str {
        self.authority.host()
    }

    pub(crate) fn is_at(&self, other: &Self) -> bool {
        self.scheme == other.scheme && self.authority == other.authority
    }

    pub(crate) fn is_https(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }
}

/// Returns whether a segment is `.` or `..`, however it and its neighbours are encoded. A server that resolves them
/// would leave the prefix, with our key.
fn leads_up(path: &str) -> bool {
    if !path.contains(['.', '%']) {
        return false;
    }
    let plain = path.to_ascii_lowercase().replace("%2e", ".");
    let plain = plain.replace("%2f", "/").replace("%5c", "/");
    let mut segments = plain.split(['/', '\\']);
    segments.any(|segment| matches!(segment, "." | ".."))
}

/// Returns an address without passwords, which come before an `@`, and without the query, which may contain a key.
fn shown(url: &str) -> String {
    let (address, query) = match url.split_once('?') {
        Some((address, _)) => (address, "?…"),
        None => (url, ""),
    };
    let (scheme, rest) = match address.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), address),
    };
    let rest = match rest.rsplit_once('@') {
        Some((_, host)) => format!("…@{host}"),
        None => rest.to_owned(),
    };
    format!("{scheme}{rest}{query}")
}

/// Encodes a name as one segment of a path (RFC 3986, 3.3), or returns `None` if that is impossible.
fn segment(name: &str) -> Option<String> {
    if name.is_empty() || leads_up(name) {
        return None;
    }
    let mut segment = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            segment.push(byte.into());
        } else {
            write!(segment, "%{byte:02X}").ok()?;
        }
    }
    Some(segment)
}

impl FromStr for UpstreamAddress {
    type Err = AddressError;

    fn from_str(url: &str) -> Result<Self, AddressError> {
        let error = || AddressError::NoAddress { url: shown(url) };
        let parts = url.trim().parse::<Uri>().map_err(|_| error())?.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(error());
        };
        let path = parts.path_and_query.as_ref();
        let is_http = scheme == Scheme::HTTP || scheme == Scheme::HTTPS;
        let has_query = path.is_some_and(|path| path.query().is_some());
        // A password in an address would appear in messages and logs.
        if !is_http || has_query || authority.as_str().contains('@') {
            return Err(error());
        }
        let prefix = path.map_or("", PathAndQuery::path).trim_end_matches('/');
        Ok(Self {
            scheme,
            authority,
            prefix: prefix.to_owned(),
            query: None,
            by_model: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAT: &str = "/v1/chat/completions";

    fn uri(address: &UpstreamAddress, route: &'static str) -> Option<String> {
        let uri = address.uri(&PathAndQuery::from_static(route), Some("gpt 5"));
        uri.map(|uri| uri.to_string())
    }

    #[test]
    fn our_v1_is_the_upstreams_prefix() {
        let at = |base: &str, route| uri(&base.parse().unwrap(), route);
        #[rustfmt::skip]
        let cases = [
            ("https://api.openai.com/v1/", CHAT, "https://api.openai.com/v1/chat/completions"),
            ("http://[::1]:80/a/openai", "/v1/models?x=%2F", "http://[::1]:80/a/openai/models?x=%2F"),
        ];
        for (base, route, expected) in cases {
            assert_eq!(at(base, route).as_deref(), Some(expected));
        }
        for outside in [
            "/v10/x",
            "/v1/../x",
            "/v1/a/%2E./x",
            "/v1/./x?y",
            "/v1/..",
            "/v1/..%2fx",
            "/v1/a%5C%2e%2e",
            "/v1/..\\x",
        ] {
            assert_eq!(at("http://h/v1", outside), None, "{outside}");
        }
        assert!(at("http://h/v1", "/v1/a..b/.c?d=/../").is_some());
        let mut root: UpstreamAddress = "http://127.0.0.1:9".parse().unwrap();
        root.ensure_v1();
        root.ensure_v1();
        let models = uri(&root, "/v1/models");
        assert_eq!(models.unwrap(), "http://127.0.0.1:9/v1/models");
    }

    #[test]
    fn an_address_is_taken_as_people_give_it() {
        use Provider::{Anthropic, Azure, Openai};
        const AZURE: &str = "https://x.openai.azure.com";
        const VERSION: Option<&str> = Some("2024-10-21");
        #[rustfmt::skip]
        let cases = [
            ("https://h", Openai, None, "https://h/v1/chat/completions"),
            ("https://h/", Openai, None, "https://h/v1/chat/completions"),
            ("https://h/api/v4", Openai, None, "https://h/api/v4/chat/completions"),
            ("https://h/chat/completions", Openai, None, "https://h/chat/completions"),
            ("https://h", Anthropic, None, "https://h/v1/chat/completions"),
            ("https://h/v1", Anthropic, None, "https://h/v1/chat/completions"),
            ("https://h/v1/messages", Anthropic, None, "https://h/v1/chat/completions"),
            ("https://h/anthropic", Anthropic, None, "https://h/anthropic/v1/chat/completions"),
            (
                "AZURE/openai/deployments/d/chat/completions?api-version=2024-10-21",
                Azure,
                None,
                "AZURE/openai/deployments/d/chat/completions?api-version=2024-10-21",
            ),
            ("AZURE/openai/deployments/d", Azure, VERSION, "AZURE/openai/deployments/d/chat/completions?api-version=2024-10-21"),
            ("AZURE", Azure, VERSION, "AZURE/openai/deployments/gpt%205/chat/completions?api-version=2024-10-21"),
            ("AZURE", Azure, None, "AZURE/openai/v1/chat/completions"),
            ("AZURE/openai/v1/", Azure, None, "AZURE/openai/v1/chat/completions"),
            ("AZURE/openai/v1", Azure, Some("preview"), "AZURE/openai/v1/chat/completions?api-version=preview"),
        ];
        for (given, dialect, version, whole) in cases {
            let [given, whole] = [given, whole].map(|url| url.replace("AZURE", AZURE));
            let address = UpstreamAddress::for_upstream(&given, dialect, version).unwrap();
            assert_eq!(uri(&address, CHAT).unwrap(), whole);
        }
        let address = UpstreamAddress::for_upstream(AZURE, Azure, Some("v")).unwrap();
        let models = address.uri(&PathAndQuery::from_static("/v1/models?a=b"), None);
        let expected = format!("{AZURE}/openai/models?a=b&api-version=v");
        assert_eq!(models.unwrap().to_string(), expected);
        let deployment = format!("{AZURE}/openai/deployments/d");
        let refused = UpstreamAddress::for_upstream(&deployment, Azure, None).unwrap_err();
        insta::assert_snapshot!(refused, @r#""https://x.openai.azure.com/openai/deployments/d" is a deployment, which needs an api_version, as in 2024-10-21; an address that ends in /openai/v1 needs none"#);
    }

    #[test]
    fn what_is_no_address_is_refused_in_words() {
        for bad in [
            "",
            "api.openai.com",
            "ftp://h/v1",
            "http://u:p@h",
            "http://h/v1?x=1",
        ] {
            assert!(bad.parse::<UpstreamAddress>().is_err(), "{bad}");
            let refused = UpstreamAddress::for_upstream(bad, Provider::Openai, None);
            assert!(refused.is_err(), "{bad}");
        }
        let said = |bad: &str| bad.parse::<UpstreamAddress>().unwrap_err().to_string();
        assert!(said("http://u:p@h/v1").starts_with(r#""http://…@h/v1" is no"#));
        assert!(said("u:p@ss@h").starts_with(r#""…@h" is no"#));
        assert!(said("http://h/v1?key=sk-1").starts_with(r#""http://h/v1?…" is no"#));
        insta::assert_snapshot!("api.openai.com/v1".parse::<UpstreamAddress>().unwrap_err(), @r#""api.openai.com/v1" is no address: it must be as in https://api.openai.com/v1, without a query or a password"#);
    }
}
