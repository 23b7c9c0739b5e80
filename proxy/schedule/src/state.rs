//! What is kept on disk, so that a restart forgets nothing and `metaclaw scheduler` can tell without a running proxy.
//!
//! `scheduler_state.json` in the home: the original's four keys, and ours beside them. Times and no words: titles of
//! events are never kept.

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
    /// `window_open` or `idle_wait`, as the original calls them.
    pub state: String,
    /// When this was written, as in RFC 3339.
    #[serde(default)]
    pub updated_at: String,
    /// The sleep hours, as in `23:00–07:00`.
    #[serde(default)]
    pub sleep_window: String,
    /// `scheduler.idle_minutes`.
    #[serde(default)]
    pub idle_threshold_minutes: u64,
    /// When this was written, in Unix milliseconds.
    #[serde(default)]
    pub updated_ms: u64,
    /// The rules that held then; calendars are left out.
    #[serde(default)]
    pub rules: SchedulerConfig,
    /// What was known then.
    #[serde(default)]
    pub facts: Facts,
    /// When the window was last seen open.
    #[serde(default)]
    pub last_open_ms: Option<u64>,
    /// Calendars that could not be read, and why.
    #[serde(default)]
    pub problems: Vec<String>,
}

/// Why the file is none.
#[derive(Debug)]
pub struct StateError(serde_json::Error);

// === impl SavedState ===

impl SavedState {
    /// What is to be written at `now_ms`.
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

    /// Reads a file's text; one of the original's is understood, and knows less.
    ///
    /// # Errors
    /// [`StateError`]: it is no such file.
    pub fn parse(text: &str) -> Result<Self, StateError> {
        serde_json::from_str(text).map_err(StateError)
    }

    /// Whether the window was open at `now_ms` by what is known here, and which is the next one.
    pub fn at(&self, now_ms: u64) -> (Window, Option<Next>) {
        let rules = Rules::new(&self.rules, TimeZone::system());
        let window = decide(&rules, &self.facts, now_ms);
        (window, next_window(&rules, &self.facts, now_ms))
    }

    pub fn text(&self) -> String {
        // Of numbers, texts and lists only, which JSON can hold.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

// === impl StateError ===

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it does not say when the window was open: {}", self.0)
    }
}

impl std::error::Error for StateError {}
