//! When the main calendar of a Google account is busy: <https://developers.google.com/workspace/calendar/api/v3/reference/freebusy>.
//!
//! The proxy asks only for the times of busy hours, and for no title or guest of an event. It then reads the answer like
//! any other calendar.

use std::{fmt::Write as _, path::PathBuf, time::Duration};

use anyhow::{Context as _, bail};
use jiff::{Timestamp, tz::TimeZone};
use serde_json::{Value, json};

use crate::sign_in::{answered, google::GoogleToken};

const API: &str = "https://www.googleapis.com";
const AHEAD: Duration = Duration::from_secs(2 * 24 * 3_600);
/// How far back it asks, because an event that has begun may still last.
const BEFORE: Duration = Duration::from_secs(24 * 3_600);

pub(super) struct GoogleCalendar {
    pub(super) token: PathBuf,
    api: String,
}

// === impl GoogleCalendar ===

impl GoogleCalendar {
    pub(super) fn new(token: PathBuf) -> Self {
        let api = API.to_owned();
        Self { token, api }
    }

    /// Returns its busy hours as iCalendar text.
    ///
    /// # Errors
    /// If the sign-in has ended, or Google does not answer.
    pub(super) async fn text(&self, client: &reqwest::Client) -> anyhow::Result<String> {
        let now = Timestamp::now();
        let mut token = GoogleToken::load(&self.token)?;
        let access = token.access(client, now).await?;
        let asked = json!({
            "timeMin": (now - BEFORE).to_string(),
            "timeMax": (now + AHEAD).to_string(),
            "items": [{ "id": "primary" }],
        });
        let request = client.post(format!("{}/calendar/v3/freeBusy", self.api));
        let request = request
            .bearer_auth(access)
            .header("content-type", "application/json");
        let answer = answered(request.body(asked.to_string())).await;
        let answer = answer.context("Google does not say when the calendar is busy")?;
        calendar(&answer["calendars"]["primary"])
    }
}

fn calendar(primary: &Value) -> anyhow::Result<String> {
    let mut errors = primary["errors"].as_array().into_iter().flatten();
    if let Some(error) = errors.find_map(|error| error["reason"].as_str()) {
        bail!("Google does not say when the calendar is busy: {error}");
    }
    let busy = primary["busy"].as_array();
    let busy = busy.context("Google's answer has no busy hours")?;
    let mut text = "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:metaclaw\r\n".to_owned();
    for (n, hours) in busy.iter().enumerate() {
        let time = |name: &str| {
            let time = hours[name]
                .as_str()
                .and_then(|text| text.parse::<Timestamp>().ok())
                .with_context(|| format!("Google's answer has no time in {name}"))?;
            let time = time.to_zoned(TimeZone::UTC);
            anyhow::Ok(time.strftime("%Y%m%dT%H%M%SZ").to_string())
        };
        let (start, end) = (time("start")?, time("end")?);
        // Writing to a text cannot fail.
        let _ = write!(
            text,
            "BEGIN:VEVENT\r\nUID:{n}\r\nDTSTART:{start}\r\nDTEND:{end}\r\nEND:VEVENT\r\n"
        );
    }
    text.push_str("END:VCALENDAR\r\n");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use metaclaw_chat::now_ms;
    use metaclaw_schedule::{Calendar, Schedule, SchedulerConfig};
    use metaclaw_test_kit::{Reply, Server};

    use super::*;

    #[test]
    fn busy_hours_are_a_calendar_and_none_are_one_too() {
        let now = Timestamp::now();
        let hour = Duration::from_secs(3_600);
        let busy = json!({"busy": [
            {"start": (now - hour).to_string(), "end": (now + hour).to_string()},
            {"start": "2099-01-01T10:00:00+02:00", "end": "2099-01-01T11:00:00+02:00"},
        ]});
        let text = calendar(&busy).unwrap();
        assert!(text.contains("DTSTART:20990101T080000Z"), "{text}");
        let schedule = Schedule::local(SchedulerConfig::default(), None);
        let n_busy = |text: &str| {
            let calendar = Calendar::parse(text).unwrap();
            schedule.busy(&calendar, now_ms()).unwrap().len()
        };
        assert_eq!(n_busy(&text), 1);
        let none = calendar(&json!({"busy": []})).unwrap();
        assert_eq!(n_busy(&none), 0);
        let errors = json!({"errors": [{"domain": "global", "reason": "notFound"}], "busy": []});
        let why = calendar(&errors).unwrap_err().to_string();
        assert!(why.ends_with("notFound"), "{why}");
    }

    #[tokio::test]
    async fn google_is_asked_for_busy_hours_with_the_token() {
        let server = Server::new(|request| {
            assert_eq!(request.path(), "/calendar/v3/freeBusy");
            assert_eq!(request.header("authorization"), Some("Bearer t"));
            assert_eq!(request.json()["items"][0]["id"], "primary");
            Reply::json(json!({"calendars": {"primary": {"busy": []}}}))
        });
        let api = server.url();
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token.json");
        let good = json!({"token": "t", "expiry": "2099-01-01T00:00:00Z"});
        std::fs::write(&token, good.to_string()).unwrap();
        let client = metaclaw_llm::loopback_client().unwrap();
        let google = GoogleCalendar { token, api };
        let text = google.text(&client).await.unwrap();
        assert!(text.ends_with("END:VCALENDAR\r\n"), "{text}");
        let nobody = GoogleCalendar::new(folder.path().join("none.json"));
        let why = format!("{:#}", nobody.text(&client).await.unwrap_err());
        assert!(why.contains("metaclaw auth login"), "{why}");
    }
}
