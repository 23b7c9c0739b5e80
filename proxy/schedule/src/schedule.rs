//! Holds rules and facts together for all callers.
//!
//! The state on disk, so that a restart loses nothing and `metaclaw scheduler` works without a running proxy.
//!
//! The file `scheduler_state.json` in the home folder: the original's four keys, and our own. It contains times and no
//! text: titles of events are never stored.
//!
//! The power supply of the machine.

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::{
    calendar::{Calendar, CalendarError},
    config::SchedulerConfig,
    decision::{Facts, Keyboard, Next, Rules, Window, decide, next_window},
    intervals::Interval,
    sleep::timestamp,
};

/// How far calendars are read ahead. This is longer than one of them may be unreachable.
const AHEAD_MS: u64 = 48 * 3_600_000;
/// A time server may set the clock back by this much.
const SLEW_MS: u64 = 60_000;

/// The window, as far as it is known. Clones share their state. A query takes a lock and does no IO.
#[derive(Debug, Clone)]
pub struct Schedule(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: SchedulerConfig,
    rules: Rules,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    facts: Facts,
    last_open_ms: Option<u64>,
    problems: Vec<String>,
}

// === impl Schedule ===

impl Schedule {
    /// Makes a schedule from these settings, in the machine's time zone, with the facts of an earlier process.
    pub fn local(config: SchedulerConfig, saved: Option<SavedState>) -> Self {
        Self::new(config, TimeZone::system(), saved)
    }

    /// Makes a schedule from these settings, in the time zone `zone`, with the facts of an earlier process. The
    /// keyboard has to be checked again.
    pub fn new(config: SchedulerConfig, zone: TimeZone, saved: Option<SavedState>) -> Self {
        let known = saved.map(|saved| Known {
            facts: Facts {
                keyboard: Keyboard::Unread,
                ..saved.facts
            },
            last_open_ms: saved.last_open_ms,
            problems: Vec::new(),
        });
        Self(Arc::new(Inner {
            rules: Rules::new(&config, zone),
            known: Mutex::new(known.unwrap_or_default()),
            config,
        }))
    }

    /// Returns whether costly learning may begin at `now_ms`, if the log's last main turn ended at `last_main_ms`.
    pub fn window(&self, now_ms: u64, last_main_ms: Option<u64>) -> Window {
        let mut known = self.known();
        // A turn of the future was written with a clock that was ahead. It would keep the window closed until then.
        let written = known.facts.last_main_ms.into_iter().chain(last_main_ms);
        known.facts.last_main_ms = written
            .filter(|written| *written <= now_ms.saturating_add(SLEW_MS))
            .max();
        let window = decide(&self.0.rules, &known.facts, now_ms);
        if window.is_open() {
            known.last_open_ms = Some(now_ms);
        }
        window
    }

    /// Returns the next window, if nobody chats or types until then.
    pub fn next(&self, now_ms: u64) -> Option<Next> {
        next_window(&self.0.rules, &self.known().facts, now_ms)
    }

    /// Returns when the window was last seen open, in Unix milliseconds.
    pub fn last_open_ms(&self) -> Option<u64> {
        self.known().last_open_ms
    }

    /// Returns when the calendar's owner is busy in the next two days from `now_ms` on.
    ///
    /// # Errors
    /// Returns [`CalendarError::TooMany`] if there are too many occurrences.
    pub fn busy(&self, calendar: &Calendar, now_ms: u64) -> Result<Vec<Interval>, CalendarError> {
        let span = Interval {
            start_ms: now_ms,
            end_ms: now_ms.saturating_add(AHEAD_MS),
        };
        calendar.busy(span, self.0.rules.zone())
    }

    /// Sets the result of a check of the keyboard.
    pub fn set_keyboard(&self, keyboard: Keyboard) {
        self.known().facts.keyboard = keyboard;
    }

    /// Sets the result of a check of the power supplies.
    pub fn set_power(&self, on_battery: Option<bool>) {
        self.known().facts.on_battery = on_battery;
    }

    /// Sets the calendars' busy times. `None` means that no calendar could be read, and the earlier times stay valid.
    pub fn set_calendars(&self, busy: Option<Vec<Interval>>, problems: Vec<String>) {
        let mut known = self.known();
        if let Some(busy) = busy {
            known.facts.busy = busy;
        }
        known.problems = problems;
    }

    /// Returns the state to store at `now_ms`.
    pub fn save(&self, now_ms: u64) -> SavedState {
        let window = self.window(now_ms, None);
        let known = self.known();
        SavedState {
            facts: known.facts.clone(),
            last_open_ms: known.last_open_ms,
            problems: known.problems.clone(),
            ..SavedState::new(&self.0.config, window, now_ms)
        }
    }

    /// If another thread panicked, the facts are still usable, because each change is one assignment.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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
    pub last_open_ms: Option<u64>,
    /// Calendars that could not be read, and why.
    #[serde(default)]
    pub problems: Vec<String>,
}

/// Why the file cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("it does not say when the window was open: {0}")]
pub struct StateError(serde_json::Error);

// === impl SavedState ===

