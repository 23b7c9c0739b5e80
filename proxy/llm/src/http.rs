//! Builds every HTTP client of reqwest, and keeps the token budget for requests to models of other providers (`budget.*`).
//!
//! The clients follow no redirects (a key must not follow one), and neither retry nor decompress by themselves. They use
//! rustls with ring, and trust the certificates that the caller passes.

use std::{sync::Arc, time::Duration};

use reqwest::{ClientBuilder, redirect, retry};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::prices::ModelPrice;

const CONNECT: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(90);
const BRIEF_IDLE: Duration = Duration::from_secs(3);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// reqwest does not accept the settings.
    #[error("the HTTP client cannot be set up: {0}")]
    Client(#[from] reqwest::Error),
}

/// Makes a client for servers anywhere whose certificates are trusted by `roots`. It uses the proxies of the
/// environment.
///
/// # Errors
/// Returns [`HttpError`] if TLS cannot be set up.
pub fn http_client(roots: &Arc<RootCertStore>) -> Result<reqwest::Client, HttpError> {
    Ok(builder(roots)?.build()?)
}

/// Makes such a client for servers that close an idle connection after a few seconds, as uvicorn does after 5. The
/// client does not reuse a connection by then.
///
/// # Errors
/// Returns [`HttpError`] if TLS cannot be set up.
pub fn http_client_with_brief_idle(
    roots: &Arc<RootCertStore>,
) -> Result<reqwest::Client, HttpError> {
    Ok(builder(roots)?.pool_idle_timeout(BRIEF_IDLE).build()?)
}

/// Makes a client for servers on this machine, in plain HTTP. It uses no proxy and trusts no certificate.
///
/// # Errors
/// Returns [`HttpError`] if TLS cannot be set up.
pub fn loopback_client() -> Result<reqwest::Client, HttpError> {
    let none = Arc::new(RootCertStore::empty());
    Ok(builder(&none)?.no_proxy().build()?)
}

fn builder(roots: &Arc<RootCertStore>) -> Result<ClientBuilder, HttpError> {
    Ok(reqwest::Client::builder()
        .tls_backend_preconfigured(tls_config(roots)?)
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .connect_timeout(CONNECT)
        .pool_idle_timeout(IDLE)
        .user_agent(concat!("metaclaw/", env!("CARGO_PKG_VERSION"))))
}

/// Configures TLS with rustls on ring, and trusts `roots`.
///
/// # Errors
/// Fails if the provider supports no version of TLS.
pub fn tls_config(roots: &Arc<RootCertStore>) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(Arc::clone(roots))
        .with_no_client_auth();
    Ok(config)
}

/// Reads the body of an answer. Returns `None` if it has more than `most` bytes.
///
/// # Errors
/// Returns the error of a connection that broke.
pub async fn bounded_body(
    mut answer: reqwest::Response,
    most: usize,
) -> Result<Option<Vec<u8>>, reqwest::Error> {
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await? {
        if body.len() + piece.len() > most {
            return Ok(None);
        }
        body.extend_from_slice(&piece);
    }
    Ok(Some(body))
}

const DAY_MS: u64 = 86_400_000;

/// Settings: the keys `budget.*`.
#[derive(Debug, Clone, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct BudgetConfig {
    /// The token budget for verdicts and lessons, as a share of the tokens that the chat used today.
    /// budget.tokens_per_day is its minimum.
    #[schemars(range(min = 0.0, max = 1.0))]
    #[default(0.05)]
    pub share: f64,
    /// The least token budget of a day, as far as budget.light_share allows it.
    #[default(50_000)]
    pub tokens_per_day: u64,
    /// On a day with little chat, the most of budget.tokens_per_day that may be used, as a share of the tokens that the
    /// chat used today. 2000 tokens may be used on any day. Where no server says how many tokens the chat used, there is
    /// no such limit.
    #[schemars(range(min = 0.0))]
    #[default(0.2)]
    pub light_share: f64,
    /// Prices of models, before the list prices that MetaClaw knows: each "MODEL IN OUT CACHED", in US dollars for a
    /// million tokens, as in "my-model 3 15 0.30". A * at the end of MODEL stands for any rest, and CACHED may be
    /// left out. Other models on this machine cost nothing.
    #[schemars(with = "Vec<String>")]
    pub prices: Vec<ModelPrice>,
}

