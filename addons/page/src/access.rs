//! Who is admitted to the page, and the headers of every reply.
//!
//! A browser shows the cookie that a login link gave it, a program the token of the run file. Pages of other sites can
//! send requests here too, even to the loopback address. So the Host has to be localhost or an IP address, and a form
//! has to come from a page of this listener: a cookie is shown to every port of a host, and SameSite does not tell ports
//! apart.

use std::net::IpAddr;

use anyhow::Context as _;
use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use maud::html;
use metaclaw_chat::now_ms;
use metaclaw_control::{
    browser_logins::COOKIE_LIFETIME, operation::OperationFailure, server::shows_token,
};
use serde::Deserialize;

use crate::{failure::PageFailure, layout::bare, state::PageState};

/// What a browser is allowed to do with our pages: nothing of another host, no script or style within the text.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// With `no-referrer`, browsers would send forms without their origin.
const HEADERS: [(HeaderName, HeaderValue); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(POLICY),
    ),
    (
        header::REFERRER_POLICY,
        HeaderValue::from_static("same-origin"),
    ),
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
];

const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

#[derive(Deserialize)]
pub(crate) struct LoginQuery {
    #[serde(default)]
    code: String,
}

/// Adds the headers to every reply, and refuses requests that another site may have sent.
pub(crate) async fn protect(request: Request, next: Next) -> Response {
    let refusal = refusal(request.method(), request.headers());
    let mut response = match refusal {
        Some(why) => (StatusCode::FORBIDDEN, why).into_response(),
        None => next.run(request).await,
    };
    response.headers_mut().extend(HEADERS);
    response
}

/// Lets nobody in without the cookie or the token.
pub(crate) async fn admit(
    State(state): State<PageState>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    if shows_token(headers, &state.token) || shows_cookie(headers, &state) {
        return next.run(request).await;
    }
    signed_out().into_response()
}

/// Takes the code of a login link and gives the cookie.
///
/// The page after it is opened by a page of ours: a browser that followed a link of another program or site would not
/// show a `SameSite=Strict` cookie on a redirect.
pub(crate) fn log_in(state: &PageState, headers: &HeaderMap, query: &LoginQuery) -> Response {
    let Some(cookie) = state.logins.redeem(&query.code, now_ms()) else {
        return if shows_cookie(headers, state) {
            signed_in(None).into_response()
        } else {
            used_up().into_response()
        };
    };
    signed_in(Some(set_cookie(
        headers,
        &cookie,
        COOKIE_LIFETIME.as_secs(),
    )))
    .into_response()
}

/// Signs out all browsers. The server keeps no list of cookies, so it cannot end a single one. Deleting the cookie in
/// this browser alone would not be enough, because a copy of the cookie would stay valid.
pub(crate) fn sign_out(state: &PageState, headers: &HeaderMap) -> Result<Response, PageFailure> {
    let ended = state.logins.end_all().context("nobody was signed out");
    ended.map_err(OperationFailure::unavailable)?;
    let forget = [(header::SET_COOKIE, set_cookie(headers, "", 0))];
    Ok((forget, signed_out()).into_response())
}

/// Answers a HEAD request for a login link, which must not use the link up: programs that preview links send one.
pub(crate) async fn only_get() -> impl IntoResponse {
    (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "GET")])
}

fn set_cookie(headers: &HeaderMap, value: &str, seconds: u64) -> String {
    let name = cookie_name(headers);
    format!("{name}={value}; HttpOnly; SameSite=Strict; Path=/ui; Max-Age={seconds}")
}

/// The cookie's name contains the port, because cookies of all ports of a host are together.
fn cookie_name(headers: &HeaderMap) -> String {
    let port = host(headers).and_then(|it| it.rsplit_once(':'));
    format!("metaclaw_{}", port.map_or("80", |(_, port)| port))
}

fn shows_cookie(headers: &HeaderMap, state: &PageState) -> bool {
    let name = cookie_name(headers);
    let all = headers.get_all(header::COOKIE).into_iter();
    let pairs = all.filter_map(|it| it.to_str().ok());
    let mut pairs = pairs.flat_map(|it| it.split(';'));
    pairs.any(|pair| match pair.trim().split_once('=') {
        Some((its, value)) => its == name && state.logins.is_valid(value, now_ms()),
        None => false,
    })
}

/// Why a request may be another site's; `None` if it cannot be.
fn refusal(method: &Method, headers: &HeaderMap) -> Option<&'static str> {
    let Some(host) = host(headers).filter(|host| is_safe_name(host)) else {
        return Some(
            "open the page by an IP address, as in http://127.0.0.1:30080/ui, or as localhost: `metaclaw ui` prints its address\n",
        );
    };
    if matches!(*method, Method::GET | Method::HEAD) {
        return None;
    }
    // A program that is no browser sends neither. What a browser sends, it sends once. Bytes are compared, so that a
    // value that is no text does not count as none.
    let origin = format!("http://{host}");
    let is_ours = match (once(headers, &header::ORIGIN), once(headers, &SITE)) {
        (Ok(Some(given)), _) => given == origin.as_bytes(),
        (Ok(None), Ok(site)) => site.is_none_or(|site| site == b"same-origin"),
        _ => false,
    };
    (!is_ours).then_some("a form of another page is not taken\n")
}

/// Returns a header's value if a request has this header, or an error if it has the header several times.
fn once<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a [u8]>, ()> {
    let mut values = headers.get_all(name).iter();
    let first = values.next().map(HeaderValue::as_bytes);
    values.next().map_or(Ok(first), |_| Err(()))
}

fn host(headers: &HeaderMap) -> Option<&str> {
    std::str::from_utf8(once(headers, &header::HOST).ok()??).ok()
}

/// Returns whether no site on the internet can have this name: a site can make its own name lead here (DNS rebinding),
/// and no address.
fn is_safe_name(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|it| it.is_ascii_digit()) => name,
        _ => host,
    };
    name == "localhost" || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
}

fn signed_out() -> impl IntoResponse {
    let body = html! {
        h1 { "Sign in" }
        p.lead { "This page shows what you said to your agent, so it asks who you are." }
        p { "Run this in a terminal on the machine where MetaClaw runs. It opens a link that signs this browser in:" }
        pre { code { "metaclaw ui" } }
        p.soft { "The link works once and for two minutes. The browser then stays signed in for 30 days." }
    };
    (StatusCode::UNAUTHORIZED, bare("Sign in", &body))
}

fn used_up() -> impl IntoResponse {
    let body = html! {
        h1 { "This link is used up" }
        p.lead { "A login link works once and for two minutes." }
        p { "Get a new one:" }
        pre { code { "metaclaw ui" } }
        p.soft { "If you did not use the link yourself, another program of this machine did: "
            code { "metaclaw ui --sign-out" } " signs every browser out first." }
    };
    (StatusCode::UNAUTHORIZED, bare("Used up", &body))
}

fn signed_in(cookie: Option<String>) -> impl IntoResponse {
    let body = html! {
        h1 { "Signed in" }
        p.lead { a href="/ui" { "Open the page" } }
    };
    let headers = [(HeaderName::from_static("refresh"), "0; url=/ui".to_owned())];
    let cookie = cookie.map(|it| [(header::SET_COOKIE, it)]);
    (headers, cookie, bare("Signed in", &body))
}