impl SavedState {
    pub(crate) fn new(config: &SchedulerConfig, window: Window, now_ms: u64) -> Self {
        let state = if window.is_open() {
            "window_open"
        } else {
            "idle_wait"
        };
        let at = timestamp(now_ms).map(|time| time.to_zoned(TimeZone::UTC));
        Self {
            state: state.to_owned(),
            updated_at: at.map_or_else(String::new, |time| time.timestamp().to_string()),
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

/// The folder in which Linux describes power supplies. On other systems it does not exist, and the result is unknown.
pub const POWER_SUPPLIES: &str = "/sys/class/power_supply";

/// Returns whether the machine runs on battery: one of its own batteries discharges, and no other supply is plugged in.
/// Returns `None` if `folder` describes neither. A mouse has a battery too (its `scope` is `Device`), which does not
/// count.
pub fn on_battery(folder: &Path) -> Option<bool> {
    let mut discharges = None;
    for supply in fs::read_dir(folder).ok()?.flatten() {
        let read = |name: &str| fs::read_to_string(supply.path().join(name)).unwrap_or_default();
        match read("type").trim() {
            "Battery" if read("scope").trim() != "Device" => {
                let is_discharging = read("status").trim() == "Discharging";
                discharges = Some(discharges.unwrap_or(false) || is_discharging);
            }
            "Mains" | "USB" if read("online").trim() == "1" => return Some(false),
            _ => {}
        }
    }
    discharges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Opening;

    const NOW: u64 = 1_800_000_000_000;
    const MINUTE: u64 = 60_000;

    fn schedule(saved: Option<SavedState>) -> Schedule {
        let config = serde_json::from_str(r#"{"sleep_start":"0:00","sleep_end":"0:00"}"#).unwrap();
        Schedule::new(config, TimeZone::UTC, saved)
    }

    #[test]
    fn a_restart_forgets_nothing_but_the_keyboard() {
        let first = schedule(None);
        first.set_keyboard(Keyboard::Headless);
        first.set_power(Some(false));
        let meeting = Interval {
            start_ms: NOW,
            end_ms: NOW + 60 * MINUTE,
        };
        first.set_calendars(Some(vec![meeting]), vec!["a.ics: gone".to_owned()]);
        assert!(first.window(NOW, None).is_open());
        assert!(!first.window(NOW, Some(NOW)).is_open());
        // An empty log after a deletion does not change the known last turn.
        assert!(!first.window(NOW + MINUTE, None).is_open());
        let text = first.save(NOW + MINUTE).text();
        let saved = SavedState::parse(&text).unwrap();
        assert_eq!(
            (&*saved.state, saved.last_open_ms),
            ("idle_wait", Some(NOW))
        );
        assert_eq!(saved.updated_at, "2027-01-15T08:01:00Z");

        let second = schedule(Some(saved));
        assert_eq!(second.last_open_ms(), Some(NOW));
        assert!(!second.window(NOW + 29 * MINUTE, None).is_open());
        let in_meeting = second.window(NOW + 30 * MINUTE, None);
        let until_ms = Some(NOW + 60 * MINUTE);
        let why = Opening::Meeting;
        assert_eq!(in_meeting, Window::Open { why, until_ms });
    }

    #[test]
    fn a_turn_of_a_clock_that_was_ahead_keeps_no_window_closed() {
        for ahead in [2 * 60, 40 * 24 * 60, 40 * 365 * 24 * 60] {
            let first = schedule(None);
            first.set_keyboard(Keyboard::Headless);
            let wrong = NOW + ahead * MINUTE;
            assert!(!first.window(wrong, Some(wrong)).is_open());
            let second = schedule(SavedState::parse(&first.save(wrong).text()).ok());
            second.set_keyboard(Keyboard::Headless);
            for schedule in [first, second] {
                assert!(schedule.window(NOW, Some(wrong)).is_open(), "{ahead}");
                let is_so = !schedule.window(NOW + MINUTE, Some(NOW)).is_open();
                assert!(is_so, "{ahead}");
                let is_so = schedule.window(NOW + 30 * MINUTE, None).is_open();
                assert!(is_so, "{ahead}");
            }
        }
    }

    #[test]
    fn a_file_of_the_originals_is_read() {
        let text = r#"{"state": "idle_wait", "updated_at": "2026-03-01T10:00:00", "sleep_window": "23:00–07:00", "idle_threshold_minutes": 30}"#;
        let saved = SavedState::parse(text).unwrap();
        assert_eq!(saved.updated_ms, 0);
        assert!(!schedule(Some(saved)).window(NOW, None).is_open());
        assert!(SavedState::parse("[]").is_err());
    }

    /// Returns the result for a machine with these supplies (name, file, text).
    fn machine(files: &[(&str, &str, &str)]) -> Option<bool> {
        let folder = tempfile::tempdir().unwrap();
        for (supply, file, text) in files {
            let supply = folder.path().join(supply);
            fs::create_dir_all(&supply).unwrap();
            fs::write(supply.join(file), format!("{text}\n")).unwrap();
        }
        on_battery(folder.path())
    }

    const BATTERY: (&str, &str, &str) = ("BAT0", "type", "Battery");
    const MAINS: (&str, &str, &str) = ("AC", "type", "Mains");

    #[test]
    fn a_laptop_is_on_battery_when_nothing_is_plugged_in() {
        let discharging = ("BAT0", "status", "Discharging");
        let unplugged = [BATTERY, discharging, MAINS, ("AC", "online", "0")];
        assert_eq!(machine(&unplugged), Some(true));
        // A battery may discharge on a weak charger.
        let plugged = [BATTERY, discharging, MAINS, ("AC", "online", "1")];
        assert_eq!(machine(&plugged), Some(false));
        assert_eq!(machine(&[BATTERY, ("BAT0", "status", "Full")]), Some(false));
    }

    #[test]
    fn a_mouse_is_no_laptop_and_a_server_says_nothing() {
        let mouse = [
            ("mouse", "type", "Battery"),
            ("mouse", "scope", "Device"),
            ("mouse", "status", "Discharging"),
        ];
        assert_eq!(machine(&mouse), None);
        assert_eq!(machine(&[]), None);
        assert_eq!(on_battery(Path::new("/nonexistent")), None);
    }
}
