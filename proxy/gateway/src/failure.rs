//! Why an upstream did not answer, as far as its status and its words tell.
//!
//! What a program wrote for programs (`error.code`) counts first, then words for people, read only
//! where the status leaves the question open, then `error.type`, then the status alone. A client's
//! own mistake is no failure: another upstream would say the same.

use std::time::Duration;

use http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A class of failure, as `routing.fail_over` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// Too much was asked of this key for now: 429.
    RateLimit,
    /// Too much was asked of the upstream for now: 503, 529.
    Overloaded,
    /// The account has no credit: 402, and 429 where the quota of a plan is used up.
    Billing,
    /// The key is not accepted: 401, and 403 without a better reason.
    Auth,
    /// The key will not be accepted again: 401 and 403 that say it was revoked, or its account closed.
    AuthPermanent,
    /// The upstream does not have the model, or not for this account, or not where we are.
    ModelNotFound,
    /// The prompt is longer than the model's context.
    ContextLength,
    /// No reply came in time: ours with `first_byte`, or theirs with 408 or 504.
    Timeout,
    /// No connection, or one that broke before a reply.
    Unreachable,
    /// Any other 5xx.
    Server,
}

/// What an error body says.
#[derive(Debug, Default)]
struct ErrorText {
    code: String,
    kind: String,
    message: String,
}

// === impl Failure ===

impl Failure {
    /// Every class, by its name in the settings.
    pub const NAMES: [&'static str; 10] = [
        "rate_limit",
        "overloaded",
        "billing",
        "auth",
        "auth_permanent",
        "model_not_found",
        "context_length",
        "timeout",
        "unreachable",
        "server",
    ];

    /// The class of a reply; `body` is its beginning. `None` for a success, and for what is the
    /// caller's own mistake.
    pub(crate) fn classify(status: u16, body: &[u8]) -> Option<Self> {
        if status < 400 {
            return None;
        }
        let error = ErrorText::parse(body);
        if is_of_the_content(status, &error) {
            return None;
        }
        named(&error.code)
            .or_else(|| by_message(status, &error.message))
            .or_else(|| named(&error.kind))
            .or_else(|| by_status(status))
    }

    /// Whether another key of the same upstream may fare better.
    pub(crate) fn is_of_the_key(self) -> bool {
        match self {
            Self::RateLimit | Self::Billing | Self::Auth | Self::AuthPermanent => true,
            Self::Overloaded
            | Self::ModelNotFound
            | Self::ContextLength
            | Self::Timeout
            | Self::Unreachable
            | Self::Server => false,
        }
    }
}

/// How long an upstream asks to be left alone: `retry-after-ms`, else `Retry-After` in seconds or as
/// a date (RFC 9110 10.2.3).
pub(crate) fn retry_after(headers: &HeaderMap, now_ms: u64) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok().map(str::trim);
    let ms = text("retry-after-ms").and_then(|it| it.parse().ok());
    ms.map(Duration::from_millis)
        .or_else(|| metaclaw_chat::retry_after(text("retry-after")?, now_ms))
}

// === impl ErrorText ===

impl ErrorText {
    fn parse(body: &[u8]) -> Self {
        let Ok(body) = serde_json::from_slice::<Value>(body) else {
            return Self {
                message: String::from_utf8_lossy(body).to_lowercase(),
                ..Self::default()
            };
        };
        // Google's compatible API answers a list of one.
        let body = body.get(0).unwrap_or(&body);
        let error = body.get("error").unwrap_or(body);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_lowercase();
        let first = |values: &[&Value]| {
            let mut texts = values.iter().map(|value| text(value));
            texts.find(|text| !text.is_empty()).unwrap_or_default()
        };
        Self {
            code: text(&error["code"]),
            kind: first(&[&error["type"], &error["status"]]),
            message: first(&[error, &error["message"], &body["message"], &body["detail"]]),
        }
    }
}

