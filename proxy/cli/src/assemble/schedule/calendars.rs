//! `scheduler.ics` and `scheduler.calendar`: reads calendars from files, from addresses and from Google.

use std::{path::PathBuf, time::Duration};

use metaclaw_chat::{Secret, now_ms};
use metaclaw_schedule::{Calendar, Interval, MAX_CALENDAR, Schedule, SchedulerConfig};
use metaclaw_skills::read_text;
use tracing::warn;

use super::google::GoogleCalendar;

/// The timeout for one calendar.
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
    /// Returns the calendars of the settings and that of `google`, or `None` without any.
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

    /// Reads all calendars, and tells the schedule when the owner is busy.
    pub(super) async fn read(&mut self, schedule: &Schedule) {
        let (mut busy, mut problems) = (Vec::new(), Vec::new());
        for (n, source) in self.sources.iter_mut().enumerate() {
            let read = match source.place.text(&self.client).await {
                Ok(text) => parsed(text).await,
                Err(why) => Err(why),
            };
            match read {
                Ok(calendar) => source.last = Some(calendar),
                Err(why) => problems.push(format!("{}: {why}", source.place.name(n))),
            }
            let Some(calendar) = source.last.clone() else {
                continue;
            };
            match expanded(calendar, schedule.clone()).await {
                Ok(found) => busy.extend(found),
                Err(why) => problems.push(format!("{}: {why}", source.place.name(n))),
            }
        }
        for problem in &problems {
            warn!("a calendar of the scheduler cannot be used: {problem}");
        }
        let none_was_read = self.sources.iter().all(|it| it.last.is_none());
        schedule.set_calendars((!none_was_read).then_some(busy), problems);
    }
}

/// This runs on a blocking thread, because parsing and expanding may take a second.
async fn parsed(text: String) -> Result<Calendar, String> {
    let parsed = tokio::task::spawn_blocking(move || Calendar::parse(&text)).await;
    parsed
        .map_err(|error| error.to_string())?
        .map_err(|error| error.to_string())
}

async fn expanded(calendar: Calendar, schedule: Schedule) -> Result<Vec<Interval>, String> {
    let busy = move || schedule.busy(&calendar, now_ms());
    let busy = tokio::task::spawn_blocking(busy).await;
    busy.map_err(|error| error.to_string())?
        .map_err(|error| error.to_string())
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

    /// Returns the calendar's name for logs.
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

    async fn text(&self, client: &reqwest::Client) -> Result<String, String> {
        match self {
            Self::File(path) => {
                let path = path.clone();
                let read = move || read_text(&path, MAX_CALENDAR as u64);
                let read = tokio::task::spawn_blocking(read).await;
                read.map_err(|error| error.to_string())?
                    .map_err(|error| error.to_string())
            }
            Self::Address(address) => {
                let fetched = tokio::time::timeout(TIMEOUT, fetch(client, address)).await;
                fetched.unwrap_or_else(|_| Err(format!("no answer within {TIMEOUT:?}")))
            }
            Self::Google(calendar) => {
                let read = tokio::time::timeout(TIMEOUT, calendar.text(client)).await;
                match read {
                    Ok(text) => text.map_err(|error| format!("{error:#}")),
                    Err(_) => Err(format!("no answer within {TIMEOUT:?}")),
                }
            }
        }
    }
}

async fn fetch(client: &reqwest::Client, address: &Secret) -> Result<String, String> {
    // Otherwise, an error would contain the whole address.
    let told = |error: reqwest::Error| format!("{:#}", anyhow::Error::from(error.without_url()));
    let mut answer = client.get(address.expose()).send().await.map_err(told)?;
    if !answer.status().is_success() {
        return Err(format!("it answers {}", answer.status()));
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(told)? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_CALENDAR {
            return Err(metaclaw_schedule::CalendarError::TooLarge.to_string());
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use metaclaw_schedule::{Keyboard, Window};
    use metaclaw_test_kit::{Reply, Server};

    use super::*;

    /// Returns a calendar with one meeting that lasts all these days.
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
