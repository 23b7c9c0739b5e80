use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::Keyboard;

const HOUR: u64 = 60 * MINUTE_MS;

fn ms(at: &str) -> u64 {
    let at: Timestamp = at.parse().unwrap();
    u64::try_from(at.as_millisecond()).unwrap()
}

/// Makes rules from settings, in Berlin's time zone.
fn rules(json: &str) -> Rules {
    let config = serde_json::from_str(json).unwrap();
    Rules::new(&config, TimeZone::get("Europe/Berlin").unwrap())
}

fn touched(at_ms: u64) -> Keyboard {
    let source = "X11".to_owned();
    Keyboard::Touched { source, at_ms }
}

/// A desktop on mains power. Its owner uses it now, and chatted long ago.
fn in_use(now_ms: u64) -> Facts {
    Facts {
        last_main_ms: Some(now_ms - 10 * HOUR),
        keyboard: touched(now_ms),
        on_battery: Some(false),
        busy: Vec::new(),
    }
}

fn open(why: Opening, until_ms: Option<u64>) -> Window {
    Window::Open { why, until_ms }
}

#[test]
fn a_headless_host_opens_when_nothing_was_said_for_long_enough() {
    let (rules, now) = (rules("{}"), ms("2026-06-01T12:00:00+02"));
    let after = |minutes: u64| Facts {
        last_main_ms: Some(now - minutes * MINUTE_MS),
        keyboard: Keyboard::Headless,
        ..Facts::default()
    };
    let until_ms = now + MINUTE_MS;
    let why = Obstacle::Chatting { until_ms };
    assert_eq!(decide(&rules, &after(29), now), Window::Closed { why });
    assert_eq!(decide(&rules, &after(30), now), open(Opening::Idle, None));
    // A display that does not answer counts as none.
    let mut silent = after(30);
    let (source, why) = ("X11".to_owned(), "gone".to_owned());
    silent.keyboard = Keyboard::Silent { source, why };
    assert!(decide(&rules, &silent, now).is_open());
    // Nobody ever chatted.
    let mut never = after(30);
    never.last_main_ms = None;
    assert!(decide(&rules, &never, now).is_open());
    // The keyboard was not checked yet.
    never.keyboard = Keyboard::Unread;
    assert!(!decide(&rules, &never, now).is_open());
    assert_eq!(
        next_window(&rules, &never, now).unwrap().at_ms,
        now + 30 * MINUTE_MS
    );
}

#[test]
fn a_host_that_is_never_idle_opens_in_sleep_hours_alone() {
    let rules = rules("{}");
    let midnight = ms("2026-06-01T00:00:00+02");
    let hours: Vec<u64> = (0..24)
        .filter(|hour| {
            let now = midnight + hour * HOUR;
            decide(&rules, &in_use(now), now).is_open()
        })
        .collect();
    assert_eq!(hours, [0, 1, 2, 3, 4, 5, 6, 23]);
    // If the owner chats all the time as well, the window never opens.
    for minute in 0..24 * 60 {
        let now = midnight + minute * MINUTE_MS;
        let mut facts = in_use(now);
        facts.last_main_ms = Some(now - minute % 5 * MINUTE_MS);
        assert!(!decide(&rules, &facts, now).is_open(), "{minute}");
    }
}

/// (the last turn's minutes before 23:00, now in minutes after 23:00, what the window is, when it opens next)
#[test]
fn at_night_five_quiet_minutes_are_enough() {
    let rules = rules("{}");
    let (night, morning) = (ms("2026-06-01T23:00:00+02"), ms("2026-06-02T07:00:00+02"));
    for keyboard in [touched(night - MINUTE_MS), Keyboard::Headless] {
        for (said_before, minutes, opens) in [(20, 0, 0), (2, 0, 3), (2, 3, 3), (0, 4, 5)] {
            let now = night + minutes * MINUTE_MS;
            let facts = Facts {
                last_main_ms: Some(night - said_before * MINUTE_MS),
                keyboard: keyboard.clone(),
                ..Facts::default()
            };
            let case = format!("{said_before} {minutes}");
            let opens_ms = night + opens * MINUTE_MS;
            let opening = open(Opening::SleepHours, Some(morning));
            assert_eq!(decide(&rules, &facts, opens_ms), opening, "{case}");
            let next = next_window(&rules, &facts, now).unwrap();
            assert_eq!(
                (next.at_ms, next.until_ms),
                (opens_ms, Some(morning)),
                "{case}"
            );
            let before = opens_ms - 1;
            assert!(!decide(&rules, &facts, before).is_open(), "{case}");
        }
    }
    // A chat just before the owner gets up counts by day as ever.
    let facts = Facts {
        last_main_ms: Some(morning - 10 * MINUTE_MS),
        keyboard: Keyboard::Headless,
        ..Facts::default()
    };
    assert!(!decide(&rules, &facts, morning).is_open());
    assert!(!decide(&rules, &facts, morning + 19 * MINUTE_MS).is_open());
    assert!(decide(&rules, &facts, morning + 20 * MINUTE_MS).is_open());
}

