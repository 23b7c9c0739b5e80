use super::*;

fn ms(at: &str) -> u64 {
    let at: Timestamp = at.parse().unwrap();
    u64::try_from(at.as_millisecond()).unwrap()
}

/// Returns the busy times of some events in a span, in Berlin's local time.
fn busy(events: &str, from: &str, to: &str) -> Vec<String> {
    let text = format!("BEGIN:VCALENDAR\r\nVERSION:2.0\r\n{events}\r\nEND:VCALENDAR\r\n");
    let zone = TimeZone::get("Europe/Berlin").unwrap();
    let span = Interval {
        start_ms: ms(from),
        end_ms: ms(to),
    };
    let found = Calendar::parse(&text).unwrap().busy(span, &zone).unwrap();
    let clock = |ms: u64| {
        let at = Timestamp::from_millisecond(i64::try_from(ms).unwrap()).unwrap();
        at.to_zoned(zone.clone())
            .strftime("%m-%d %H:%M")
            .to_string()
    };
    let told = |it: &Interval| format!("{} to {}", clock(it.start_ms), clock(it.end_ms));
    found.iter().map(told).collect()
}

/// Makes one event with these lines, given with `|` between them.
fn event(uid: &str, lines: &str) -> String {
    let lines = lines.replace(" | ", "\r\n");
    format!("BEGIN:VEVENT\r\nUID:{uid}\r\n{lines}\r\nEND:VEVENT")
}

const IN_JUNE: (&str, &str) = ("2026-06-01T00:00:00+02", "2026-06-08T00:00:00+02");

#[test]
fn times_are_read_in_their_zones() {
    let events = [
        event("utc", "DTSTART:20260601T080000Z | DTEND:20260601T090000Z"),
        event("floating", "DTSTART:20260602T080000 | DURATION:PT30M"),
        event(
            "new york",
            "DTSTART;TZID=America/New_York:20260603T090000 | DTEND;TZID=America/New_York:20260603T100000",
        ),
        event(
            "outlook",
            "DTSTART;TZID=Tokyo Standard Time:20260604T090000 | DTEND;TZID=Tokyo Standard Time:20260604T100000",
        ),
        event("past", "DTSTART:20260501T080000Z | DTEND:20260501T090000Z"),
    ];
    assert_eq!(
        busy(&events.join("\r\n"), IN_JUNE.0, IN_JUNE.1),
        [
            "06-01 10:00 to 06-01 11:00",
            "06-02 08:00 to 06-02 08:30",
            "06-03 15:00 to 06-03 16:00",
            "06-04 02:00 to 06-04 03:00",
        ]
    );
}

#[test]
fn an_all_day_event_is_its_local_day() {
    let events = [
        event("one", "DTSTART;VALUE=DATE:20260601"),
        event(
            "two days",
            "DTSTART;VALUE=DATE:20260603 | DTEND;VALUE=DATE:20260605",
        ),
    ];
    assert_eq!(
        busy(&events.join("\r\n"), IN_JUNE.0, IN_JUNE.1),
        ["06-01 00:00 to 06-02 00:00", "06-03 00:00 to 06-05 00:00"]
    );
    // The day of the spring change has 23 hours, and that of the autumn change 25.
    let sunday = [event(
        "sundays",
        "DTSTART;VALUE=DATE:20260322 | RRULE:FREQ=WEEKLY;UNTIL=20260405",
    )];
    assert_eq!(
        busy(&sunday[0], "2026-03-28T00:00:00Z", "2026-03-31T00:00:00Z"),
        ["03-29 00:00 to 03-30 00:00"]
    );
}

#[test]
fn a_recurring_event_keeps_its_hour_when_clocks_change() {
    let standup = event(
        "standup",
        "DTSTART;TZID=Europe/Berlin:20240101T093000 | DTEND;TZID=Europe/Berlin:20240101T094500 | RRULE:FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR | EXDATE;TZID=Europe/Berlin:20260330T093000",
    );
    assert_eq!(
        busy(&standup, "2026-03-27T00:00:00+01", "2026-04-01T00:00:00+02"),
        ["03-27 09:30 to 03-27 09:45", "03-31 09:30 to 03-31 09:45"]
    );
}