/// Codes and types of OpenAI, Anthropic, Azure, Google, Moonshot and those who copy them.
fn named(word: &str) -> Option<Failure> {
    let failure = match word {
        "rate_limit_exceeded"
        | "rate_limit_error"
        | "rate_limit_reached_error"
        | "too_many_requests"
        | "resource_exhausted" => Failure::RateLimit,
        "overloaded_error"
        | "overloaded"
        | "engine_overloaded_error"
        | "server_overloaded"
        | "queue_full"
        | "unavailable" => Failure::Overloaded,
        "insufficient_quota"
        | "insufficient_balance"
        | "insufficient_credits"
        | "exceeded_current_quota_error"
        | "billing_error"
        | "billing_not_active"
        | "billing_hard_limit_reached"
        | "payment_required" => Failure::Billing,
        "invalid_api_key"
        | "authentication_error"
        | "invalid_authentication_error"
        | "token_expired"
        | "unauthenticated"
        // A permission is of one model or route as often as of all: the key may be good for others.
        | "permission_error"
        | "permission_denied"
        | "permission_denied_error" => Failure::Auth,
        "account_deactivated" | "key_revoked" => Failure::AuthPermanent,
        "model_not_found"
        | "model_not_available"
        | "deploymentnotfound"
        | "unsupported_country_region_territory" => Failure::ModelNotFound,
        "context_length_exceeded" => Failure::ContextLength,
        _ => return None,
    };
    Some(failure)
}

/// Words for people, where the status alone does not say enough. Each needs its status: a tool's
/// "file does not exist" inside a 500 names no missing model.
fn by_message(status: u16, message: &str) -> Option<Failure> {
    let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
    let no_credit = has(&[
        "credit balance",
        "insufficient credit",
        "insufficient balance",
        "insufficient quota",
        "exceeded your current quota",
        "payment required",
    ]);
    let no_model = has(&["model"]) && has(&["not found", "does not exist", "not a valid model"])
        || message.starts_with("model:");
    let not_here = has(&[
        "region",
        "country",
        "territory",
        "location is not supported",
    ]);
    let not_for_us = has(&["model"])
        && has(&[
            "not available",
            "access",
            "permission",
            "not allowed",
            "opt in",
        ]);
    let too_long = has(&[
        "prompt is too long",
        "maximum context length",
        "context length exceeded",
        "exceeds the context window",
        "exceed context limit",
    ]);
    match status {
        400 | 403 | 429 if no_credit => Some(Failure::Billing),
        400 | 413 | 422 if too_long => Some(Failure::ContextLength),
        400 | 404 if no_model => Some(Failure::ModelNotFound),
        401 | 403 if has(&["revoked", "deactivated", "disabled", "deleted", "suspended"]) => {
            Some(Failure::AuthPermanent)
        }
        403 if no_model || not_here || not_for_us => Some(Failure::ModelNotFound),
        _ => None,
    }
}

/// Whether it is what was said that is refused: the caller's own, which another would refuse as well,
/// and no word against the key.
fn is_of_the_content(status: u16, error: &ErrorText) -> bool {
    const CODES: [&str; 3] = [
        "content_policy_violation",
        "content_filter",
        "moderation_blocked",
    ];
    const WORDS: [&str; 4] = ["moderation", "flagged", "content policy", "usage policies"];
    let is_code = CODES.contains(&error.code.as_str()) || CODES.contains(&error.kind.as_str());
    is_code || status == 403 && WORDS.iter().any(|word| error.message.contains(word))
}

