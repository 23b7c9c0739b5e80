//! A calendar: an ICS text, and the times at which its owner is busy.

mod groups;

use std::fmt;

use calcard::{
    Entry, Parser,
    common::timezone::Tz,
    icalendar::{
        ICalendar, ICalendarStatus, ICalendarTransparency,
        dates::{CalendarEvent, TimeOrDelta},
    },
};
use jiff::{Timestamp, tz::TimeZone};

use self::groups::groups;
use crate::intervals::Interval;

/// The largest calendar that is read, in bytes.
pub const MAX_CALENDAR: usize = 8 << 20;
/// Occurrences that are expanded from the first one of a recurring event: 50 years of a daily one.
const MAX_OCCURRENCES: usize = 20_000;
/// The same limit for all events of a calendar together, because it may come from the network.
const MAX_ALL: usize = 500_000;

/// The events of one calendar.
#[derive(Debug, Clone, Default)]
pub struct Calendar(Vec<ICalendar>);

/// Why a text is not a usable calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CalendarError {
    /// It is larger than [`MAX_CALENDAR`].
    TooLarge,
    /// It contains no VCALENDAR. For example, it is a sign-in page.
    NoCalendar,
    /// Its events recur too often to be expanded.
    TooMany,
}

type Start = chrono::DateTime<Tz>;
type Occurrence = CalendarEvent<Start, TimeOrDelta<Start, chrono::TimeDelta>>;

// === impl Calendar ===

impl Calendar {
    /// Parses an ICS text (RFC 5545). Malformed events are left out.
    ///
    /// # Errors
    /// Returns [`CalendarError::TooLarge`] or [`CalendarError::NoCalendar`].
    pub fn parse(text: &str) -> Result<Self, CalendarError> {
        if text.len() > MAX_CALENDAR {
            return Err(CalendarError::TooLarge);
        }
        let mut parser = Parser::new(text);
        let mut calendars = Vec::new();
        loop {
            match parser.entry() {
                Entry::ICalendar(calendar) => calendars.push(calendar),
                Entry::Eof => break,
                _ => {}
            }
        }
        if calendars.is_empty() {
            return Err(CalendarError::NoCalendar);
        }
        Ok(Self(calendars))
    }

    /// Returns when the owner is busy within `span`, in order. Dates and times without a zone are in `zone`: an all-day
    /// event is a local day. Cancelled events and events marked as free (`TRANSP:TRANSPARENT`) are ignored.
    ///
    /// # Errors
    /// Returns [`CalendarError::TooMany`] if there are too many occurrences.
    pub fn busy(&self, span: Interval, zone: &TimeZone) -> Result<Vec<Interval>, CalendarError> {
        let mut busy = Vec::new();
        let mut n_left = MAX_ALL;
        for group in self.0.iter().flat_map(groups) {
            let limit = MAX_OCCURRENCES.min(n_left);
            let expanded = group.expand_dates(Tz::Floating, limit);
            n_left = n_left.saturating_sub(expanded.events.len());
            if n_left == 0 {
                return Err(CalendarError::TooMany);
            }
            let counts = |it: &Occurrence| is_busy(&group, it.comp_id);
            let found = expanded.events.into_iter().filter(counts);
            let found = found.filter_map(|it| interval(&it, zone));
            let found = found.filter(|it| it.end_ms > span.start_ms && it.start_ms < span.end_ms);
            // Occurrences after the span are not known completely.
            busy.extend(found.map(|it| Interval {
                end_ms: it.end_ms.min(span.end_ms),
                ..it
            }));
        }
        busy.sort_unstable();
        busy.dedup();
        Ok(busy)
    }
}

fn is_busy(calendar: &ICalendar, id: u32) -> bool {
    let event = calendar.component_by_id(id);
    event.is_some_and(|it| {
        it.status() != Some(&ICalendarStatus::Cancelled)
            && it.transparency() != Some(&ICalendarTransparency::Transparent)
    })
}

fn interval(occurrence: &Occurrence, zone: &TimeZone) -> Option<Interval> {
    let start = &occurrence.start;
    let end_ms = match &occurrence.end {
        TimeOrDelta::Time(end) => instant(end, zone)?,
        // A calendar day has 23 or 25 hours when the clocks change.
        TimeOrDelta::Delta(delta) if start.timezone().is_floating() => {
            instant(&(*start).checked_add_signed(*delta)?, zone)?
        }
        TimeOrDelta::Delta(delta) => {
            instant(start, zone)?.checked_add_signed(delta.num_milliseconds())?
        }
    };
    let start_ms = instant(start, zone)?;
    (start_ms < end_ms).then_some(Interval { start_ms, end_ms })
}

/// A time without a zone is in `zone`.
fn instant(time: &Start, zone: &TimeZone) -> Option<u64> {
    let seconds = if time.timezone().is_floating() {
        let clock = Timestamp::from_second(time.naive_local().and_utc().timestamp()).ok()?;
        let clock = clock.to_zoned(TimeZone::UTC).datetime();
        clock.to_zoned(zone.clone()).ok()?.timestamp().as_second()
    } else {
        time.timestamp()
    };
    u64::try_from(seconds).ok()?.checked_mul(1_000)
}

// === impl CalendarError ===

impl fmt::Display for CalendarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => write!(f, "it is larger than {} MiB", MAX_CALENDAR >> 20),
            Self::NoCalendar => f.write_str("it is no calendar (iCalendar, .ics)"),
            Self::TooMany => f.write_str("its events recur too often"),
        }
    }
}

impl std::error::Error for CalendarError {}

#[cfg(test)]
mod tests;
