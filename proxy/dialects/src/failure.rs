//! Why an upstream did not answer, as far as its status and its words tell.
//!
//! The one place that knows what providers say: fail-over goes by it, and an error that is put in another
//! API's words. What a program wrote for programs (`error.code`) counts first, then words for people, read
//! only where the status leaves the question open, then `error.type`, then the status alone. A client's own
//! mistake is no failure: another upstream would say the same.

mod error_text;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use self::error_text::ErrorText;

/// A class of failure, as `routing.fail_over` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
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
    /// The model or its server cannot do what the request asks, which another may: a parameter that is not built, a
    /// conversation that the chat template refuses.
    Unsupported,
    /// No reply came in time: ours with `first_byte`, or theirs with 408 or 504.
    Timeout,
    /// No connection, or one that broke before a reply.
    Unreachable,
    /// Any other 5xx.
    Server,
}

// === impl Failure ===

impl Failure {
    /// The class of a reply; `body` is its beginning. `None` for a success, and for what is the
    /// caller's own mistake.
    pub fn classify(status: u16, body: &[u8]) -> Option<Self> {
        if status < 400 {
            return None;
        }
        ErrorText::parse(body).failure(Some(status))
    }

    /// Whether another key of the same upstream may fare better.
    pub fn is_of_the_key(self) -> bool {
        match self {
            Self::RateLimit | Self::Billing | Self::Auth | Self::AuthPermanent => true,
            Self::Overloaded
            | Self::ModelNotFound
            | Self::ContextLength
            | Self::Unsupported
            | Self::Timeout
            | Self::Unreachable
            | Self::Server => false,
        }
    }

    /// The status that goes with it, where the upstream gave none.
    fn status(self) -> u16 {
        match self {
            Self::RateLimit => 429,
            Self::Overloaded => 503,
            Self::Billing => 402,
            Self::Auth | Self::AuthPermanent => 401,
            Self::ModelNotFound => 404,
            Self::ContextLength | Self::Unsupported => 400,
            Self::Timeout => 504,
            Self::Unreachable | Self::Server => NO_STATUS,
        }
    }
}

/// The status of an error that came with 200 and says nothing of its kind: the upstream failed.
const NO_STATUS: u16 = 502;

// === impl ErrorText ===

impl ErrorText {
    /// Its class, with the status that it came with; `None` where that was 200.
    pub(crate) fn failure(&self, status: Option<u16>) -> Option<Failure> {
        let status = status.or(self.status);
        if self.is_of_the_content(status) {
            return None;
        }
        named(&self.code)
            .or_else(|| self.by_words(status))
            .or_else(|| named(&self.kind))
            .or_else(|| by_status(status?))
    }

    pub(crate) fn own_status(&self) -> u16 {
        let of_class = || self.failure(None).map(Failure::status);
        self.status.or_else(of_class).unwrap_or(NO_STATUS)
    }

    /// Whether it is what was said that is refused: the caller's own, which another would refuse as well,
    /// and no word against the key.
    fn is_of_the_content(&self, status: Option<u16>) -> bool {
        const CODES: [&str; 6] = [
            "contentpolicyviolation",
            "contentfilter",
            "moderationblocked",
            "datainspectionfailed",
            "sensitivecontentdetected",
            "inputtextsensitivecontentdetected",
        ];
        let is_code = [&self.code, &self.kind]
            .iter()
            .any(|word| CODES.contains(&squeezed(word).as_str()));
        let words = ["moderation", "flagged", "content policy", "usage policies"];
        is_code || status == Some(403) && self.has(&words)
    }

