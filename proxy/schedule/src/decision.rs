//! Decides whether the window is open. This is a pure function of rules, facts and a clock.
//!
//! Facts at a moment.

#[cfg(test)]
mod tests;

use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::{
    config::SchedulerConfig,
    intervals::{Interval, covered_until},
    sleep::SleepHours,
};

const MINUTE_MS: u64 = 60_000;
/// In sleep hours the owner counts as awake for so long after the last turn, or for `idle_minutes` if that is shorter.
const AWAKE_MS: u64 = 5 * MINUTE_MS;

/// The settings in the form that the decision uses.
#[derive(Debug, Clone)]
pub struct Rules {
    idle_ms: u64,
    min_window_ms: u64,
    sleep: SleepHours,
    may_on_battery: bool,
}

/// Whether costly learning may begin now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, derive_more::Display)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Window {
    #[display("costly learning may run: {why}")]
    Open {
        why: Opening,
        /// The latest end in Unix milliseconds. If none, the window is open until the owner returns.
        until_ms: Option<u64>,
    },
    #[display("costly learning waits: {why}")]
    Closed { why: Obstacle },
}

/// Why the owner counts as away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, derive_more::Display)]
#[serde(rename_all = "snake_case")]
pub enum Opening {
    /// Nobody has chatted or typed for `scheduler.idle_minutes`.
    #[display("nothing was said or typed for a while")]
    Idle,
    #[display("these are sleep hours")]
    SleepHours,
    /// The calendar has a meeting.
    #[display("the calendar says that you are busy")]
    Meeting,
}

/// Why the window is closed. Times say when this reason ends if nothing more happens, in Unix milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, derive_more::Display)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Obstacle {
    /// The machine runs on battery.
    #[display("the machine runs on battery")]
    OnBattery,
    /// A main turn ended less than `scheduler.idle_minutes` ago, or less than five minutes in sleep hours.
    #[display("you chatted a moment ago")]
    Chatting { until_ms: u64 },
    /// The keyboard was touched less than `scheduler.idle_minutes` ago.
    #[display("the keyboard is in use")]
    InUse { until_ms: u64 },
    /// The keyboard was not checked yet, just after the start.
    #[display("whether you are away is looked at in a moment")]
    Unread,
    /// The owner is busy or asleep for less than `scheduler.min_window_minutes` more.
    #[display("too little is left of the time that you are away")]
    TooShort { until_ms: u64 },
}

/// The next window, if nobody chats or types until then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Next {
    /// When it opens, in Unix milliseconds.
    pub at_ms: u64,
    /// Why it opens.
    pub why: Opening,
    /// The latest end. If none, the window is open until the owner returns.
    pub until_ms: Option<u64>,
}

// === impl Rules ===

impl Rules {
    /// Makes rules from the settings, in the time zone `zone`.
    pub fn new(config: &SchedulerConfig, zone: TimeZone) -> Self {
        Self {
            idle_ms: config.idle_minutes.saturating_mul(MINUTE_MS),
            min_window_ms: config.min_window_minutes.saturating_mul(MINUTE_MS),
            sleep: SleepHours::new(config.sleep_start, config.sleep_end, zone),
            may_on_battery: config.on_battery,
        }
    }

    pub(crate) fn zone(&self) -> &TimeZone {
        &self.sleep.zone
    }

    fn awake_ms(&self) -> u64 {
        self.idle_ms.min(AWAKE_MS)
    }
}

