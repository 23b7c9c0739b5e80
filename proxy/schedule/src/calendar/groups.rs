//! Groups the events of a calendar that belong together: those with the same UID.
//!
//! calcard expands a whole calendar at once. For a moved or cancelled occurrence (RECURRENCE-ID), it finds the original
//! one by time and SEQUENCE, whatever the UID. Calendars give a moved occurrence another SEQUENCE than the rest. So the
//! meeting would also count at its old time, and two meetings at the same time could be confused. Therefore each UID
//! becomes a separate calendar here, without SEQUENCE. calcard also reads the end of a series (UNTIL), which is written
//! in UTC, as a local time, and treats a series that begins in UTC as one of local times. Both are corrected here.

use std::collections::BTreeMap;

use calcard::{
    common::{PartialDateTime, timezone::Tz},
    icalendar::{
        ICalendar, ICalendarComponent, ICalendarComponentType as Kind, ICalendarEntry,
        ICalendarParameter, ICalendarProperty, ICalendarValue,
    },
};
use chrono::{Datelike as _, Timelike as _};

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
            .retain(|it| it.name != ICalendarProperty::Sequence);
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

/// Converts each end of a series in UTC to the zone of the series.
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

/// Converts a time in UTC to `zone`. Other times stay unchanged.
fn local(time: PartialDateTime, zone: Tz) -> PartialDateTime {
    let instant = time.to_date_time_with_tz(Tz::UTC);
    let Some(instant) = instant.filter(|_| time.tz_hour.is_some() && !zone.is_floating()) else {
        return time;
    };
    let clock = instant.with_timezone(&zone).naive_local();
    let number = |it: u32| u8::try_from(it).ok();
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
        .any(|it| event.has_property(it))
}

/// Returns a calendar that contains only the definitions of zones.
fn zones(calendar: &ICalendar) -> ICalendar {
    let defined = calendar.components.iter();
    let zones = defined.filter(|it| it.component_type == Kind::VTimezone);
    let zones = zones.cloned().map(|mut zone| {
        // Zones are found by name.
        zone.component_ids.clear();
        zone
    });
    ICalendar {
        components: zones.collect(),
    }
}
