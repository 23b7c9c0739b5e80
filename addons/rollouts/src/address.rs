//! Addresses of servers.

use std::str::FromStr;

use reqwest::Url;
use serde::Deserialize;

/// An address that begins with `http://` or `https://`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, derive_more::Deref, derive_more::Display)]
#[display("{}", _0.as_str().trim_end_matches('/'))]
#[serde(try_from = "String")]
pub struct HttpAddress(Url);

/// Why a text is no such address.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no address: it begins with http:// or https://")]
pub struct HttpAddressError(String);

// === impl HttpAddress ===

impl HttpAddress {
    pub(crate) fn below(&self, path: &str) -> String {
        format!("{}/{path}", self.0.as_str().trim_end_matches('/'))
    }

    /// The same path at another host, if there is one. It does not end in a slash.
    pub(crate) fn at_host(&self, host: Option<&Self>) -> String {
        let path = self.0.path().trim_end_matches('/');
        let origin = host.unwrap_or(self).0.origin().ascii_serialization();
        format!("{origin}{path}")
    }
}

impl FromStr for HttpAddress {
    type Err = HttpAddressError;

    fn from_str(text: &str) -> Result<Self, HttpAddressError> {
        let url = Url::parse(text).ok();
        let is_http = |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host();
        let url = url.filter(is_http);
        url.map(Self)
            .ok_or_else(|| HttpAddressError(text.to_owned()))
    }
}

impl TryFrom<String> for HttpAddress {
    type Error = HttpAddressError;

    fn try_from(text: String) -> Result<Self, HttpAddressError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_found_at_another_host() {
        let url: HttpAddress = "http://127.0.0.1:30000/rollout/7/v1/".parse().unwrap();
        let host: HttpAddress = "http://10.0.0.5:8000".parse().unwrap();
        assert_eq!(url.at_host(None), "http://127.0.0.1:30000/rollout/7/v1");
        assert_eq!(
            url.at_host(Some(&host)),
            "http://10.0.0.5:8000/rollout/7/v1"
        );
        assert!("ftp://a".parse::<HttpAddress>().is_err() && "a".parse::<HttpAddress>().is_err());
    }
}
