//! The address of an upstream, parsed once.

use std::str::FromStr;

use http::{
    Uri,
    uri::{Authority, PathAndQuery, Scheme},
};

/// Why a text is no address of an upstream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{url:?} is no address: it must be as in https://api.openai.com/v1, without a query or a password"
)]
pub struct AddressError {
    /// What was given.
    pub url: String,
}

/// `scheme://host[:port][/prefix]` of a chat API; the prefix stands for `/v1` of our own routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    scheme: Scheme,
    authority: Authority,
    /// Without a slash at its end.
    prefix: String,
}

// === impl Address ===

impl Address {
    /// Adds `/v1` unless it is there.
    pub(crate) fn ensure_v1(&mut self) {
        if !self.prefix.ends_with("/v1") {
            self.prefix.push_str("/v1");
        }
    }

    /// The address for one of our routes: `/v1/models?a=b` becomes `{prefix}/models?a=b`.
    /// `None` for a route that is not below `/v1`, or would lead out of it.
    pub(crate) fn uri(&self, route: &PathAndQuery) -> Option<Uri> {
        let rest = route.as_str().strip_prefix("/v1")?;
        if !rest.starts_with('/') || route.path().split('/').any(is_dots) {
            return None;
        }
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(format!("{}{rest}", self.prefix))
            .build()
            .ok()
    }

    /// Host and port, for messages.
    pub(crate) fn host(&self) -> &str {
        self.authority.as_str()
    }
}

/// `.` or `..`, however written: a server that resolves them would leave the prefix, with our key.
fn is_dots(segment: &str) -> bool {
    let plain = segment.replace("%2e", ".").replace("%2E", ".");
    matches!(plain.as_str(), "." | "..")
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(url: &str) -> Result<Self, AddressError> {
        let error = || AddressError {
            url: url.to_owned(),
        };
        let parts = url.trim().parse::<Uri>().map_err(|_| error())?.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(error());
        };
        let path = parts.path_and_query.as_ref();
        let is_http = scheme == Scheme::HTTP || scheme == Scheme::HTTPS;
        let has_query = path.is_some_and(|path| path.query().is_some());
        // A password in an address would end up in messages and logs.
        if !is_http || has_query || authority.as_str().contains('@') {
            return Err(error());
        }
        let prefix = path.map_or("", PathAndQuery::path).trim_end_matches('/');
        Ok(Self {
            scheme,
            authority,
            prefix: prefix.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_v1_is_the_upstreams_prefix() {
        let uri = |base: &str, route: &'static str| {
            let address: Address = base.parse().unwrap();
            let uri = address.uri(&PathAndQuery::from_static(route));
            uri.map(|uri| uri.to_string())
        };
        let chat = "/v1/chat/completions";
        assert_eq!(
            uri("https://api.openai.com/v1/", chat).unwrap(),
            "https://api.openai.com/v1/chat/completions"
        );
        assert_eq!(
            uri("http://[::1]:80/a/openai", "/v1/models?x=%2F").unwrap(),
            "http://[::1]:80/a/openai/models?x=%2F"
        );
        for outside in ["/v10/x", "/v1/../x", "/v1/a/%2E./x", "/v1/./x?y", "/v1/.."] {
            assert_eq!(uri("http://h/v1", outside), None, "{outside}");
        }
        assert!(uri("http://h/v1", "/v1/a..b/.c?d=/../").is_some());
        let mut root: Address = "http://127.0.0.1:9".parse().unwrap();
        root.ensure_v1();
        root.ensure_v1();
        let models = root.uri(&PathAndQuery::from_static("/v1/models"));
        assert_eq!(models.unwrap(), "http://127.0.0.1:9/v1/models");
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
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
        insta::assert_snapshot!("api.openai.com/v1".parse::<Address>().unwrap_err(), @r#""api.openai.com/v1" is no address: it must be as in https://api.openai.com/v1, without a query or a password"#);
    }
}