#[test]
fn a_series_ends_with_its_last_occurrence() {
    let zones = [
        ("Europe/Berlin", "20260601T073000Z"),
        ("America/New_York", "20260601T133000Z"),
    ];
    for (zone, until) in zones {
        let times = format!("DTSTART;TZID={zone}:20260525T093000 | DURATION:PT1H");
        let series = event(
            "series",
            &format!("{times} | RRULE:FREQ=WEEKLY;UNTIL={until}"),
        );
        let found = busy(&series, IN_JUNE.0, "2026-07-01T00:00:00+02");
        assert_eq!(found.len(), 1, "{zone}: {found:?}");
    }
}

#[test]
fn an_occurrence_can_be_moved_or_cancelled_whatever_its_sequence() {
    let weekly = event(
        "weekly",
        "SEQUENCE:0 | DTSTART:20260501T080000Z | DTEND:20260501T090000Z | RRULE:FREQ=DAILY",
    );
    let moved = event(
        "weekly",
        "SEQUENCE:2 | RECURRENCE-ID:20260602T080000Z | DTSTART:20260602T120000Z | DTEND:20260602T130000Z",
    );
    let cancelled = event(
        "weekly",
        "SEQUENCE:1 | RECURRENCE-ID:20260603T080000Z | DTSTART:20260603T080000Z | DTEND:20260603T090000Z | STATUS:CANCELLED",
    );
    // Another event at the same time, which was not moved.
    let other = event(
        "other",
        "DTSTART:20260602T080000Z | DTEND:20260602T081500Z | RRULE:FREQ=YEARLY",
    );
    let all = [weekly, moved, cancelled, other].join("\r\n");
    assert_eq!(
        busy(&all, "2026-06-02T00:00:00+02", "2026-06-05T00:00:00+02"),
        [
            "06-02 10:00 to 06-02 10:15",
            "06-02 14:00 to 06-02 15:00",
            "06-04 10:00 to 06-04 11:00",
        ]
    );
}

#[test]
fn what_is_free_or_cancelled_or_a_task_does_not_count() {
    let when = "DTSTART:20260601T080000Z | DTEND:20260601T090000Z";
    let free = event("free", &format!("{when} | TRANSP:TRANSPARENT"));
    let off = event("off", &format!("{when} | STATUS:CANCELLED"));
    let task = event("task", when).replace("VEVENT", "VTODO");
    let empty = event("empty", "DTSTART:20260601T080000Z | DTEND:20260601T080000Z");
    let all = [free, off, task, empty].join("\r\n");
    assert!(busy(&all, IN_JUNE.0, IN_JUNE.1).is_empty());
}

#[test]
fn what_is_no_calendar_is_said() {
    let error = |text: &str| Calendar::parse(text).err();
    assert_eq!(
        error("<html>Sign in</html>"),
        Some(CalendarError::NoCalendar)
    );
    assert_eq!(error(""), Some(CalendarError::NoCalendar));
    let large = "x".repeat(MAX_CALENDAR + 1);
    assert_eq!(error(&large), Some(CalendarError::TooLarge));
    // An empty calendar is valid.
    assert!(busy("", IN_JUNE.0, IN_JUNE.1).is_empty());
}

#[test]
fn a_calendar_from_a_stranger_ends() {
    let odd = [
        "RRULE:FREQ=SECONDLY",
        "RRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
        "RRULE:FREQ=DAILY;INTERVAL=0",
        "RRULE:FREQ=NEVER",
        "DURATION:P999999999W",
    ];
    let events = odd.map(|line| event(line, &format!("DTSTART:19700101T000000Z | {line}")));
    let all = events.join("\r\n");
    assert!(busy(&all, IN_JUNE.0, IN_JUNE.1).len() < 2);
    // Many events that recur each second are refused as a whole.
    let each_second = "DTSTART:20260101T000000Z | RRULE:FREQ=SECONDLY";
    let many: String = (0..100)
        .map(|n| event(&n.to_string(), each_second) + "\r\n")
        .collect();
    let text = format!("BEGIN:VCALENDAR\r\n{many}END:VCALENDAR\r\n");
    let span = Interval {
        start_ms: ms(IN_JUNE.0),
        end_ms: ms(IN_JUNE.1),
    };
    assert_eq!(
        Calendar::parse(&text).unwrap().busy(span, &TimeZone::UTC),
        Err(CalendarError::TooMany)
    );
}
