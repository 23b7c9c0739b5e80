//! Decides which headers pass, and in which direction.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use metaclaw_chat::Secret;
use metaclaw_dialects::Api;

use crate::{
    auth::caller::{KEY_HEADERS, shown_keys},
    identity::OWN_HEADERS,
};

const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

/// Headers of one connection, not of the message: RFC 9110 7.6.1, and `Proxy-Connection`, which old clients send.
/// `Trailer` belongs to the message: it names the fields after the body.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AuthStyle {
    /// `authorization: Bearer KEY`.
    Bearer,
    /// `x-api-key: KEY`.
    XApiKey,
    /// `api-key: KEY`.
    ApiKey,
    /// `authorization: Bearer KEY`, with the beta feature that Anthropic requires for a sign-in token.
    AnthropicToken,
}

/// Beginning of Anthropic's sign-in tokens, which are not API keys.
const ANTHROPIC_TOKEN: &str = "sk-ant-oat";
const ANTHROPIC_BETA: HeaderName = HeaderName::from_static("anthropic-beta");
const TOKEN_BETA: &str = "oauth-2025-04-20";

// === impl AuthStyle ===

impl AuthStyle {
    /// Returns how a key is sent to Anthropic on a route of its own API, or of OpenAI's, for which it expects OpenAI's
    /// header.
    pub(crate) fn of_anthropic(key: &Secret, is_openais: bool) -> Self {
        match (key.expose().trim().starts_with(ANTHROPIC_TOKEN), is_openais) {
            (true, _) => Self::AnthropicToken,
            (false, true) => Self::Bearer,
            (false, false) => Self::XApiKey,
        }
    }
}

/// Returns the headers of a request as they go upstream, with `key` if there is one. The caller's other credentials are
/// included only if `passes_callers`.
pub(crate) fn upwards(
    headers: HeaderMap,
    key: Option<(&Secret, AuthStyle)>,
    passes_callers: bool,
) -> HeaderMap {
    let mut headers = end_to_end(headers);
    for name in OWN_HEADERS {
        headers.remove(name);
    }
    // The client's `Host` names this proxy. The upstream's comes from its address.
    headers.remove(header::HOST);
    // The connection has answered this already.
    headers.remove(header::EXPECT);
    // A body that was read completely has no trailers any more.
    headers.remove(header::TRAILER);
    if key.is_some() || !passes_callers {
        for name in KEY_HEADERS {
            headers.remove(name);
        }
    }
    if !passes_callers {
        let shown = headers.keys().filter(|name| is_credential(name.as_str()));
        for name in shown.cloned().collect::<Vec<_>>() {
            headers.remove(name);
        }
    }
    if let Some((name, value)) = key.and_then(|(key, style)| key_header(key, style)) {
        headers.insert(name, value);
    }
    if key.is_some_and(|(_, style)| style == AuthStyle::AnthropicToken) {
        add_token_beta(&mut headers);
    }
    headers
}

fn add_token_beta(headers: &mut HeaderMap) {
    let given = headers.get_all(ANTHROPIC_BETA).iter();
    let given: Vec<&str> = given.filter_map(|value| value.to_str().ok()).collect();
    let given = given.join(",");
    if given.split(',').any(|word| word.trim() == TOKEN_BETA) {
        return;
    }
    let all = if given.is_empty() {
        TOKEN_BETA.to_owned()
    } else {
        format!("{given},{TOKEN_BETA}")
    };
    if let Ok(all) = HeaderValue::try_from(all) {
        headers.insert(ANTHROPIC_BETA, all);
    }
}

fn is_credential(name: &str) -> bool {
    const WORDS: [&str; 17] = [
        "account",
        "apikey",
        "assertion",
        "auth",
        "authentication",
        "authorization",
        "cookie",
        "cookie2",
        "credential",
        "credentials",
        "jwt",
        "organization",
        "password",
        "project",
        "secret",
        "signature",
        "token",
    ];
    let mut words = name.split(['-', '_']);
    words.any(|word| WORDS.contains(&word))
        || name.ends_with("api-key")
        || name.ends_with("access-key")
}

/// Changes the headers of a request that is translated into another API: the caller's key in that API's header,
/// Anthropic's version if needed, and a request for an uncompressed reply.
pub(crate) fn reworded(headers: &mut HeaderMap, upstream: Api) {
    shown_to(headers, upstream);
    readable(headers);
}

