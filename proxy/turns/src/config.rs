//! Settings of the section `turns:` in config.yaml.

use metaclaw_chat::{Size, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::error::OpenError;

/// The smallest memory with which sled works. With less than 256 bytes it panics.
const LEAST_CACHE: Size = Size(256 << 10);
/// Shorter times are taken for a missing unit.
const LEAST_RETENTION: Span = Span::hours(1);

/// When a reply that the agent sees may end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// The reply ends at once. The turn is in the log a few milliseconds later. [`crate::TurnLog::health`] says how far
    /// behind the log is.
    #[default]
    Normal,
    /// The reply ends after the log has acknowledged the turn. The gateway waits. The log works in the same way.
    Strict,
}

/// Settings of the turn log: the keys `turns.*`.
#[derive(Debug, Clone, SmartDefault, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TurnsConfig {
    /// Keeps turns. With false, chats only pass through, and MetaClaw learns nothing from them. What was kept stays.
    #[default(true)]
    pub enabled: bool,
    /// When a reply may end for the agent. With strict, it ends only after its turn is on disk.
    #[default(Durability::Normal)]
    pub durability: Durability,
    /// Memory for the pages of the store, at least 256 KiB.
    #[default(Size::mib(8))]
    pub cache: Size,
    /// How long sessions are kept after their end, at least an hour (docs/using/privacy.md). What was learned from them
    /// stays, and so do the counts.
    #[default(Span::hours(30 * 24))]
    pub retention: Span,
    /// How long counts by day and agent are kept (turns, verdicts, tokens, lessons). They hold no words of a chat.
    #[default(Span::hours(365 * 24))]
    pub statistics_retention: Span,
    /// Masks keys, tokens and passwords of known shapes before a turn is written. Such a turn is not trained on.
    #[default(true)]
    pub mask_secrets: bool,
    /// Regular expressions. What they match is masked as well.
    pub mask: Vec<String>,
}

impl TurnsConfig {
    /// Checks that a log can be opened with these settings.
    ///
    /// # Errors
    /// Returns [`OpenError::Cache`] if the cache is too small, and [`OpenError::Retention`] if turns would be removed within
    /// the hour, as by `14` where 14 days are meant.
    pub fn check(&self) -> Result<(), OpenError> {
        if self.cache < LEAST_CACHE {
            return Err(OpenError::Cache {
                given: self.cache,
                least: LEAST_CACHE,
            });
        }
        let spans = [
            ("turns.retention", self.retention),
            ("turns.statistics_retention", self.statistics_retention),
        ];
        match spans.into_iter().find(|(_, span)| *span < LEAST_RETENTION) {
            Some((key, given)) => Err(OpenError::Retention {
                key,
                given,
                least: LEAST_RETENTION,
            }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_section_is_the_defaults() {
        let config: TurnsConfig = serde_json::from_str("{}").unwrap();
        assert_eq!(config, TurnsConfig::default());
        assert!(config.check().is_ok());
        let strict: TurnsConfig =
            serde_json::from_str(r#"{"durability":"strict","cache":"32 MiB"}"#).unwrap();
        assert_eq!(strict.durability, Durability::Strict);
        assert_eq!(strict.cache, Size::mib(32));
        let bare: TurnsConfig = serde_json::from_str(r#"{"retention":"14"}"#).unwrap();
        let error = bare.check().unwrap_err().to_string();
        let refused = "turns.retention: 14 s is not allowed: at least 1 h";
        assert!(error.starts_with(refused), "{error}");
    }
}