/// What may be used on a day without chat, so that learning can begin at all: some requests.
const LEAST: u64 = 2_000;

/// Tokens used this day (UTC), and whether any are left. It has no clock of its own.
///
/// A request is allowed while anything is left, so the last one may exceed the budget. It counts for its day.
#[derive(Debug, Clone)]
pub struct Budget {
    config: BudgetConfig,
    spent: Spent,
    is_chat_counted: bool,
}

/// Tokens used on one day.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spent {
    /// Days since 1970, UTC.
    pub day: u64,
    /// Tokens that the chats themselves used, as far as servers reported them.
    pub chat: u64,
    pub learning: u64,
    /// Requests that were answered.
    pub n_answered: u64,
    /// Requests that were not answered.
    pub n_failed: u64,
}

// === impl Budget ===

impl Budget {
    /// Makes a budget of which `spent` is used already.
    pub fn new(config: BudgetConfig, spent: Spent) -> Self {
        Self {
            config,
            spent,
            is_chat_counted: true,
        }
    }

    /// Sets how many tokens the chats have used on the day of `now_ms`, in how many turns.
    pub fn chat_is(&mut self, now_ms: u64, tokens: u64, n_turns: u64) {
        self.today(now_ms).chat = tokens;
        self.is_chat_counted = tokens > 0 || n_turns == 0;
    }

    /// Raises the tokens of requests on the day of `now_ms` to at least this number, because another counter may know
    /// of more.
    pub fn learning_is_at_least(&mut self, now_ms: u64, tokens: u64) {
        let spent = self.today(now_ms);
        spent.learning = spent.learning.max(tokens);
    }

    /// Counts the tokens of an answered request.
    pub fn answered(&mut self, now_ms: u64, tokens: u64) {
        let spent = self.today(now_ms);
        spent.learning = spent.learning.saturating_add(tokens);
        spent.n_answered += 1;
    }

    /// Counts a request that was not answered.
    pub fn failed(&mut self, now_ms: u64) {
        self.today(now_ms).n_failed += 1;
    }

    /// Returns whether another request may be sent.
    pub fn allows(&mut self, now_ms: u64) -> bool {
        let (spent, limit) = self.state(now_ms);
        spent.learning < limit
    }

    /// Returns what is used this day, and the limit for requests in tokens.
    pub fn state(&mut self, now_ms: u64) -> (Spent, u64) {
        let spent = *self.today(now_ms);
        let most_of_least = if self.is_chat_counted {
            share_of(spent.chat, self.config.light_share).max(LEAST)
        } else {
            u64::MAX
        };
        let least = self.config.tokens_per_day.min(most_of_least);
        let of_chat = share_of(spent.chat, self.config.share.min(1.0));
        (spent, of_chat.max(least))
    }