#[test]
fn sleep_hours_respect_whoever_is_awake_and_end_in_the_morning() {
    let (rules, now) = (rules("{}"), ms("2026-06-02T01:00:00+02"));
    let morning = ms("2026-06-02T07:00:00+02");
    let mut facts = in_use(now);
    let opening = open(Opening::SleepHours, Some(morning));
    assert_eq!(decide(&rules, &facts, now), opening);
    facts.last_main_ms = Some(now - 4 * MINUTE_MS);
    assert!(!decide(&rules, &facts, now).is_open());
    // The keyboard is not touched either, so no end is known.
    facts.last_main_ms = None;
    facts.keyboard = touched(now - HOUR);
    assert_eq!(decide(&rules, &facts, now), open(Opening::Idle, None));
    // It is too late to begin.
    let late = morning - 14 * MINUTE_MS;
    let why = Obstacle::TooShort { until_ms: morning };
    assert_eq!(decide(&rules, &in_use(late), late), Window::Closed { why });
    assert!(decide(&rules, &in_use(late - MINUTE_MS), late - MINUTE_MS).is_open());
}

#[test]
fn sleep_hours_follow_the_clock_through_both_changes() {
    let rules = rules("{}");
    // The night from 23:00 to 07:00 has 7 hours in spring and 9 in autumn. In the last quarter of an hour it is too
    // late to begin.
    for (evening, hours) in [
        ("2026-03-28T23:00:00+01", 7),
        ("2026-10-24T23:00:00+02", 9),
        ("2026-06-01T23:00:00+02", 8),
    ] {
        let begin = ms(evening);
        let first = begin - 6 * HOUR;
        let open: Vec<u64> = (0..24 * 60)
            .map(|minute| first + minute * MINUTE_MS)
            .filter(|now| decide(&rules, &in_use(*now), *now).is_open())
            .collect();
        let end = begin + hours * HOUR;
        let expected: Vec<u64> = (begin..=end - 15 * MINUTE_MS).step_by(60_000).collect();
        assert_eq!(open, expected, "{evening}");
    }
}

#[test]
fn a_meeting_opens_while_enough_of_it_is_left() {
    let (rules, now) = (rules("{}"), ms("2026-06-01T14:00:00+02"));
    let mut facts = in_use(now);
    let meeting = |from: u64, to: u64| Interval {
        start_ms: now + from * MINUTE_MS,
        end_ms: now + to * MINUTE_MS,
    };
    // Two adjacent meetings are one.
    facts.busy = vec![meeting(10, 20), meeting(20, 40)];
    let why = Obstacle::InUse {
        until_ms: now + 30 * MINUTE_MS,
    };
    assert_eq!(decide(&rules, &facts, now), Window::Closed { why });
    let until_ms = Some(now + 40 * MINUTE_MS);
    let in_it = now + 15 * MINUTE_MS;
    assert_eq!(
        decide(&rules, &facts, in_it),
        open(Opening::Meeting, until_ms)
    );
    let late = now + 29 * MINUTE_MS;
    assert!(!decide(&rules, &facts, late).is_open());
    let next = next_window(&rules, &facts, now).unwrap();
    assert_eq!(next.at_ms, now + 10 * MINUTE_MS);
    assert_eq!((next.why, next.until_ms), (Opening::Meeting, until_ms));
}

