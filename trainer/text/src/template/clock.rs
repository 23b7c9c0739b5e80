//! `strftime_now`: today's date, which some templates write into the system prompt.

use jiff::Zoned;
use jiff::fmt::strtime::{BrokenDownTime, Config};
use minijinja::{Error, ErrorKind};

/// Formats the present local time like `transformers`. An unknown code is written unchanged.
#[expect(
    clippy::needless_pass_by_value,
    reason = "minijinja hands arguments over"
)]
pub(super) fn strftime_now(format: String) -> Result<String, Error> {
    let failed = |error| {
        Error::new(
            ErrorKind::InvalidOperation,
            format!("strftime_now: {error}"),
        )
    };
    strftime(&Zoned::now(), &format).map_err(failed)
}

fn strftime(time: &Zoned, format: &str) -> Result<String, jiff::Error> {
    BrokenDownTime::from(time).to_string_with_config(&Config::new().lenient(true), format)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_python() {
        let time: Zoned = "2024-02-09T21:34:56+01:00[Europe/Amsterdam]"
            .parse()
            .unwrap();
        let format = |text: &str| strftime(&time, text).unwrap();
        assert_eq!(
            format("%Y-%m-%d %a %H:%M:%S %B"),
            "2024-02-09 Fri 21:34:56 February"
        );
        assert_eq!(format("%-d %e %j %p %I %b%%"), "9  9 040 PM 09 Feb%");
        assert_eq!(format("%A, %d. %~"), "Friday, 09. %~");
    }

    #[test]
    fn now_is_local() {
        let today = || Zoned::now().strftime("%d %B %Y").to_string();
        let before = today();
        let told = strftime_now("%d %B %Y".into()).unwrap();
        // Midnight may come between the two.
        assert!([before, today()].contains(&told), "{told}");
    }
}