    fn has(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.words.contains(word))
    }

    /// Words for people, where the status alone does not say enough. Each needs its status: a tool's
    /// "file does not exist" inside a 500 names no missing model.
    fn by_words(&self, status: Option<u16>) -> Option<Failure> {
        let no_credit = self.has(&[
            "credit balance",
            "insufficient credit",
            "insufficient balance",
            "insufficient quota",
            "insufficient funds",
            "exceeded your current quota",
            "payment required",
            "account is in good standing",
        ]);
        // Gemini says that of a minute's quota as well.
        let no_credit = no_credit && squeezed(&self.kind) != "resourceexhausted";
        let no_model = self.has(&["model"])
            && self.has(&["not found", "does not exist", "not a valid model"])
            || self.has(&["no endpoints found", "no allowed providers"])
            || self.words.starts_with("model:");
        let no_location = self.has(&["location is not supported"]);
        let not_here = no_location || self.has(&["region", "country", "territory"]);
        let not_for_us = self.has(&["model"])
            && self.has(&[
                "not available",
                "access",
                "permission",
                "not allowed",
                "opt in",
            ]);
        let no_key = self.has(&["api key not valid", "invalid api key", "incorrect api key"]);
        match status {
            Some(400 | 403 | 429) | None if no_credit => Some(Failure::Billing),
            Some(401..=404 | 408 | 429) => match status {
                Some(404) if no_model => Some(Failure::ModelNotFound),
                Some(401 | 403)
                    if self.has(&[
                        "revoked",
                        "deactivated",
                        "disabled",
                        "deleted",
                        "suspended",
                    ]) =>
                {
                    Some(Failure::AuthPermanent)
                }
                Some(403) if no_model || not_here || not_for_us => Some(Failure::ModelNotFound),
                _ => None,
            },
            _ if self.is_too_long() => Some(Failure::ContextLength),
            Some(400) | None if no_key => Some(Failure::Auth),
            Some(400) | None if no_model || no_location => Some(Failure::ModelNotFound),
            Some(400 | 422 | 501) | None if self.is_unsupported() => Some(Failure::Unsupported),
            None if self.has(&["rate limit", "rate-limit", "too many requests"]) => {
                Some(Failure::RateLimit)
            }
            None if self.has(&["overloaded", "at capacity"]) => Some(Failure::Overloaded),
            _ => None,
        }
    }

    fn is_unsupported(&self) -> bool {
        const WORDS: [&str; 9] = [
            "does not support",
            "do not support",
            "is not supported",
            "are not supported",
            "unsupported parameter",
            "unsupported value",
            "extra inputs are not permitted",
            "roles must alternate",
            "tool choice requires",
        ];
        let is_of_template = self.has(&["chat template", "chat_template", "jinja"]);
        is_of_template || self.has(&WORDS)
    }

    /// Whether it says that the prompt is too long. The providers that say it so stand in
    /// `testdata/failures`.
    fn is_too_long(&self) -> bool {
        const WORDS: [&str; 19] = [
            "prompt is too long",
            "prompt too long",
            "input is too long",
            "prompt exceeds max length",
            "maximum context length",
            "maximum prompt length",
            "maximum allowed input length",
            "exceeds the maximum number of tokens",
            "exceed context limit",
            "exceed max message tokens",
            "exceeded model token limit",
            "token limit exceeded",
            "too many tokens",
            "too many total tokens",
            "reduce the length of the messages",
            "reduce the length of the input",
            "range of input length",
            "`inputs` must have less than",
            "`inputs` tokens + `max_new_tokens` must be",
        ];
        const CONTEXT: [&str; 5] = [
            "context window",
            "context length",
            "context size",
            "context_length",
            "prompt token count",
        ];
        const OVER: [&str; 7] = [
            "exceed",
            "longer than",
            "larger than",
            "greater than",
            "too long",
            "too large",
            "overflow",
        ];
        self.has(&WORDS) || self.has(&CONTEXT) && self.has(&OVER)
    }
}

/// The status of the error in a whole reply that came with status 200; `None` where there is none.
pub fn error_status(reply: &[u8]) -> Option<u16> {
    let body: Value = crate::json::read_bytes(reply).ok()?;
    ErrorText::in_reply(&body).map(|text| text.own_status())
}

/// Codes and types, as programs write them: `rate_limit_exceeded`, `RateLimitExceeded.EndpointRPM`.
fn named(word: &str) -> Option<Failure> {
    let word = word.split('.').next().unwrap_or(word);
    let failure = match squeezed(word).as_str() {
        "ratelimitexceeded"
        | "ratelimiterror"
        | "ratelimitreachederror"
        | "toomanyrequests"
        | "toomanyrequestsexception"
        | "resourceexhausted"
        | "throttling"
        | "throttlingexception"
        | "servicequotaexceededexception" => Failure::RateLimit,
        "overloadederror"
        | "overloaded"
        | "engineoverloadederror"
        | "serveroverloaded"
        | "serviceunavailableexception"
        | "modelnotreadyexception"
        | "queuefull"
        | "unavailable" => Failure::Overloaded,
        "insufficientquota"
        | "insufficientbalance"
        | "insufficientcredits"
        | "exceededcurrentquotaerror"
        | "billingerror"
        | "billingnotactive"
        | "billinghardlimitreached"
        | "paymentrequired"
        | "arrearage"
        | "accountoverdueerror" => Failure::Billing,
        "invalidapikey"
        | "authenticationerror"
        | "invalidauthenticationerror"
        | "tokenexpired"
        | "expiredtokenexception"
        | "unauthenticated"
        // A permission is of one model or route as often as of all: the key may be good for others.
        | "accessdeniedexception"
        | "permissionerror"
        | "permissiondenied"
        | "permissiondeniederror" => Failure::Auth,
        "accountdeactivated" | "keyrevoked" => Failure::AuthPermanent,
        "modelnotfound"
        | "modelnotavailable"
        | "modeldecommissioned"
        | "deploymentnotfound"
        | "invalidendpointormodel"
        | "resourcenotfoundexception"
        | "unsupportedcountryregionterritory" => Failure::ModelNotFound,
        "contextlengthexceeded"
        | "contextwindowexceeded"
        | "modelcontextwindowexceeded"
        | "exceedcontextsizeerror"
        | "stringabovemaxlength"
        | "requesttoolarge" => Failure::ContextLength,
        "unknownparameter" | "unsupportedparameter" | "unsupportedvalue" | "templaterefused" => {
            Failure::Unsupported
        }
        "modeltimeoutexception" => Failure::Timeout,
        _ => return None,
    };
    Some(failure)
}

/// The letters and digits of a word, in lower case: `ModelNotFound` and `model_not_found` are one.
fn squeezed(word: &str) -> String {
    let letters = word.chars().filter(char::is_ascii_alphanumeric);
    letters.map(|c| c.to_ascii_lowercase()).collect()
}

fn by_status(status: u16) -> Option<Failure> {
    match status {
        401 | 403 => Some(Failure::Auth),
        402 => Some(Failure::Billing),
        408 | 504 => Some(Failure::Timeout),
        413 => Some(Failure::ContextLength),
        429 => Some(Failure::RateLimit),
        498 | 503 | 529 => Some(Failure::Overloaded),
        500.. => Some(Failure::Server),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
