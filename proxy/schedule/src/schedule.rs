//! Holds rules and facts together for all callers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::tz::TimeZone;

use crate::{
    calendar::{Calendar, CalendarError},
    config::SchedulerConfig,
    decision::{Next, Rules, Window, decide, next_window},
    facts::{Facts, Keyboard},
    intervals::Interval,
    state::SavedState,
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
    /// Calendars that could not be read, and why.
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
            .filter(|it| *it <= now_ms.saturating_add(SLEW_MS))
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
                assert!(
                    !schedule.window(NOW + MINUTE, Some(NOW)).is_open(),
                    "{ahead}"
                );
                assert!(
                    schedule.window(NOW + 30 * MINUTE, None).is_open(),
                    "{ahead}"
                );
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
}
