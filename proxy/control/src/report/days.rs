//! Days of the owner's clock, and their beginnings in Unix milliseconds.

use jiff::{Timestamp, ToSpan, civil::Date, tz::TimeZone};
use serde::{Deserialize, Serialize};

/// Consecutive days, including the first and the last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Period {
    pub first: Date,
    pub last: Date,
}

// === impl Period ===

impl Period {
    pub fn day(day: Date) -> Self {
        Self {
            first: day,
            last: day,
        }
    }

    /// Returns the `n` days that end with `last`; at least one.
    pub fn until(last: Date, n: u32) -> Self {
        let before = i64::from(n.saturating_sub(1));
        Self {
            first: last.saturating_sub(before.days()),
            last,
        }
    }

    /// Returns its days in order.
    pub(super) fn days(self) -> impl Iterator<Item = Date> {
        let mut next = Some(self.first);
        std::iter::from_fn(move || {
            let day = next.filter(|day| *day <= self.last)?;
            next = day.tomorrow().ok();
            Some(day)
        })
    }

    pub(super) fn has(self, day: Date) -> bool {
        (self.first..=self.last).contains(&day)
    }
}

/// Returns the day of a moment.
pub(super) fn day_of(at_ms: u64, zone: &TimeZone) -> Date {
    let at_ms = i64::try_from(at_ms).unwrap_or(i64::MAX);
    let at = Timestamp::from_millisecond(at_ms).unwrap_or(Timestamp::MAX);
    at.to_zoned(zone.clone()).date()
}

/// Returns the beginning of a day: midnight, or the first moment after it if the clock skips midnight.
pub(super) fn begin_ms(day: Date, zone: &TimeZone) -> u64 {
    let begin = day.to_zoned(zone.clone()).map(|it| it.timestamp());
    let ms = begin.map_or(0, Timestamp::as_millisecond);
    u64::try_from(ms).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    #[test]
    fn a_day_is_one_of_the_owners_clock() {
        let zone = TimeZone::fixed(jiff::tz::offset(9));
        let begin = begin_ms(date(2026, 11, 22), &zone);
        assert_eq!(day_of(begin, &zone), date(2026, 11, 22));
        assert_eq!(day_of(begin - 1, &zone), date(2026, 11, 21));
        assert_eq!(day_of(begin, &TimeZone::UTC), date(2026, 11, 21));
        assert_eq!(day_of(u64::MAX, &TimeZone::UTC).year(), 9999);
    }

    #[test]
    fn so_many_days_end_with_the_last() {
        let last = date(2026, 3, 1);
        let days = |n| Period::until(last, n).days().collect::<Vec<_>>();
        assert_eq!(days(2), [date(2026, 2, 28), last]);
        assert_eq!(days(1), [last]);
        assert_eq!(days(0), [last]);
        assert_eq!(days(400).len(), 400);
    }
}