#[test]
fn on_battery_nothing_opens_unless_it_may() {
    let now = ms("2026-06-01T03:00:00+02");
    let mut facts = in_use(now);
    facts.on_battery = Some(true);
    let why = Obstacle::OnBattery;
    assert_eq!(decide(&rules("{}"), &facts, now), Window::Closed { why });
    assert_eq!(next_window(&rules("{}"), &facts, now), None);
    assert!(decide(&rules(r#"{"on_battery":true}"#), &facts, now).is_open());
    facts.on_battery = None;
    assert!(decide(&rules("{}"), &facts, now).is_open());
}

/// A random moment within two years with clock changes in both directions.
fn moment() -> impl Strategy<Value = u64> {
    let (from, to) = (ms("2026-01-01T00:00:00Z"), ms("2028-01-01T00:00:00Z"));
    from..to
}

fn any_facts() -> impl Strategy<Value = Facts> {
    let keyboard = prop_oneof![
        Just(Keyboard::Headless),
        Just(Keyboard::Unread),
        moment().prop_map(touched),
    ];
    let meeting = (moment(), 0..100 * HOUR).prop_map(|(start_ms, length)| Interval {
        start_ms,
        end_ms: start_ms + length,
    });
    let busy = prop::collection::vec(meeting, 0..5);
    (
        prop::option::of(moment()),
        keyboard,
        any::<Option<bool>>(),
        busy,
    )
        .prop_map(|(last_main_ms, keyboard, on_battery, busy)| Facts {
            last_main_ms,
            keyboard,
            on_battery,
            busy,
        })
}

fn any_rules() -> impl Strategy<Value = (u64, Rules)> {
    let time = || (0..24u8, 0..60u8).prop_map(|(hour, minute)| format!("{hour:02}:{minute:02}"));
    let zone = prop_oneof![
        Just("Europe/Berlin"),
        Just("America/New_York"),
        Just("Australia/Lord_Howe"),
        Just("Asia/Kathmandu"),
    ];
    (0..600u64, 0..120u64, time(), time(), any::<bool>(), zone).prop_map(
        |(idle, min, start, end, on_battery, zone)| {
            let config = serde_json::json!({
                "idle_minutes": idle, "min_window_minutes": min, "sleep_start": start,
                "sleep_end": end, "on_battery": on_battery,
            });
            let config = serde_json::from_value(config).unwrap();
            let zone = TimeZone::get(zone).unwrap();
            (idle * MINUTE_MS, Rules::new(&config, zone))
        },
    )
}

proptest! {
    #[test]
    fn never_open_while_a_main_turn_was_within_the_idle_limit(
        (idle_ms, rules) in any_rules(),
        mut facts in any_facts(),
        now in moment(),
        ago in 0..600 * MINUTE_MS,
    ) {
        let last_ms = now - ago;
        facts.last_main_ms = Some(last_ms);
        let night_ms = idle_ms.min(5 * MINUTE_MS);
        let is_allowed = |why, at_ms| match why {
            Opening::SleepHours => at_ms >= last_ms + night_ms,
            Opening::Idle | Opening::Meeting => at_ms >= last_ms + idle_ms,
        };
        if let Window::Open { why, .. } = decide(&rules, &facts, now) {
            prop_assert!(is_allowed(why, now), "{why}");
        }
        if let Some(next) = next_window(&rules, &facts, now) {
            prop_assert!(is_allowed(next.why, next.at_ms), "{}", next.why);
        }
    }

    #[test]
    fn the_next_window_is_one_and_none_is_before_it(
        (_, rules) in any_rules(),
        mut facts in any_facts(),
        now in moment(),
        share in 0.0..1.0f64,
    ) {
        // A turn in the future is impossible.
        facts.last_main_ms = facts.last_main_ms.map(|ms| ms.min(now));
        facts.keyboard = match facts.keyboard {
            Keyboard::Touched { at_ms, .. } => touched(at_ms.min(now)),
            Keyboard::Unread => touched(now),
            other => other,
        };
        let Some(next) = next_window(&rules, &facts, now) else {
            let why = Obstacle::OnBattery;
            prop_assert_eq!(decide(&rules, &facts, now), Window::Closed { why });
            return Ok(());
        };
        prop_assert!(decide(&rules, &facts, next.at_ms).is_open());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a span")]
        let before = now + ((next.at_ms - now) as f64 * share) as u64;
        if before < next.at_ms {
            prop_assert!(!decide(&rules, &facts, before).is_open());
        }
    }
}

#[test]
fn each_number_of_the_settings_moves_the_window() {
    let noon = ms("2026-06-01T12:00:00+02");
    let is_open = |settings: &str, facts: &Facts, now: u64| {
        let json = settings.replace('\'', "\"");
        decide(&rules(&json), facts, now).is_open()
    };
    let quiet = Facts {
        last_main_ms: Some(noon - 10 * MINUTE_MS),
        keyboard: Keyboard::Headless,
        ..Facts::default()
    };
    assert!(!is_open("{}", &quiet, noon));
    assert!(is_open("{'idle_minutes': 10}", &quiet, noon));
    let siesta = "{'sleep_start': '11:00', 'sleep_end': '13:00'}";
    assert!(is_open(siesta, &in_use(noon), noon));
    assert!(!is_open(
        "{'sleep_start': '11:00', 'sleep_end': '11:30'}",
        &in_use(noon),
        noon
    ));
    assert!(!is_open("{'sleep_start': '12:30'}", &in_use(noon), noon));
    let hour_more = "{'sleep_start': '11:00', 'sleep_end': '13:00', 'min_window_minutes': 61}";
    assert!(!is_open(hour_more, &in_use(noon), noon));
    assert!(is_open(&hour_more.replace("61", "60"), &in_use(noon), noon));
}