fn shown_to(headers: &mut HeaderMap, upstream: Api) {
    let [authorization, x_api_key, _] = KEY_HEADERS;
    let own = shown_keys(headers).next().map(str::to_owned);
    match (upstream, own) {
        (Api::Messages, Some(key)) if !key.starts_with(ANTHROPIC_TOKEN) => {
            let key = secret_value(&key);
            headers.remove(authorization);
            headers.extend(key.map(|key| (x_api_key, key)));
        }
        (Api::Chat | Api::Responses, Some(key)) => {
            let key = secret_value(&format!("Bearer {key}"));
            headers.remove(x_api_key);
            headers.extend(key.map(|key| (authorization, key)));
        }
        (Api::Messages | Api::Chat | Api::Responses, _) => {}
    }
    if upstream == Api::Messages && !headers.contains_key(ANTHROPIC_VERSION) {
        let version = HeaderValue::from_static("2023-06-01");
        headers.insert(ANTHROPIC_VERSION, version);
    }
}

/// Changes the headers of a request that passes to a server of another API than its client's: the key in that API's
/// header, and Anthropic's version. Headers of that API itself are not changed.
pub(crate) fn addressed(headers: &mut HeaderMap, upstream: Api) {
    let is_its = match upstream {
        Api::Messages => headers.contains_key(ANTHROPIC_VERSION),
        Api::Chat | Api::Responses => headers.contains_key(header::AUTHORIZATION),
    };
    if !is_its {
        shown_to(headers, upstream);
    }
}

pub(crate) fn readable(headers: &mut HeaderMap) {
    let identity = HeaderValue::from_static("identity");
    headers.insert(header::ACCEPT_ENCODING, identity);
}

pub(crate) fn rewritten(headers: &mut HeaderMap) {
    for name in [
        header::CONTENT_LENGTH,
        header::CONTENT_ENCODING,
        header::TRAILER,
    ] {
        headers.remove(name);
    }
}

/// Has proxies in between pass an event stream of ours on at once: nginx holds back what does not forbid that.
pub(crate) fn unbuffered(headers: &mut HeaderMap) {
    let [no, no_cache] = ["no", "no-cache"].map(HeaderValue::from_static);
    headers.insert(HeaderName::from_static("x-accel-buffering"), no);
    headers.insert(header::CACHE_CONTROL, no_cache);
}

pub(crate) fn is_events(headers: &HeaderMap) -> bool {
    const EVENTS: &str = "text/event-stream";
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()?.trim_start().get(..EVENTS.len()));
    kind.is_some_and(|kind| kind.eq_ignore_ascii_case(EVENTS))
}

/// Returns whether a connection should become a WebSocket. Any other upgrade is optional, and may be ignored.
pub(crate) fn is_websocket(headers: &HeaderMap) -> bool {
    let mut offers = headers.get_all(header::UPGRADE).iter();
    offers.any(|offer| {
        let mut names = offer.as_bytes().split(|b| *b == b',');
        names.any(|name| name.trim_ascii().eq_ignore_ascii_case(b"websocket"))
    })
}

pub(crate) fn end_to_end(mut headers: HeaderMap) -> HeaderMap {
    let named = headers.get_all(header::CONNECTION).iter();
    let named = named.filter_map(|value| value.to_str().ok());
    let named = named.flat_map(|value| value.split(','));
    let named: Vec<HeaderName> = named.filter_map(|name| name.trim().parse().ok()).collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
    headers
}

/// A key that is not a valid header value (with a line break) is left out.
fn key_header(key: &Secret, style: AuthStyle) -> Option<(HeaderName, HeaderValue)> {
    let [authorization, x_api_key, api_key] = KEY_HEADERS;
    let key = key.expose().trim();
    let (name, value) = match style {
        AuthStyle::Bearer | AuthStyle::AnthropicToken => (authorization, format!("Bearer {key}")),
        AuthStyle::XApiKey => (x_api_key, key.to_owned()),
        AuthStyle::ApiKey => (api_key, key.to_owned()),
    };
    Some((name, secret_value(&value)?))
}

