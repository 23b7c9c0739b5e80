//! `strftime_now`: today's date, which some templates write into the system text.

use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
];

/// Formats the current time, UTC, by the codes that templates use.
#[expect(
    clippy::needless_pass_by_value,
    reason = "minijinja hands arguments over"
)]
pub(super) fn strftime_now(format: String) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    strftime(now, &format)
}

fn strftime(unix_seconds: u64, format: &str) -> String {
    let (days, seconds) = (unix_seconds / 86_400, unix_seconds % 86_400);
    let (year, month, day) = civil(days);
    let name = pick(&MONTHS, month - 1);
    let weekday = pick(&DAYS, days);
    let mut out = String::new();
    let mut codes = format.chars();
    while let Some(c) = codes.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match codes.next() {
            Some('Y') => out += &year.to_string(),
            Some('m') => out += &two(month),
            Some('d') => out += &two(day),
            Some('B') => out += name,
            Some('b') => out += &name[..3],
            Some('A') => out += weekday,
            Some('a') => out += &weekday[..3],
            Some('H') => out += &two(seconds / 3600),
            Some('M') => out += &two(seconds / 60 % 60),
            Some('S') => out += &two(seconds % 60),
            Some('%') | None => out.push('%'),
            Some(other) => out.extend(['%', other]),
        }
    }
    out
}

fn two(number: u64) -> String {
    format!("{number:02}")
}

fn pick(names: &[&'static str], at: u64) -> &'static str {
    usize::try_from(at)
        .ok()
        .and_then(|at| names.get(at % names.len()))
        .copied()
        .unwrap_or("")
}

/// Year, month and day of a day since 1970 (Howard Hinnant, <https://howardhinnant.github.io/date_algorithms.html>).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(
            strftime(0, "%A %d %b %Y %H:%M:%S"),
            "Thursday 01 Jan 1970 00:00:00"
        );
        assert_eq!(
            strftime(1_709_210_096, "%Y-%m-%d %a %H:%M:%S %B"),
            "2024-02-29 Thu 12:34:56 February"
        );
        assert_eq!(strftime(4_102_444_799, "%d %b %Y%%"), "31 Dec 2099%");
        assert_eq!(strftime(0, "%q%"), "%q%");
    }
}
