//! What is known at a moment.

use serde::{Deserialize, Serialize};

use crate::intervals::Interval;

/// What the decision is made from. Times are Unix milliseconds, so that facts of an earlier process still mean something.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// When the last main turn of any agent ended; none: there was none.
    pub last_main_ms: Option<u64>,
    /// The owner's keyboard and mouse.
    pub keyboard: Keyboard,
    /// Whether the machine runs on battery; none: nobody says.
    pub on_battery: Option<bool>,
    /// When the calendars say that the owner is busy, over the next two days.
    pub busy: Vec<Interval>,
}

/// The owner's keyboard and mouse.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Keyboard {
    /// Nobody has looked yet: it counts as used right now.
    #[default]
    Unread,
    /// There is no display: turns alone tell whether the owner is about.
    Headless,
    /// There is a display that does not say: as without one.
    Silent {
        /// Who does not answer.
        source: String,
        why: String,
    },
    /// Touched last at a moment.
    Touched {
        /// Who says so: Wayland, X11, logind or macOS.
        source: String,
        at_ms: u64,
    },
}

// === impl Keyboard ===

impl Keyboard {
    /// When it was last touched, as far as that holds a window shut.
    pub(crate) fn touched_ms(&self, now_ms: u64) -> Option<u64> {
        match self {
            Self::Unread => Some(now_ms),
            Self::Headless | Self::Silent { .. } => None,
            Self::Touched { at_ms, .. } => Some(*at_ms),
        }
    }
}
