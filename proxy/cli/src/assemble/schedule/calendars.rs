//! `scheduler.ics` and `scheduler.calendar`: reads calendars from files, from addresses and from Google.

use std::{path::PathBuf, time::Duration};

use anyhow::{anyhow, ensure};
use metaclaw_chat::{Secret, now_ms};
use metaclaw_control::operation::with_causes;
use metaclaw_llm::bounded_body;
use metaclaw_schedule::{
    Calendar, CalendarError, Interval, MAX_CALENDAR, Schedule, SchedulerConfig,
};
use metaclaw_skills::read_text;
use tokio::{task::spawn_blocking, time::timeout};
use tracing::warn;

use super::google::GoogleCalendar;

const TIMEOUT: Duration = Duration::from_secs(60);

pub(super) struct Calendars {
    sources: Vec<CalendarSource>,
    client: reqwest::Client,
}

/// One calendar and its last content, because a server may be unreachable for a while.
struct CalendarSource {
    place: CalendarPlace,
    last: Option<Calendar>,
}

enum CalendarPlace {
    File(PathBuf),
    /// The address is never shown, because knowing it is enough to read the calendar.
    Address(Secret),
    Google(GoogleCalendar),
}

// === impl Calendars ===

impl Calendars {
    pub(super) fn new(
        config: &SchedulerConfig,
        google: Option<GoogleCalendar>,
        client: reqwest::Client,
    ) -> Option<Self> {
        let places = config.ics.iter().map(CalendarPlace::new);
        let places = places.chain(google.map(CalendarPlace::Google));
        let sources = places.map(|place| CalendarSource { place, last: None });
        let sources: Vec<CalendarSource> = sources.collect();
        (!sources.is_empty()).then_some(Self { sources, client })
    }

    pub(super) async fn read(&mut self, schedule: &Schedule) {
        let (mut busy, mut problems) = (Vec::new(), Vec::new());
        for (n, source) in self.sources.iter_mut().enumerate() {
            let place = source.place.name(n);
            let problem = |error| format!("{place}: {}", with_causes(&error));
            match source.place.read(&self.client).await {
                Ok(calendar) => source.last = Some(calendar),
                Err(error) => problems.push(problem(error)),
            }
            let Some(calendar) = source.last.clone() else {
                continue;
            };
            match expanded(calendar, schedule.clone()).await {
                Ok(found) => busy.extend(found),
                Err(error) => problems.push(problem(error)),
            }
        }
        for problem in &problems {
            warn!("a calendar of the scheduler cannot be used: {problem}");
        }
        let none_was_read = self.sources.iter().all(|source| source.last.is_none());
        schedule.set_calendars((!none_was_read).then_some(busy), problems);
    }
}

/// Runs on a blocking thread, because expanding may take a second.
async fn expanded(calendar: Calendar, schedule: Schedule) -> anyhow::Result<Vec<Interval>> {
    Ok(spawn_blocking(move || schedule.busy(&calendar, now_ms())).await??)
}

// === impl CalendarPlace ===

impl CalendarPlace {
    fn new(given: &Secret) -> Self {
        let text = given.expose();
        match text.split_once("://") {
            // The content types of calendars, which are fetched like any page.
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("webcal") => {
                Self::Address(format!("https://{rest}").into())
            }
            Some(_) => Self::Address(given.clone()),
            None => Self::File(text.into()),
        }
    }

    fn name(&self, n: usize) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Address(address) => {
                let url = reqwest::Url::parse(address.expose()).ok();
                let host = url.and_then(|url| url.host_str().map(str::to_owned));
                format!("number {} at {}", n + 1, host.unwrap_or_default())
            }
            Self::Google(_) => "Google's calendar (scheduler.calendar)".to_owned(),
        }
    }

    async fn read(&self, client: &reqwest::Client) -> anyhow::Result<Calendar> {
        let answer = timeout(TIMEOUT, self.text(client)).await;
        let text = answer.map_err(|_| anyhow!("no answer within {TIMEOUT:?}"))??;
        // Parsing may take a second.
        Ok(spawn_blocking(move || Calendar::parse(&text)).await??)
    }

    async fn text(&self, client: &reqwest::Client) -> anyhow::Result<String> {
        match self {
            Self::File(path) => {
                let path = path.clone();
                Ok(spawn_blocking(move || read_text(&path, MAX_CALENDAR as u64)).await??)
            }
            Self::Address(address) => fetch(client, address).await,
            Self::Google(calendar) => calendar.text(client).await,
        }
    }
}

async fn fetch(client: &reqwest::Client, address: &Secret) -> anyhow::Result<String> {
    // Otherwise, an error would contain the whole address.
    let without_url = reqwest::Error::without_url;
    let asked = client.get(address.expose()).send().await;
    let answer = asked.map_err(without_url)?;
    ensure!(
        answer.status().is_success(),
        "it answers {}",
        answer.status()
    );
    let bytes = bounded_body(answer, MAX_CALENDAR).await;
    let bytes = bytes.map_err(without_url)?.ok_or(CalendarError::TooLarge)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use metaclaw_schedule::{Keyboard, Window};
    use metaclaw_test_kit::{Reply, Server};

    use super::*;

    const BUSY: &str = "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nUID:1\r\nDTSTART:20200101T000000Z\r\nDTEND:20990101T000000Z\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n";

    fn config(ics: &[&str]) -> SchedulerConfig {
        let json = serde_json::json!({"ics": ics, "sleep_start": "0:00", "sleep_end": "0:00"});
        serde_json::from_value(json).unwrap()
    }

    #[tokio::test]
    async fn files_and_addresses_are_read_and_no_address_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mine.ics");
        std::fs::write(&file, BUSY).unwrap();
        let server = Server::new(|_| Reply::status(404, ""));
        let address = format!("{}/secret-path/basic.ics", server.url());
        let config = config(&[file.to_str().unwrap(), &address]);
        let schedule = Schedule::local(config.clone(), None);
        let client = metaclaw_llm::loopback_client().unwrap();
        let mut calendars = Calendars::new(&config, None, client).unwrap();
        calendars.read(&schedule).await;
        let saved = schedule.save(now_ms());
        assert_eq!(saved.facts.busy.len(), 1);
        assert_eq!(
            saved.problems,
            ["number 2 at 127.0.0.1: it answers 404 Not Found"]
        );
        // The owner is always at the keyboard, and in a meeting.
        let source = "X11".to_owned();
        let at_ms = now_ms();
        schedule.set_keyboard(Keyboard::Touched { source, at_ms });
        let window = schedule.window(at_ms, None);
        assert!(matches!(window, Window::Open { .. }), "{window}");
        // If a file disappears, its last content stays valid.
        std::fs::remove_file(&file).unwrap();
        calendars.read(&schedule).await;
        let saved = schedule.save(now_ms());
        assert_eq!(saved.facts.busy.len(), 1);
        assert_eq!(saved.problems.len(), 2, "{:?}", saved.problems);
        assert!(!saved.text().contains("secret-path"));
    }

    #[test]
    fn webcal_is_fetched_by_https() {
        let place = CalendarPlace::new(&"webcal://calendar.example/a.ics".into());
        assert!(
            matches!(&place, CalendarPlace::Address(it) if it.expose() == "https://calendar.example/a.ics")
        );
        assert_eq!(place.name(0), "number 1 at calendar.example");
        assert!(matches!(
            CalendarPlace::new(&"/a/b.ics".into()),
            CalendarPlace::File(_)
        ));
    }
}
