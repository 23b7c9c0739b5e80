//! The events of a calendar that belong together: those of one UID.
//!
//! calcard expands a whole calendar at once, and finds the occurrence that a moved or cancelled one (RECURRENCE-ID) stands for by
//! its time and SEQUENCE, whatever its UID. Calendars give a moved occurrence another SEQUENCE than the rest, so that the
//! meeting would count at its old time as well, and two meetings at one time could be taken for each other. Each UID is
//! therefore a calendar of its own here, without SEQUENCE. It also reads the end of a series (UNTIL), which is written in
//! UTC, as a local time, and takes a series that begins in UTC for one of local times: both are put right here.

use std::collections::BTreeMap;

use calcard::{
    common::{PartialDateTime, timezone::Tz},
    icalendar::{
        ICalendar, ICalendarComponent, ICalendarComponentType as Kind, ICalendarEntry,
        ICalendarParameter, ICalendarProperty, ICalendarValue,
    },
};
use chrono::{Datelike as _, Timelike as _};

/// The calendar as several: one for each UID that recurs, and one for all that does not.
pub(super) fn groups(calendar: &ICalendar) -> Vec<ICalendar> {
    let zones = zones(calendar);
    let mut single = zones.clone();
    let mut recurring = BTreeMap::<&str, ICalendar>::new();
    for event in &calendar.components {
        if event.component_type != Kind::VEvent {
            continue;
        }
        let mut own = event.clone();
        // Alarms, of which nothing is wanted.
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

/// Says of a first occurrence in UTC (`Z`) that the zone is UTC: calcard takes the ones after it for local times otherwise.
fn name_utc(entry: &mut ICalendarEntry) {
    let value = entry.values.first();
    let is_utc = matches!(value, Some(ICalendarValue::PartialDateTime(at)) if at.tz_hour.is_some());
    if entry.name == ICalendarProperty::Dtstart && is_utc && entry.tz_id().is_none() {
        let zone = ICalendarParameter::tzid("Etc/UTC".to_owned());
        entry.params.push(zone);
    }
}

/// Writes each end of a series that is in UTC by the clock of the zone that the series is in.
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

/// A time in UTC by the clock of `zone`; others as they are.
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

/// A calendar with the definitions of zones alone.
fn zones(calendar: &ICalendar) -> ICalendar {
    let defined = calendar.components.iter();
    let zones = defined.filter(|it| it.component_type == Kind::VTimezone);
    let zones = zones.cloned().map(|mut zone| {
        // They are known by name.
        zone.component_ids.clear();
        zone
    });
    ICalendar {
        components: zones.collect(),
    }
}
