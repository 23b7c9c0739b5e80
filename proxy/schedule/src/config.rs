//! Settings of this crate: `scheduler.*`.

use std::{path::PathBuf, str::FromStr};

use jiff::civil::Time;
use metaclaw_chat::Secret;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use smart_default::SmartDefault;

/// `scheduler.*`: when learning that costs something may run.
#[derive(Debug, Clone, SmartDefault, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SchedulerConfig {
    /// Whether training waits until you are away. It counts only if mode is not set: true is mode auto, false is mode rl,
    /// unless rl.enabled is false.
    pub enabled: Option<bool>,
    /// After how many minutes without a turn, and without a key press if there is a keyboard, you count as away.
    #[serde(alias = "idle_threshold_minutes")]
    #[schemars(range(max = 100_000), extend("format" = "minutes"))]
    #[default(30)]
    pub idle_minutes: u64,
    /// When you go to bed, in the local time of this machine. If it equals sleep_end, there are no sleep hours.
    #[default(TimeOfDay(Time::constant(23, 0, 0, 0)))]
    pub sleep_start: TimeOfDay,
    /// When you get up. If you chat during sleep hours, you count as awake until nothing was said for five minutes.
    #[default(TimeOfDay(Time::constant(7, 0, 0, 0)))]
    pub sleep_end: TimeOfDay,
    /// How many minutes of sleep or of a meeting must be left for learning to begin.
    #[schemars(range(max = 1_440), extend("format" = "minutes"))]
    #[default(15)]
    pub min_window_minutes: u64,
    /// Calendars, as iCalendar files or addresses. While one of them says that you are busy, you count as away.
    #[serde(skip_serializing)]
    #[schemars(extend("format" = "calendars", "default" = []))]
    pub ics: Vec<Secret>,
    #[serde(skip_serializing)]
    pub calendar: GoogleCalendarConfig,
    /// Learns on battery as well.
    pub on_battery: bool,
}

/// `scheduler.calendar.*`: the main calendar of a Google account, read by Google's API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GoogleCalendarConfig {
    /// Reads when the main calendar of a Google account is busy. While it is, you count as away. Sign in by
    /// `metaclaw auth login --provider google-calendar`.
    pub enabled: bool,
    /// The file of an OAuth client (a desktop app) of your own project at Google. The sign-in needs it.
    #[schemars(extend("format" = "path"))]
    pub credentials_path: Option<PathBuf>,
    /// The file that keeps the token of the sign-in. Without it, calendar_token.json in the home folder.
    #[schemars(extend("format" = "path"))]
    pub token_path: Option<PathBuf>,
}

/// A time of day, to the minute, as in `23:00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, derive_more::Display)]
#[display("{:02}:{:02}", _0.hour(), _0.minute())]
#[schemars(extend("format" = "time"))]
pub struct TimeOfDay(#[schemars(with = "String")] pub(crate) Time);

/// The text that is not a time of day.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no time of day: give one as in \"23:00\"")]
pub struct TimeOfDayError(String);

// === impl TimeOfDay ===

impl FromStr for TimeOfDay {
    type Err = TimeOfDayError;

    fn from_str(text: &str) -> Result<Self, TimeOfDayError> {
        let read = || {
            let (hour, minute) = text.split_once(':')?;
            Time::new(hour.parse().ok()?, minute.parse().ok()?, 0, 0).ok()
        };
        read()
            .map(Self)
            .ok_or_else(|| TimeOfDayError(text.to_owned()))
    }
}

impl Serialize for TimeOfDay {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TimeOfDay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_originals_name_is_read_and_its_defaults_stand() {
        let read = |json: &str| serde_json::from_str::<SchedulerConfig>(json).unwrap();
        assert_eq!(read("{}"), SchedulerConfig::default());
        let config = read(r#"{"idle_threshold_minutes": 5, "sleep_start": "1:30"}"#);
        assert_eq!(config.idle_minutes, 5);
        assert_eq!(config.sleep_start.to_string(), "01:30");
        assert_eq!(config.sleep_end.to_string(), "07:00");
    }

    #[test]
    fn what_is_no_time_of_day_is_refused() {
        for text in ["24:00", "7", "7:60", "", "-1:00", "07:00:00"] {
            assert!(text.parse::<TimeOfDay>().is_err(), "{text}");
        }
    }
}
