//! The settings below `turns:` in config.yaml.

use metaclaw_chat::{Size, Span};
use serde::{Deserialize, Serialize};

use crate::error::OpenError;

/// The least memory that sled works with; of less than 256 bytes it panics.
const LEAST_CACHE: Size = Size(256 << 10);

/// When a reply that the agent sees may end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// At once. The turn is in the log some milliseconds later; [`crate::TurnLog::health`] says how
    /// far behind the log is.
    #[default]
    Normal,
    /// After the log has acknowledged the turn. The gateway waits; the log is the same.
    Strict,
}

/// Settings of the turn log: the keys `turns.*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnsConfig {
    /// `turns.enabled`: whether turns are kept. Without, what was kept stays and nothing is added.
    pub enabled: bool,
    /// `turns.durability`.
    pub durability: Durability,
    /// `turns.retention`: sessions that ended longer ago are to be forgotten; the log itself forgets nothing.
    pub retention: Span,
    /// `turns.statistics_retention`: counts by day and agent are to be forgotten after so long.
    pub statistics_retention: Span,
    /// `turns.mask_secrets`: whether keys, tokens and passwords of known shapes are masked before a turn is written.
    pub mask_secrets: bool,
    /// `turns.mask`: regular expressions; what they match is masked too.
    pub mask: Vec<String>,
    /// `turns.cache`: memory that sled may use for pages, 256 KiB at least.
    pub cache: Size,
}

impl Default for TurnsConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            durability: Durability::Normal,
            retention: Span::hours(30 * 24),
            statistics_retention: Span::hours(365 * 24),
            mask_secrets: true,
            mask: Vec::new(),
            cache: Size::mib(8),
        }
    }
}

impl TurnsConfig {
    /// Whether the log can be opened with it.
    ///
    /// # Errors
    /// [`OpenError::Cache`].
    pub fn check(&self) -> Result<(), OpenError> {
        if self.cache < LEAST_CACHE {
            return Err(OpenError::Cache {
                given: self.cache,
                least: LEAST_CACHE,
            });
        }
        Ok(())
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
    }
}
