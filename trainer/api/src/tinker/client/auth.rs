//! The key, or the token that some servers give in exchange for it.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;
use tokio::{sync::Mutex, time::Instant};

use crate::{ApiKey, BackendError};

/// The lifetime of a token that does not contain one.
const USUAL_LIFE: Duration = Duration::from_secs(600);

/// The credentials of requests.
#[derive(Debug)]
pub(super) struct Auth {
    key: ApiKey,
    by_token: AtomicBool,
    token: Mutex<Option<AccessToken>>,
}

struct AccessToken {
    text: String,
    /// Half of its lifetime is over at this time.
    renew_at: Instant,
}

impl std::fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// The answer to the exchange of a key.
#[derive(Deserialize)]
pub(super) struct Exchanged {
    jwt: String,
}

// === impl Auth ===

impl Auth {
    pub(super) fn new(key: ApiKey) -> Self {
        Self {
            key,
            by_token: AtomicBool::new(false),
            token: Mutex::new(None),
        }
    }

    /// Notes whether the server wants tokens in place of keys.
    pub(super) fn set_by_token(&self, by_token: bool) {
        self.by_token.store(by_token, Ordering::Relaxed);
    }

    pub(super) fn is_by_token(&self) -> bool {
        self.by_token.load(Ordering::Relaxed)
    }

    /// The credential to send now: the key, or a token that is valid for a while. `exchange` gets a token for the key.
    ///
    /// # Errors
    /// Returns the errors of the exchange.
    pub(super) async fn token(
        &self,
        exchange: impl AsyncFnOnce(&str) -> Result<Exchanged, BackendError>,
    ) -> Result<String, BackendError> {
        if !self.is_by_token() {
            return Ok(self.key.expose().to_owned());
        }
        let mut kept = self.token.lock().await;
        if let Some(token) = kept.as_ref().filter(|it| Instant::now() < it.renew_at) {
            return Ok(token.text.clone());
        }
        let Exchanged { jwt } = exchange(self.key.expose()).await?;
        let half = life(&jwt).unwrap_or(USUAL_LIFE) / 2;
        *kept = Some(AccessToken {
            text: jwt.clone(),
            renew_at: Instant::now() + half,
        });
        Ok(jwt)
    }

    /// Records that this token was refused.
    pub(super) async fn forget(&self, refused: &str) {
        let mut kept = self.token.lock().await;
        if kept.as_ref().is_some_and(|it| it.text == refused) {
            *kept = None;
        }
    }
}

/// The remaining life of a token, from its own claims.
fn life(jwt: &str) -> Option<Duration> {
    let claims = jwt.split('.').nth(1)?;
    let claims = URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Duration::from_secs(claims["exp"].as_u64()?).checked_sub(now)
}
