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
    let name = MONTHS[(month - 1) as usize % 12];
    let weekday = DAYS[(days % 7) as usize];
    let mut out = String::new();
    let mut codes = format.chars();
    while let Some(c) = codes.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match codes.next() {
            Some('Y') => out.push_str(&year.to_string()),
            Some('m') => out.push_str(&format!("{month:02}")),
            Some('d') => out.push_str(&format!("{day:02}")),
            Some('B') => out.push_str(name),
            Some('b') => out.push_str(&name[..3]),
            Some('A') => out.push_str(weekday),
            Some('a') => out.push_str(&weekday[..3]),
            Some('H') => out.push_str(&format!("{:02}", seconds / 3600)),
            Some('M') => out.push_str(&format!("{:02}", seconds / 60 % 60)),
            Some('S') => out.push_str(&format!("{:02}", seconds % 60)),
            Some('%') => out.push('%'),
            Some(other) => out.extend(['%', other]),
            None => out.push('%'),
        }
    }
    out
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
