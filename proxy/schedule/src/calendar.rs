//! A calendar: an ICS text, and the times at which its owner is busy.
//!
//! Groups the events of a calendar that belong together: those with the same UID.
//!
//! calcard expands a whole calendar at once. For a moved or cancelled occurrence (RECURRENCE-ID), it finds the original
//! one by time and SEQUENCE, whatever the UID. Calendars give a moved occurrence another SEQUENCE than the rest. So the
//! meeting would also count at its old time, and two meetings at the same time could be confused. Therefore each UID
//! becomes a separate calendar here, without SEQUENCE. calcard also reads the end of a series (UNTIL), which is written
//! in UTC, as a local time, and treats a series that begins in UTC as one of local times. Both are corrected here.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use calcard::{
    Entry, Parser,
    common::{PartialDateTime, timezone::Tz},
    icalendar::{
        ICalendar, ICalendarComponent, ICalendarComponentType as Kind, ICalendarEntry,
        ICalendarParameter, ICalendarProperty, ICalendarStatus, ICalendarTransparency,
        ICalendarValue,
        dates::{CalendarEvent, TimeOrDelta},
    },
};
use chrono::{Datelike as _, Timelike as _};
use jiff::{Timestamp, tz::TimeZone};

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CalendarError {
    /// It is larger than [`MAX_CALENDAR`].
    #[error("it is larger than {} MiB", MAX_CALENDAR >> 20)]
    TooLarge,
    /// It contains no VCALENDAR. For example, it is a sign-in page.
    #[error("it is no calendar (iCalendar, .ics)")]
    NoCalendar,
    #[error("its events recur too often")]
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
            let counts = |occurrence: &Occurrence| is_busy(&group, occurrence.comp_id);
            let found = expanded.events.into_iter().filter(counts);
            let found = found.filter_map(|found| interval(&found, zone));
            let found = found.filter(|f| f.end_ms > span.start_ms && f.start_ms < span.end_ms);
            // Occurrences after the span are not known completely.
            busy.extend(found.map(|found| Interval {
                end_ms: found.end_ms.min(span.end_ms),
                ..found
            }));
        }
        busy.sort_unstable();
        busy.dedup();
        Ok(busy)
    }
}

fn is_busy(calendar: &ICalendar, id: u32) -> bool {
    let event = calendar.component_by_id(id);
    event.is_some_and(|event| {
        event.status() != Some(&ICalendarStatus::Cancelled)
            && event.transparency() != Some(&ICalendarTransparency::Transparent)
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

/// Splits the calendar: one for each UID that recurs, and one for all events that do not recur.
pub(super) fn groups(calendar: &ICalendar) -> Vec<ICalendar> {
    let zones = zones(calendar);
    let mut single = zones.clone();
    let mut recurring = BTreeMap::<&str, ICalendar>::new();
    for event in &calendar.components {
        if event.component_type != Kind::VEvent {
            continue;
        }
        let mut own = event.clone();
        // Alarms are not needed.
        own.component_ids.clear();
        own.entries
            .retain(|entry| entry.name != ICalendarProperty::Sequence);
        own.entries.iter_mut().for_each(name_utc);
        let group = match event.uid() {
            Some(uid) if recurs(event) => recurring.entry(uid).or_insert_with(|| zones.clone()),
            _ => &mut single,
        };
        group.components.push(own);
    }
    let mut recurring: Vec<ICalendar> = recurring.into_values().collect();
    recurring.iter_mut().for_each(local_ends);
    recurring.push(single);
    recurring
}

/// Adds the zone UTC to a first occurrence in UTC (`Z`), because calcard otherwise treats the following ones as local
/// times.
fn name_utc(entry: &mut ICalendarEntry) {
    let value = entry.values.first();
    let is_utc = matches!(value, Some(ICalendarValue::PartialDateTime(at)) if at.tz_hour.is_some());
    if entry.name == ICalendarProperty::Dtstart && is_utc && entry.tz_id().is_none() {
        let zone = ICalendarParameter::tzid("Etc/UTC".to_owned());
        entry.params.push(zone);
    }
}

fn local_ends(calendar: &mut ICalendar) {
    let resolver = calendar.build_owned_tz_resolver();
    for event in &mut calendar.components {
        let begin = event.property(&ICalendarProperty::Dtstart);
        let zone = resolver.resolve_or_default(begin.and_then(ICalendarEntry::tz_id));
        for entry in &mut event.entries {
            if let Some(ICalendarValue::RecurrenceRule(rule)) = entry.values.first_mut() {
                rule.until = rule.until.take().map(|until| local(until, zone));
            }
        }
    }
}

fn local(time: PartialDateTime, zone: Tz) -> PartialDateTime {
    let instant = time.to_date_time_with_tz(Tz::UTC);
    let Some(instant) = instant.filter(|_| time.tz_hour.is_some() && !zone.is_floating()) else {
        return time;
    };
    let clock = instant.with_timezone(&zone).naive_local();
    let number = |n: u32| u8::try_from(n).ok();
    PartialDateTime {
        year: u16::try_from(clock.year()).ok(),
        month: number(clock.month()),
        day: number(clock.day()),
        hour: number(clock.hour()),
        minute: number(clock.minute()),
        second: number(clock.second()),
        tz_hour: None,
        tz_minute: None,
        tz_minus: false,
    }
}

fn recurs(event: &ICalendarComponent) -> bool {
    use ICalendarProperty::{Rdate, RecurrenceId, Rrule};
    [Rrule, Rdate, RecurrenceId]
        .iter()
        .any(|name| event.has_property(name))
}

fn zones(calendar: &ICalendar) -> ICalendar {
    let defined = calendar.components.iter();
    let zones = defined.filter(|defined| defined.component_type == Kind::VTimezone);
    let zones = zones.cloned().map(|mut zone| {
        // Zones are found by name.
        zone.component_ids.clear();
        zone
    });
    ICalendar {
        components: zones.collect(),
    }
}
