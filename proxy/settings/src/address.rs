//! Describes where an address leads.

use metaclaw_aws::BedrockEndpoint;
use std::{net::IpAddr, path::PathBuf};

/// Returns the host of an address, with its port.
pub fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or(rest);
    // The part before an @ may contain a password.
    authority.rsplit('@').next().unwrap_or(authority)
}

/// Returns whether the address is on this machine.
pub fn is_here(url: &str) -> bool {
    let host = host(url);
    let name = host.strip_prefix('[').and_then(|it| it.split(']').next());
    let name = name.unwrap_or_else(|| host.split(':').next().unwrap_or(host));
    let is_loopback = |address: IpAddr| address.is_loopback();
    name == "localhost" || name.parse().is_ok_and(is_loopback)
}

/// The user's own folder; the working folder where there is none.
pub fn user_folder() -> PathBuf {
    std::env::home_dir().unwrap_or_default()
}

/// Whether requests to an address are signed by credentials of AWS if there is no key for it.
pub fn is_bedrock(url: &str) -> bool {
    let name = host(url).split(':').next().unwrap_or_default();
    BedrockEndpoint::of_host(name).is_some()
}

/// Whether an address has Anthropic's messages alone, at Bedrock: a judge cannot be asked there.
pub fn is_bedrocks_messages(url: &str) -> bool {
    is_bedrock(url) && BedrockEndpoint::is_messages(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_told_from_others() {
        for (url, name, is_this) in [
            ("http://127.0.0.1:8000", "127.0.0.1:8000", true),
            ("http://[::1]:8000/v1", "[::1]:8000", true),
            ("http://localhost/v1", "localhost", true),
            ("https://a:b@api.example:8443/v1", "api.example:8443", false),
            ("https://127.example/v1", "127.example", false),
        ] {
            assert_eq!((host(url), is_here(url)), (name, is_this));
        }
    }
}
