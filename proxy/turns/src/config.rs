//! Settings of the section `turns:` in config.yaml.

use metaclaw_chat::{Size, Span};
use serde::{Deserialize, Serialize};

use crate::error::OpenError;

/// The smallest memory with which sled works. With less than 256 bytes it panics.
const LEAST_CACHE: Size = Size(256 << 10);

/// When the agent's reply may end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnsConfig {
    /// `turns.enabled`: whether turns are recorded. If false, existing turns stay and no new ones are added.
    pub enabled: bool,
    /// `turns.durability`.
    pub durability: Durability,
    /// `turns.retention`: age after which ended sessions should be deleted. The log itself deletes nothing.
    pub retention: Span,
    /// `turns.statistics_retention`: age after which the daily counts of agents should be deleted.
    pub statistics_retention: Span,
    /// `turns.mask_secrets`: whether keys, tokens and passwords of known shapes are masked before a turn is written.
    pub mask_secrets: bool,
    /// `turns.mask`: regular expressions. Text that matches them is masked too.
    pub mask: Vec<String>,
    /// `turns.cache`: memory that sled may use for pages, at least 256 KiB.
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
    /// Checks that a log can be opened with these settings.
    ///
    /// # Errors
    /// Returns [`OpenError::Cache`] if the cache is too small.
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
