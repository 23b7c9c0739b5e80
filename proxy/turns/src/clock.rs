//! Readings of the machine's clock, because nothing may be deleted since one reading says that it is old.
//!
//! A clock can be wrong: its battery was empty, a machine was restored, a time server lied. The proxy therefore notes
//! what the clock shows again and again, each time with how long it has run. It counts its running by a timer that no
//! setting of the clock moves and that stands still while the machine sleeps. An age is confirmed if the clock agreed with
//! it at each reading over a day of running. The file `clock` in the log's folder keeps the readings over restarts.

use std::{collections::VecDeque, fs, io, path::Path, time::Duration};

use metaclaw_chat::{Span, whole_ms};
use serde::{Deserialize, Serialize};

use crate::folder::write;

const FILE: &str = "clock";
const HOUR_MS: u64 = 3_600_000;
/// The running over which readings must agree. For a shorter age, readings over as much running as the age are enough.
const CONFIRMED_OVER_MS: u64 = 24 * HOUR_MS;
/// A clock that gained more than this between two readings is reported. A shorter time is a weekend away.
const FAR_AHEAD_MS: i128 = 7 * 24 * 3_600_000;
/// A clock that lost more than this between two readings is reported.
const FAR_BEHIND_MS: i128 = 3_600_000;
/// A day of running has 145 readings, and one more for each start.
const MAX_READINGS: usize = 1_000;

/// What the clock showed over the last day of running.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClockReadings {
    /// How long proxies have run over this log, in milliseconds.
    ran_ms: u64,
    /// How long they had run at each reading, and what the clock showed, in Unix milliseconds. The oldest is first.
    // pair: two times of one moment
    readings: VecDeque<(u64, u64)>,
}

// === impl ClockReadings ===

impl ClockReadings {
    /// Reads what is kept in a log's folder. What cannot be read counts as nothing, and nothing is old then.
    pub fn read(dir: &Path) -> Self {
        let kept = fs::read(dir.join(FILE)).unwrap_or_default();
        serde_json::from_slice(&kept).unwrap_or_default()
    }

    pub(crate) fn write(&self, dir: &Path) -> io::Result<()> {
        let new = dir.join("clock.new");
        write(&new, &serde_json::to_string(self)?)?;
        fs::rename(new, dir.join(FILE))
    }

    pub(crate) fn add(&mut self, ran: Duration, clock_ms: u64) {
        self.ran_ms = self.ran_ms.saturating_add(whole_ms(ran));
        self.readings.push_back((self.ran_ms, clock_ms));
        // The last reading from before the day stays, because the day begins with it.
        let begins = self.before(CONFIRMED_OVER_MS).unwrap_or_default();
        let too_many = self.readings.len().saturating_sub(MAX_READINGS);
        self.readings.drain(..begins.max(too_many));
    }

    /// Returns the latest time that has passed by each reading over a day of running, or over as much running as `age`
    /// if that is shorter. Returns `None` if the proxy has not run for so long.
    pub fn confirmed_ms(&self, age: Duration, now_ms: u64) -> Option<u64> {
        let first = self.before(whole_ms(age).min(CONFIRMED_OVER_MS))?;
        let least = self
            .readings
            .range(first..)
            .map(|(_, clock_ms)| *clock_ms)
            .min()?;
        Some(least.min(now_ms))
    }

    /// Says how the clock stands far from where the readings over the last day of running let expect it: it is behind the
    /// first of them, or stands where it jumped ahead between two of them.
    pub fn doubt(&self, now_ms: u64) -> Option<String> {
        let all = self.readings.iter().copied().chain([(self.ran_ms, now_ms)]);
        let ahead = all.map(|(ran_ms, clock_ms)| i128::from(clock_ms) - i128::from(ran_ms));
        let now = i128::from(now_ms) - i128::from(self.ran_ms);
        let mut steps = ahead.clone().zip(ahead.clone().skip(1));
        let is_far = |from, to| to - from > FAR_AHEAD_MS;
        let jump = steps.find(|(from, to)| is_far(*from, *to) && is_far(*from, now));
        let jumped = jump.map(|(from, _)| now - from);
        let gained = ahead.take(1).map(|first| now - first).next()?;
        let by_ms = match jumped {
            // It was behind before the jump if it has not gained so much in all.
            Some(by_ms) if gained > FAR_AHEAD_MS => by_ms,
            Some(_) | None => Some(gained).filter(|gained| *gained < -FAR_BEHIND_MS)?,
        };
        let hours = u64::try_from(by_ms.unsigned_abs()).unwrap_or(u64::MAX) / HOUR_MS;
        let by = Span::hours(if hours < 48 { hours } else { hours / 24 * 24 });
        let how = if by_ms > 0 { "ahead of" } else { "behind" };
        Some(format!(
            "the machine's clock is {by} {how} the last turn or the last time that the proxy ran: set it if it is wrong. Until the proxy has run for a day with it, nothing is deleted that is old by this clock alone"
        ))
    }

