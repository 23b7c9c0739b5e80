//! The state on disk, so that a restart loses nothing and `metaclaw scheduler` works without a running proxy.
//!
//! The file `scheduler_state.json` in the home folder: the original's four keys, and our own. It contains times and no
//! text: titles of events are never stored.

use std::fmt;

use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::{
    config::SchedulerConfig,
    decision::{Next, Rules, Window, decide, next_window},
    facts::Facts,
    sleep::timestamp,
};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedState {
    /// `window_open` or `idle_wait`, the original's names.
    pub state: String,
    /// When this was written, in RFC 3339.
    #[serde(default)]
    pub updated_at: String,
    /// The sleep hours, for example `23:00–07:00`.
    #[serde(default)]
    pub sleep_window: String,
    /// `scheduler.idle_minutes`.
    #[serde(default)]
    pub idle_threshold_minutes: u64,
    /// When this was written, in Unix milliseconds.
    #[serde(default)]
    pub updated_ms: u64,
    /// The rules at that time, without calendars.
    #[serde(default)]
    pub rules: SchedulerConfig,
    /// The facts at that time.
    #[serde(default)]
    pub facts: Facts,
    /// When the window was last seen open.
    #[serde(default)]
    pub last_open_ms: Option<u64>,
    /// Calendars that could not be read, and why.
    #[serde(default)]
    pub problems: Vec<String>,
}

/// Why the file cannot be read.
#[derive(Debug)]
pub struct StateError(serde_json::Error);

// === impl SavedState ===

impl SavedState {
    /// Makes the state to write at `now_ms`.
    pub(crate) fn new(config: &SchedulerConfig, window: Window, now_ms: u64) -> Self {
        let state = if window.is_open() {
            "window_open"
        } else {
            "idle_wait"
        };
        let at = timestamp(now_ms).map(|it| it.to_zoned(TimeZone::UTC));
        Self {
            state: state.to_owned(),
            updated_at: at.map_or_else(String::new, |it| it.timestamp().to_string()),
            sleep_window: format!("{}–{}", config.sleep_start, config.sleep_end),
            idle_threshold_minutes: config.idle_minutes,
            updated_ms: now_ms,
            rules: SchedulerConfig {
                ics: Vec::new(),
                ..config.clone()
            },
            facts: Facts::default(),
            last_open_ms: None,
            problems: Vec::new(),
        }
    }

    /// Parses a file's text. The original's file is accepted too, and contains less.
    ///
    /// # Errors
    /// Returns [`StateError`] if the text is not such a file.
    pub fn parse(text: &str) -> Result<Self, StateError> {
        serde_json::from_str(text).map_err(StateError)
    }

    /// Returns whether the window was open at `now_ms` by these facts, and the next window.
    pub fn at(&self, now_ms: u64) -> (Window, Option<Next>) {
        let rules = Rules::new(&self.rules, TimeZone::system());
        let window = decide(&rules, &self.facts, now_ms);
        (window, next_window(&rules, &self.facts, now_ms))
    }

    pub fn text(&self) -> String {
        // The value contains only numbers, texts and lists, which JSON can hold.
        let value = serde_json::to_value(self).unwrap_or_default();
        format!("{value:#}\n")
    }
}

// === impl StateError ===

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it does not say when the window was open: {}", self.0)
    }
}

impl std::error::Error for StateError {}