fn by_status(status: u16) -> Option<Failure> {
    match status {
        401 | 403 => Some(Failure::Auth),
        402 => Some(Failure::Billing),
        408 | 504 => Some(Failure::Timeout),
        429 => Some(Failure::RateLimit),
        503 | 529 => Some(Failure::Overloaded),
        500.. => Some(Failure::Server),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Failure::*, *};

    const CASES: &[(u16, &str, Option<Failure>)] = &[
        (200, "", None),
        (429, "", Some(RateLimit)),
        (
            429,
            r#"{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}"#,
            Some(RateLimit),
        ),
        (
            429,
            r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
            Some(Billing),
        ),
        (
            429,
            r#"{"error":{"code":"1113","message":"Insufficient balance or no resource package"}}"#,
            Some(Billing),
        ),
        (
            429,
            r#"[{"error":{"code":429,"message":"slow","status":"RESOURCE_EXHAUSTED"}}]"#,
            Some(RateLimit),
        ),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the API"}}"#,
            Some(Billing),
        ),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 1 tokens > 0 maximum"}}"#,
            Some(ContextLength),
        ),
        (
            400,
            r#"{"error":{"message":"x","code":"context_length_exceeded"}}"#,
            Some(ContextLength),
        ),
        (400, r#"{"error":{"message":"messages is empty"}}"#, None),
        (
            401,
            r#"{"error":{"code":"invalid_api_key","message":"Incorrect API key"}}"#,
            Some(Auth),
        ),
        (
            401,
            r#"{"error":"this key was revoked"}"#,
            Some(AuthPermanent),
        ),
        (402, "Payment Required", Some(Billing)),
        (403, r#"{"error":{"type":"forbidden"}}"#, Some(Auth)),
        (403, "<html>", Some(Auth)),
        (
            403,
            r#"{"type":"error","error":{"type":"permission_error","message":"Your API key does not have permission to use the specified resource."}}"#,
            Some(Auth),
        ),
        (
            403,
            r#"{"error":{"message":"The API key was disabled."}}"#,
            Some(AuthPermanent),
        ),
        (
            403,
            r#"{"error":{"code":"account_deactivated","message":"x"}}"#,
            Some(AuthPermanent),
        ),
        (
            403,
            r#"{"error":{"message":"Project `p` does not have access to model `m`","code":"model_not_found"}}"#,
            Some(ModelNotFound),
        ),
        (
            403,
            r#"{"error":"This model is not available in your region."}"#,
            Some(ModelNotFound),
        ),
        (
            403,
            r#"{"error":{"code":"unsupported_country_region_territory","message":"Country, region, or territory not supported"}}"#,
            Some(ModelNotFound),
        ),
        (
            403,
            r#"{"error":{"code":403,"message":"Permission denied on resource model x","status":"PERMISSION_DENIED"}}"#,
            Some(ModelNotFound),
        ),
        (
            403,
            r#"{"error":{"code":403,"message":"Your chosen model requires moderation and your input was flagged"}}"#,
            None,
        ),
        (
            400,
            r#"{"error":{"code":"content_filter","message":"The response was filtered"}}"#,
            None,
        ),
        (
            403,
            r#"{"error":{"message":"Insufficient balance for this model"}}"#,
            Some(Billing),
        ),
        (
            404,
            r#"{"type":"error","error":{"type":"not_found_error","message":"model: claude-9"}}"#,
            Some(ModelNotFound),
        ),
        (
            404,
            r#"{"object":"error","message":"The model `x` does not exist.","type":"NotFoundError","code":404}"#,
            Some(ModelNotFound),
        ),
        (
            404,
            r#"{"error":{"code":"DeploymentNotFound","message":"x"}}"#,
            Some(ModelNotFound),
        ),
        (404, r#"{"detail":"file does not exist"}"#, None),
        (
            500,
            r#"{"error":{"message":"model file does not exist"}}"#,
            Some(Server),
        ),
        (
            529,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            Some(Overloaded),
        ),
        (503, "", Some(Overloaded)),
        (504, "<html>", Some(Timeout)),
        (502, "<html>", Some(Server)),
        (422, "", None),
    ];

    #[test]
    fn status_and_body_tell_the_class() {
        for (status, body, class) in CASES {
            assert_eq!(
                Failure::classify(*status, body.as_bytes()),
                *class,
                "{status} {body}"
            );
        }
    }

    #[test]
    fn a_wait_is_read_in_each_of_its_forms() {
        let wait = |name: &'static str, value: &'static str| {
            let header = (http::HeaderName::from_static(name), value.parse().unwrap());
            retry_after(&HeaderMap::from_iter([header]), 784_111_770_000)
        };
        assert_eq!(wait("retry-after", "7"), Some(Duration::from_secs(7)));
        assert_eq!(
            wait("retry-after-ms", "250"),
            Some(Duration::from_millis(250))
        );
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(wait("retry-after", date), Some(Duration::from_secs(7)));
        assert_eq!(wait("retry-after", "soon"), None);
        assert_eq!(wait("x", "1"), None);
    }

    #[test]
    fn the_names_are_those_that_settings_are_read_by() {
        for name in Failure::NAMES {
            let read: Failure = serde_json::from_value(name.into()).unwrap();
            assert_eq!(serde_json::to_value(read).unwrap(), name);
        }
    }
}
