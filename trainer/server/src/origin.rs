//! Web pages: where no key is asked for, whoever reaches the server may use it, and any site that the owner opens runs
//! its scripts on this machine.
//!
//! A browser says whose page asks, by `Origin`, and where it asks without one (an image, a link), by `Sec-Fetch-Site`.
//! A site can also make its own name mean this machine (DNS rebinding), and is then of one origin with us; what it
//! cannot hide is that name, in `Host`. So without a key only pages of this machine are answered, and only where they
//! ask for an address or for `localhost`. Programs send nothing of this but `Host`.

use std::net::IpAddr;

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header, uri::Authority},
    middleware::Next,
    response::Response,
};
use metaclaw_trainer_api::ApiKey;
use metaclaw_trainer_terms::ErrorCode;

use crate::error::{ApiError, Result};

/// Refuses requests from foreign pages if the server has no key.
pub(crate) async fn refuse_foreign_pages(
    State(key): State<Option<ApiKey>>,
    request: Request,
    next: Next,
) -> Result<Response> {
    check(key.as_ref(), request.uri(), request.headers())?;
    Ok(next.run(request).await)
}

fn check(key: Option<&ApiKey>, uri: &Uri, headers: &HeaderMap) -> Result<()> {
    if key.is_some() {
        return Ok(());
    }
    // A request for a whole address has the name there.
    let named = uri.authority().map(Authority::as_str);
    let host = named.map(str::as_bytes);
    let host = host.or_else(|| headers.get(header::HOST).map(HeaderValue::as_bytes));
    if let Some(host) = host {
        let Ok(authority) = Authority::try_from(host) else {
            return Err(ApiError::bad("Host is no name and no address"));
        };
        if !is_this_machine(authority.host()) && address(authority.host()).is_none() {
            return Err(forbidden(format!(
                "asked for as {authority}: without a key (METACLAW_API_KEY) this server answers to localhost and to addresses only"
            )));
        }
    }
    match headers.get(header::ORIGIN) {
        Some(origin) if !is_of_this_machine(origin) => Err(forbidden(format!(
            "pages of {} may not use this server: it has no key (METACLAW_API_KEY)",
            String::from_utf8_lossy(origin.as_bytes())
        ))),
        None if headers
            .get("sec-fetch-site")
            .is_some_and(|site| site == "cross-site") =>
        {
            Err(forbidden(
                "pages of other sites may not use this server: it has no key (METACLAW_API_KEY)",
            ))
        }
        _ => Ok(()),
    }
}

fn forbidden(message: impl Into<String>) -> ApiError {
    ApiError::status(StatusCode::FORBIDDEN, message).with_code(ErrorCode::ForeignPage)
}

fn is_of_this_machine(origin: &HeaderValue) -> bool {
    let uri: Option<Uri> = origin.to_str().ok().and_then(|origin| origin.parse().ok());
    uri.is_some_and(|uri| uri.host().is_some_and(is_this_machine))
}

fn is_this_machine(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let is_loopback = address(&host).is_some_and(|address| address.is_loopback());
    is_loopback || host == "localhost" || host.ends_with(".localhost")
}

fn address(host: &str) -> Option<IpAddr> {
    host.trim_matches(['[', ']']).parse().ok()
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;

    use super::*;

    fn status(headers: &[(&'static str, &'static str)], key: Option<&str>) -> u16 {
        let key = key.map(|key| ApiKey::new(key.to_owned()));
        let headers = headers.iter().map(|(name, value)| {
            let name = header::HeaderName::from_static(name);
            (name, HeaderValue::from_static(value))
        });
        let headers: HeaderMap = headers.collect();
        match check(key.as_ref(), &Uri::from_static("/v1/models"), &headers) {
            Ok(()) => 200,
            Err(error) => error.into_response().status().as_u16(),
        }
    }

    #[test]
    fn a_name_that_a_site_can_have_is_refused_where_there_is_no_key() {
        for host in [
            "127.0.0.1:8000",
            "[::1]:8000",
            "localhost",
            "LOCALHOST.:8000",
            "a.localhost",
        ] {
            assert_eq!(status(&[("host", host)], None), 200, "{host}");
        }
        for host in [
            "evil.com",
            "evil.com:8000",
            "localhost.evil.com",
            "printer",
            "nas.local",
        ] {
            assert_eq!(status(&[("host", host)], None), 403, "{host}");
            assert_eq!(status(&[("host", host)], Some("secret")), 200, "{host}");
        }
        for host in ["evil.com:80:80", "a b", "evil.com#.localhost"] {
            assert_eq!(status(&[("host", host)], None), 400, "{host}");
        }
        assert_eq!(status(&[], None), 200);
    }

    #[test]
    fn only_pages_of_this_machine_may_ask_where_there_is_no_key() {
        for origin in [
            "http://localhost:3000",
            "http://127.0.0.1",
            "http://[::1]:8000",
        ] {
            assert_eq!(status(&[("origin", origin)], None), 200, "{origin}");
        }
        for origin in [
            "https://evil.com",
            "http://localhost.evil.com",
            "null",
            "http://192.168.0.2",
            "",
        ] {
            assert_eq!(status(&[("origin", origin)], None), 403, "{origin}");
            assert_eq!(
                status(&[("origin", origin)], Some("secret")),
                200,
                "{origin}"
            );
        }
        assert_eq!(status(&[("sec-fetch-site", "cross-site")], None), 403);
        assert_eq!(status(&[("sec-fetch-site", "same-origin")], None), 200);
        assert_eq!(status(&[("sec-fetch-site", "none")], None), 200);
    }
}