/// Decides whether the window is open at `now_ms`.
///
/// On battery the window is closed, unless that is allowed. It is also closed if a main turn ended within
/// `scheduler.idle_minutes`; in sleep hours within five minutes, because an owner who chats at night is awake. Otherwise
/// it is open while the owner is away from the keyboard (without a display: always), asleep, or in a meeting. Sleep and
/// meetings count only if enough time of them is left.
///
/// # Examples
/// ```
/// use jiff::tz::TimeZone;
/// use metaclaw_schedule::{Facts, Keyboard, Rules, SchedulerConfig, decide};
///
/// let rules = Rules::new(&SchedulerConfig::default(), TimeZone::UTC);
/// let minute = 60_000;
/// let facts = Facts { last_main_ms: Some(0), keyboard: Keyboard::Headless, ..Facts::default() };
/// assert!(!decide(&rules, &facts, minute).is_open(), "the owner is in a conversation");
/// assert!(decide(&rules, &facts, 600 * minute).is_open(), "and has been away for hours");
/// ```
pub fn decide(rules: &Rules, facts: &Facts, now_ms: u64) -> Window {
    let closed = |why| Window::Closed { why };
    if facts.on_battery == Some(true) && !rules.may_on_battery {
        return closed(Obstacle::OnBattery);
    }
    let nights = rules.sleep.around(now_ms);
    let is_night = nights.iter().any(|night| night.covers(now_ms));
    let not_over = |at_ms: Option<u64>, pause_ms: u64| {
        at_ms
            .map(|at_ms| at_ms.saturating_add(pause_ms))
            .filter(|until_ms| now_ms < *until_ms)
    };
    let pause_ms = if is_night {
        rules.awake_ms()
    } else {
        rules.idle_ms
    };
    if let Some(until_ms) = not_over(facts.last_main_ms, pause_ms) {
        return closed(Obstacle::Chatting { until_ms });
    }
    // In the first minutes of the night, a turn may be what keeps the owner from counting as idle.
    let last_seen_ms = facts.last_main_ms.max(facts.keyboard.touched_ms(now_ms));
    let Some(until_ms) = not_over(last_seen_ms, rules.idle_ms) else {
        let (why, until_ms) = (Opening::Idle, None);
        return Window::Open { why, until_ms };
    };
    let away: Vec<Interval> = nights.iter().chain(&facts.busy).copied().collect();
    match covered_until(&away, now_ms) {
        None if matches!(facts.keyboard, Keyboard::Unread) => closed(Obstacle::Unread),
        None => closed(Obstacle::InUse { until_ms }),
        Some(back_ms) if back_ms - now_ms < rules.min_window_ms => {
            closed(Obstacle::TooShort { until_ms: back_ms })
        }
        Some(back_ms) => Window::Open {
            why: if is_night {
                Opening::SleepHours
            } else {
                Opening::Meeting
            },
            until_ms: Some(back_ms),
        },
    }
}

/// Returns the next window if nobody chats or types from `now_ms` on. On battery it returns `None`, because the end of
/// that is not known.
pub fn next_window(rules: &Rules, facts: &Facts, now_ms: u64) -> Option<Next> {
    let touched = facts.keyboard.touched_ms(now_ms);
    let ends = [
        (facts.last_main_ms, rules.awake_ms()),
        (facts.last_main_ms, rules.idle_ms),
        (touched, rules.idle_ms),
    ];
    let ends = ends
        .into_iter()
        .filter_map(|(at_ms, pause_ms)| Some(at_ms?.saturating_add(pause_ms)));
    let nights = rules.sleep.around(now_ms);
    let starts = nights.iter().chain(&facts.busy).map(|night| night.start_ms);
    let mut moments: Vec<u64> = ends.chain(starts).filter(|ms| *ms > now_ms).collect();
    moments.push(now_ms);
    moments.sort_unstable();
    // The prediction assumes that nobody touches the keyboard from here on, even if it was not checked yet.
    let mut facts = facts.clone();
    if let (Keyboard::Unread, Some(at_ms)) = (&facts.keyboard, touched) {
        let source = String::new();
        facts.keyboard = Keyboard::Touched { source, at_ms };
    }
    moments.into_iter().find_map(|at_ms| {
        let window = decide(rules, &facts, at_ms);
        window.opening().map(|(why, until_ms)| Next {
            at_ms,
            why,
            until_ms,
        })
    })
}

// === impl Window ===

impl Window {
    /// Returns whether the window is open.
    pub fn is_open(&self) -> bool {
        self.opening().is_some()
    }

    fn opening(&self) -> Option<(Opening, Option<u64>)> {
        match self {
            Self::Open { why, until_ms } => Some((*why, *until_ms)),
            Self::Closed { .. } => None,
        }
    }
}

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
    Silent { source: String, why: String },
    /// It was last touched at a known moment.
    Touched { source: String, at_ms: u64 },
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