    fn before(&self, apart_ms: u64) -> Option<usize> {
        let is_before = |(ran_ms, _): &(u64, u64)| ran_ms.saturating_add(apart_ms) <= self.ran_ms;
        self.readings.iter().rposition(is_before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = HOUR_MS.cast_signed();
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    const NOW: u64 = 1_800_000_000_000;
    const MONTH: Duration = Duration::from_secs(30 * 24 * 3_600);

    /// Readings at these hours of running, and by how much the clock was wrong then. The last is the present one.
    fn readings(at: &[(u64, i64)]) -> (ClockReadings, u64) {
        let mut readings = ClockReadings::default();
        let (mut ran, mut clock) = (0, NOW);
        for (hours, wrong) in at {
            clock = (NOW + hours * HOUR_MS).saturating_add_signed(*wrong);
            readings.add(Duration::from_secs((hours - ran) * 3_600), clock);
            ran = *hours;
        }
        (readings, clock)
    }

    #[test]
    fn an_age_is_confirmed_by_each_reading_over_a_day_of_running() {
        let hours = |n: u64| Some(NOW + n * HOUR_MS);
        for (at, confirmed) in [
            (&[][..], None),
            (&[(0, 0)], None),
            (&[(0, 0), (23, 0)], None),
            (&[(0, 0), (24, 0)], hours(0)),
            (&[(0, 0), (12, 0), (24, 0), (30, 0), (36, 0)], hours(12)),
            // It jumps ahead, and is put right before a day is over.
            (&[(0, 0), (24, 0), (25, 40 * DAY), (47, 40 * DAY)], hours(0)),
            (&[(0, 40 * DAY), (23, 40 * DAY), (24, 0)], hours(24)),
            (
                &[(0, YEAR), (1, 0), (2, 40 * YEAR), (25, 40 * YEAR)],
                hours(1),
            ),
            // It was behind.
            (&[(0, 0), (20, -5 * HOUR), (24, 0)], hours(0)),
            (&[(0, 0), (2, -5 * HOUR), (24, 0)], Some(NOW - 3 * HOUR_MS)),
        ] {
            let (readings, clock) = readings(at);
            assert_eq!(readings.confirmed_ms(MONTH, clock), confirmed, "{at:?}");
        }
        let (short, clock) = readings(&[(0, 0), (1, 0), (2, 0)]);
        assert_eq!(
            short.confirmed_ms(Duration::from_secs(3_600), clock),
            hours(1)
        );
        assert_eq!(
            short.confirmed_ms(Duration::from_secs(3_600), clock - 3 * HOUR_MS),
            Some(clock - 3 * HOUR_MS)
        );
    }

    #[test]
    fn a_clock_that_is_far_from_the_last_readings_is_reported_until_it_is_right_or_confirmed() {
        for (at, said) in [
            (&[][..], ""),
            (&[(0, 0)], ""),
            (&[(0, 0), (8, 0), (8, 16 * HOUR)], ""),
            (&[(0, 0), (8, 6 * DAY)], ""),
            (&[(0, 0), (1, 40 * DAY)], "40 d ahead"),
            (&[(0, 0), (1, 40 * DAY), (2, 40 * DAY)], "40 d ahead"),
            (&[(0, 0), (1, 40 * DAY), (2, 0)], ""),
            (&[(0, 0), (1, 2 * HOUR), (2, 0)], ""),
            (&[(0, 0), (1, 3 * DAY), (2, 40 * DAY), (3, 0)], ""),
            (&[(0, 0), (1, -10 * YEAR), (2, 0)], ""),
            (&[(0, 0), (0, 40 * YEAR)], "14600 d ahead"),
            (&[(0, 0), (1, -2 * HOUR)], "2 h behind"),
            (&[(0, 0), (1, -10 * YEAR), (5, -10 * YEAR + HOUR)], "behind"),
            (&[(0, 0), (1, -10 * YEAR), (5, -10 * YEAR)], "3650 d behind"),
            (&[(0, 0), (1, 40 * DAY), (2, 20 * DAY)], "20 d ahead"),
            (&[(0, 0), (1, 40 * DAY), (2, 40 * DAY), (26, 40 * DAY)], ""),
        ] {
            let (readings, clock) = readings(at);
            let doubt = readings.doubt(clock).unwrap_or_default();
            assert!(
                doubt.contains(said) && doubt.is_empty() == said.is_empty(),
                "{at:?}: {doubt}"
            );
        }
    }

    #[test]
    fn readings_are_kept_in_a_file_and_bounded() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(ClockReadings::read(dir.path()), ClockReadings::default());
        let mut readings = ClockReadings::default();
        for n in 0..3_000 {
            readings.add(Duration::from_secs(600), NOW + n * 600_000);
        }
        assert_eq!(readings.readings.len(), 145);
        for _ in 0..3_000 {
            readings.add(Duration::ZERO, NOW);
        }
        assert_eq!(readings.readings.len(), MAX_READINGS);
        readings.write(dir.path()).unwrap();
        assert_eq!(ClockReadings::read(dir.path()), readings);
        fs::write(dir.path().join(FILE), "{").unwrap();
        assert_eq!(ClockReadings::read(dir.path()), ClockReadings::default());
    }
}