fn secret_value(value: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let header = |(name, value): &(&'static str, &'static str)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        };
        pairs.iter().map(header).collect()
    }

    const SENT: [(&str, &str); 10] = [
        ("authorization", "Bearer own"),
        ("x-api-key", "own"),
        ("connection", "keep-alive, X-Hop"),
        ("x-hop", "1"),
        ("x-turn-type", "main"),
        ("x-session-id", "s"),
        ("session_id", "s:0"),
        ("traceparent", "00-1-2-01"),
        ("accept", "application/json"),
        ("host", "127.0.0.1:30000"),
    ];
    const PASS: [(&str, &str); 4] = [
        ("x-session-id", "s"),
        ("session_id", "s:0"),
        ("traceparent", "00-1-2-01"),
        ("accept", "application/json"),
    ];

    #[test]
    fn what_is_the_callers_passes_and_what_is_ours_does_not() {
        let callers = upwards(map(&SENT), None, true);
        assert_eq!(callers, map(&[&SENT[..2], &PASS].concat()));
        assert_eq!(upwards(map(&SENT), None, false), map(&PASS));
        // The list has everything that identifies the caller, for an upstream that it was not meant for.
        let shown = [
            ("cookie", "a=b"),
            ("x-goog-api-key", "k"),
            ("x-auth-token", "t"),
            ("x-amz-security-token", "t"),
            ("openai-organization", "o"),
            ("openai-project", "p"),
        ];
        let sent = map(&[&PASS[..], &shown].concat());
        assert_eq!(upwards(sent.clone(), None, false), map(&PASS));
        assert_eq!(upwards(sent.clone(), None, true), sent);
        let harmless = [
            ("user-agent", "a/1"),
            ("idempotency-key", "i"),
            ("x-session-affinity", "s"),
            ("anthropic-beta", "b"),
        ];
        assert_eq!(upwards(map(&harmless), None, false), map(&harmless));
    }

    #[test]
    fn a_configured_key_replaces_the_callers_as_its_upstream_wants_it() {
        let key = Secret::from("k");
        let sent = |style| upwards(map(&SENT), Some((&key, style)), true);
        let openai = map(&[&PASS[..], &[("authorization", "Bearer k")]].concat());
        assert_eq!(sent(AuthStyle::Bearer), openai);
        let anthropic = map(&[&PASS[..], &[("x-api-key", "k")]].concat());
        assert_eq!(sent(AuthStyle::XApiKey), anthropic);
    }

    #[test]
    fn a_token_of_anthropics_sign_in_is_shown_as_such() {
        let token = Secret::from("sk-ant-oat01-t");
        let style = AuthStyle::of_anthropic(&token, false);
        let given = map(&[("x-api-key", "own"), ("anthropic-beta", "a,b")]);
        let sent = upwards(given, Some((&token, style)), true);
        let wanted = [
            ("authorization", "Bearer sk-ant-oat01-t"),
            ("anthropic-beta", "a,b,oauth-2025-04-20"),
        ];
        assert_eq!(sent, map(&wanted));
        let alone = upwards(map(&wanted), Some((&token, style)), true);
        assert_eq!(alone, map(&wanted), "once");
        let key = Secret::from("sk-ant-api03-k");
        assert_eq!(AuthStyle::of_anthropic(&key, false), AuthStyle::XApiKey);
        assert_eq!(AuthStyle::of_anthropic(&key, true), AuthStyle::Bearer);
    }

    #[test]
    fn replies_keep_all_but_the_connections_own() {
        let reply = [
            ("retry-after", "1"),
            ("x-ratelimit-remaining", "0"),
            ("transfer-encoding", "chunked"),
        ];
        assert_eq!(end_to_end(map(&reply)), map(&reply[..2]));
    }

    #[test]
    fn a_key_is_shown_as_the_other_api_looks_for_it() {
        let bearer = ("authorization", "Bearer k");
        let readable = ("accept-encoding", "identity");
        let version = ("anthropic-version", "2023-06-01");
        let gzip = ("accept-encoding", "gzip");
        #[rustfmt::skip]
        let cases = [
            (vec![bearer], Api::Messages, vec![("x-api-key", "k"), version, readable]),
            (vec![("x-api-key", "k"), gzip], Api::Chat, vec![bearer, readable]),
        ];
        for (headers, api, expected) in cases {
            let mut headers = map(&headers);
            reworded(&mut headers, api);
            assert_eq!(headers, map(&expected));
        }
    }
}
