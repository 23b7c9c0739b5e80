//! Facts at a moment.

use serde::{Deserialize, Serialize};

use crate::intervals::Interval;

/// The input of the decision. Times are in Unix milliseconds, so that facts of an earlier process are still valid.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// When the last main turn of any agent ended, or none if there was none.
    pub last_main_ms: Option<u64>,
    /// The owner's keyboard and mouse.
    pub keyboard: Keyboard,
    /// Whether the machine runs on battery, or none if that is not known.
    pub on_battery: Option<bool>,
    /// When the owner is busy according to the calendars, over the next two days.
    pub busy: Vec<Interval>,
}

/// The owner's keyboard and mouse.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Keyboard {
    /// It was not checked yet. It counts as used right now.
    #[default]
    Unread,
    /// There is no display, so only turns show whether the owner is present.
    Headless,
    /// There is a display that does not answer. It counts as none.
    Silent {
        /// The source that does not answer.
        source: String,
        why: String,
    },
    /// It was last touched at a known moment.
    Touched {
        /// The source: Wayland, X11, logind or macOS.
        source: String,
        at_ms: u64,
    },
}

// === impl Keyboard ===

impl Keyboard {
    /// Returns when it was last touched, if that keeps a window closed.
    pub(crate) fn touched_ms(&self, now_ms: u64) -> Option<u64> {
        match self {
            Self::Unread => Some(now_ms),
            Self::Headless | Self::Silent { .. } => None,
            Self::Touched { at_ms, .. } => Some(*at_ms),
        }
    }
}