    /// Begins a new day with nothing used. If the clock is set back, what was used counts for the earlier day: the day
    /// before does not begin again at midnight, and after a clock that was years ahead, a new day begins tomorrow.
    fn today(&mut self, now_ms: u64) -> &mut Spent {
        let day = now_ms / DAY_MS;
        if day + 1 < self.spent.day {
            self.spent.day = day;
        }
        if day > self.spent.day {
            self.spent = Spent {
                day,
                ..Spent::default()
            };
        }
        &mut self.spent
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative, and a float as large as u64 is cut to it"
)]
fn share_of(tokens: u64, share: f64) -> u64 {
    (tokens as f64 * share.max(0.0)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 20_000 * DAY_MS;

    fn budget(config: BudgetConfig) -> Budget {
        Budget::new(config, Spent::default())
    }

    fn limit(budget: &mut Budget) -> u64 {
        budget.state(NOW).1
    }

    #[test]
    fn a_day_has_a_share_of_the_chat_or_the_fixed_number_whichever_is_more() {
        let mut budget = budget(BudgetConfig::default());
        for (chat, n_turns, most) in [
            (0, 0, 2_000),
            (9_000, 30, 2_000),
            (14_000, 50, 2_800),
            (100_000, 300, 20_000),
            (400_000, 900, 50_000),
            (2_000_000, 900, 100_000),
            // No server says what the chat used.
            (0, 1, 50_000),
        ] {
            budget.chat_is(NOW, chat, n_turns);
            assert_eq!(limit(&mut budget), most, "{chat} tokens in {n_turns} turns");
        }
        budget.chat_is(NOW, 2_000_000, 1);
        budget.answered(NOW, 99_999);
        assert!(budget.allows(NOW));
        budget.answered(NOW, 2);
        assert!(!budget.allows(NOW));
        assert_eq!(budget.state(NOW).0.n_answered, 2);
    }

    #[test]
    fn share_and_number_are_those_of_the_settings() {
        let config = |text: &str| serde_json::from_str::<BudgetConfig>(text).unwrap();
        for (text, most) in [
            (r#"{"share": 0.5}"#, 500_000),
            (r#"{"share": 0}"#, 50_000),
            (r#"{"share": 0, "tokens_per_day": 70}"#, 70),
            (r#"{"light_share": 0.01}"#, 50_000),
            (r#"{"share": 0, "light_share": 0.01}"#, 10_000),
            (
                r#"{"tokens_per_day": 3000000, "light_share": 9}"#,
                3_000_000,
            ),
            (r#"{"share": -1, "light_share": -1}"#, 2_000),
        ] {
            let mut budget = budget(config(text));
            budget.chat_is(NOW, 1_000_000, 1);
            assert_eq!(limit(&mut budget), most, "{text}");
        }
    }

    #[test]
    fn a_new_day_begins_with_nothing_spent_and_an_old_one_does_not_return() {
        let mut budget = budget(BudgetConfig::default());
        budget.answered(NOW, 60_000);
        assert!(!budget.allows(NOW + DAY_MS - 1));
        assert!(budget.allows(NOW + DAY_MS));
        budget.answered(NOW, 60_000);
        assert!(!budget.allows(NOW + DAY_MS));
    }

    #[test]
    fn a_clock_that_was_ahead_blocks_no_later_day_and_gives_no_day_twice() {
        for ahead in [2, 40, 365, 40 * 365] {
            let mut budget = budget(BudgetConfig::default());
            budget.answered(NOW, 30_000);
            budget.answered(NOW + ahead * DAY_MS, 60_000);
            assert!(!budget.allows(NOW + ahead * DAY_MS));
            let is_so = !budget.allows(NOW);
            assert!(is_so, "{ahead}: what was spent stays spent today");
            assert_eq!(budget.state(NOW).0.learning, 60_000);
            let is_so = budget.allows(NOW + DAY_MS);
            assert!(is_so, "{ahead}: tomorrow is a new day");
        }
    }

    #[test]
    fn what_was_spent_is_spent_after_a_restart() {
        let mut before = budget(BudgetConfig::default());
        before.answered(NOW, 60_000);
        before.failed(NOW);
        let kept = serde_json::to_string(&before.state(NOW).0).unwrap();
        let mut after = Budget::new(
            BudgetConfig::default(),
            serde_json::from_str(&kept).unwrap(),
        );
        assert!(!after.allows(NOW));
        assert_eq!(after.state(NOW), before.state(NOW));
        after.learning_is_at_least(NOW, 50_000);
        assert_eq!(after.state(NOW).0.learning, 60_000);
        after.learning_is_at_least(NOW, 61_000);
        assert_eq!(after.state(NOW).0.learning, 61_000);
    }

    #[test]
    fn a_budget_of_nothing_allows_nothing() {
        let mut budget = budget(BudgetConfig {
            share: -3.0,
            tokens_per_day: 0,
            ..BudgetConfig::default()
        });
        budget.chat_is(NOW, 1_000, 1);
        assert!(!budget.allows(NOW));
    }
}
