//! Sleep hours: from one local time of day to another, past midnight if the second is the earlier one.

use jiff::{Timestamp, ToSpan as _, civil::Date, tz::TimeZone};

use crate::{config::TimeOfDay, intervals::Interval};

/// The time in which the owner sleeps.
#[derive(Debug, Clone)]
pub struct SleepHours {
    start: TimeOfDay,
    end: TimeOfDay,
    pub(crate) zone: TimeZone,
}

// === impl SleepHours ===

impl SleepHours {
    /// Makes sleep hours from `start` to `end` in the time zone `zone`. If both are equal, there are none.
    pub fn new(start: TimeOfDay, end: TimeOfDay, zone: TimeZone) -> Self {
        Self { start, end, zone }
    }

    /// Returns the nights around a moment: of the day before, the day itself, and the day after.
    ///
    /// A time that the clocks skip in spring means the time an hour later. A time that occurs twice in autumn means the
    /// first one.
    pub(crate) fn around(&self, now_ms: u64) -> Vec<Interval> {
        if self.start == self.end {
            return Vec::new();
        }
        let Some(now) = timestamp(now_ms) else {
            return Vec::new();
        };
        let today = now.to_zoned(self.zone.clone()).date();
        let days = [-1, 0, 1].map(|n: i64| today.checked_add(n.days()).ok());
        days.into_iter()
            .flatten()
            .filter_map(|day| self.night(day))
            .collect()
    }

    fn night(&self, day: Date) -> Option<Interval> {
        let past_midnight = self.end.0 < self.start.0;
        let last = day.checked_add(i64::from(past_midnight).days()).ok()?;
        Some(Interval {
            start_ms: self.instant(day, self.start)?,
            end_ms: self.instant(last, self.end)?,
        })
    }

    fn instant(&self, day: Date, time: TimeOfDay) -> Option<u64> {
        let zoned = day.to_datetime(time.0).to_zoned(self.zone.clone()).ok()?;
        u64::try_from(zoned.timestamp().as_millisecond()).ok()
    }
}

/// Formats the local time of a moment, as in `14:05`. If its day is not that of `now_ms`, the day is added, as in
/// `Tue 14:05`.
pub fn local_clock(at_ms: u64, now_ms: u64) -> String {
    let zone = TimeZone::system();
    let local = |ms: u64| timestamp(ms).map(|time| time.to_zoned(zone.clone()));
    let Some(at) = local(at_ms) else {
        return "?".to_owned();
    };
    let is_today = local(now_ms).is_some_and(|now| now.date() == at.date());
    let form = if is_today { "%H:%M" } else { "%a %H:%M" };
    at.strftime(form).to_string()
}

/// Clamps a moment to what jiff can hold.
pub(crate) fn timestamp(ms: u64) -> Option<Timestamp> {
    Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether a moment is in the sleep hours, in Berlin's time zone.
    fn sleeps(start: &str, end: &str, at: &str) -> bool {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let hours = SleepHours::new(start.parse().unwrap(), end.parse().unwrap(), zone);
        let now: Timestamp = at.parse().unwrap();
        let now_ms = u64::try_from(now.as_millisecond()).unwrap();
        hours.around(now_ms).iter().any(|n| n.covers(now_ms))
    }

    #[test]
    fn a_night_goes_past_midnight() {
        let at = |at: &str| sleeps("23:00", "07:00", at);
        for (time, asleep) in [
            ("2026-01-10T22:59:59+01", false),
            ("2026-01-10T23:00:00+01", true),
            ("2026-01-11T00:00:00+01", true),
            ("2026-01-11T06:59:59+01", true),
            ("2026-01-11T07:00:00+01", false),
            ("2026-01-11T12:00:00+01", false),
        ] {
            assert_eq!(at(time), asleep, "{time}");
        }
    }

    #[test]
    fn a_nap_does_not_and_the_same_time_twice_is_none() {
        assert!(sleeps("13:00", "15:00", "2026-06-01T13:00:00+02"));
        assert!(!sleeps("13:00", "15:00", "2026-06-01T01:00:00+02"));
        for hour in 0..24 {
            let at = format!("2026-06-01T{hour:02}:00:00+02");
            assert!(!sleeps("07:00", "07:00", &at));
        }
    }

    fn length(start: &str, end: &str, day: Date) -> u64 {
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let hours = SleepHours::new(start.parse().unwrap(), end.parse().unwrap(), zone);
        let night = hours.night(day).unwrap();
        night.end_ms - night.start_ms
    }

    #[test]
    fn the_night_of_the_spring_change_is_an_hour_shorter() {
        let hours = |n: u64| n * 3_600_000;
        let saturday = jiff::civil::date(2026, 3, 28);
        assert_eq!(length("23:00", "07:00", saturday), hours(7));
        // 02:30 is skipped and means 03:30.
        assert!(!sleeps("02:30", "07:00", "2026-03-29T01:59:59+01"));
        assert!(!sleeps("02:30", "07:00", "2026-03-29T03:29:00+02"));
        assert!(sleeps("02:30", "07:00", "2026-03-29T03:30:00+02"));
        assert!(sleeps("23:00", "02:30", "2026-03-29T03:29:00+02"));
    }

    #[test]
    fn the_night_of_the_autumn_change_is_an_hour_longer() {
        let hours = |n: u64| n * 3_600_000;
        let saturday = jiff::civil::date(2026, 10, 24);
        assert_eq!(length("23:00", "07:00", saturday), hours(9));
        // 02:30 occurs twice. The first one begins the night, and ends it.
        assert!(!sleeps("02:30", "07:00", "2026-10-25T02:29:00+02"));
        assert!(sleeps("02:30", "07:00", "2026-10-25T02:30:00+02"));
        assert!(sleeps("02:30", "07:00", "2026-10-25T02:10:00+01"));
        assert!(!sleeps("23:00", "02:30", "2026-10-25T02:30:00+02"));
    }
}
