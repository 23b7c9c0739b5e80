//! Reads again and again the facts that decide whether costly learning may run.

use std::{path::Path, time::Duration};

use anyhow::Context as _;
use metaclaw_chat::now_ms;
use metaclaw_control::{
    home::{Home, write_private},
    schedule_state::saved,
};
use metaclaw_llm::http_client;
use metaclaw_schedule::{
    Displays, KeyboardWatch, POWER_SUPPLIES, Schedule, SchedulerConfig, on_battery,
};
use metaclaw_turns::TurnLog;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use self::{calendars::Calendars, google::GoogleCalendar};
use super::background::Background;
use crate::site::Site;

mod calendars;
mod google;

const EVERY: Duration = Duration::from_secs(20);
/// The pause between the first check and the second one: by then the display has answered for the first time.
const FIRST: Duration = Duration::from_secs(1);
/// How often the calendars are read, as the original has it.
const CALENDARS_EVERY: Duration = Duration::from_secs(30 * 60);
/// Checks after which what is known is written down though nothing changed.
const SAVE_AFTER: u32 = 15;
/// The shortest idle time that a compositor is asked to tell.
const LEAST_IDLE: Duration = Duration::from_secs(1);

struct FactKeeper {
    schedule: Schedule,
    log: TurnLog,
    keyboard: KeyboardWatch,
    home: Home,
}

pub(super) async fn start(
    config: &SchedulerConfig,
    site: &Site,
    log: &TurnLog,
    background: &Background,
) -> anyhow::Result<Schedule> {
    let Background { tasks, ending } = background;
    let client = http_client(&site.roots).context("scheduler.ics")?;
    let google = config.calendar.enabled.then(|| {
        let token = config.calendar.token_path.clone();
        GoogleCalendar::new(token.unwrap_or_else(|| site.home.calendar_token()))
    });
    let calendars = Calendars::new(config, google, client);
    let idle = Duration::from_secs(config.idle_minutes.saturating_mul(60)).max(LEAST_IDLE);
    let schedule = Schedule::local(config.clone(), saved(&site.home));
    let displays = Displays::new(|name| site.environment.get(name));
    let keeper = FactKeeper {
        schedule: schedule.clone(),
        log: log.clone(),
        keyboard: KeyboardWatch::start(displays, idle).context("the keyboard's thread")?,
        home: site.home.clone(),
    };
    keeper.check().await;
    tasks.spawn(keeper.run(ending.clone()));
    if let Some(mut calendars) = calendars {
        let (schedule, ending) = (schedule.clone(), ending.clone());
        let reading = async move {
            loop {
                calendars.read(&schedule).await;
                tokio::time::sleep(CALENDARS_EVERY).await;
            }
        };
        tasks.spawn(async move { ending.run_until_cancelled(reading).await });
    } else {
        // What a calendar said that is not followed any more counts no longer.
        schedule.set_calendars(Some(Vec::new()), Vec::new());
    }
    Ok(schedule)
}

// === impl FactKeeper ===

impl FactKeeper {
    /// Checks the facts now and then, until `ending`; what is known is written down when the window opens or closes, now and then,
    /// and at the end.
    async fn run(self, ending: CancellationToken) {
        let mut was_open = None;
        let mut n_checks = 0;
        let mut pause = FIRST;
        loop {
            let sleep = tokio::time::sleep(pause);
            pause = EVERY;
            if ending.run_until_cancelled(sleep).await.is_none() {
                self.check().await;
                return self.save().await;
            }
            let is_open = self.check().await;
            if was_open != Some(is_open) {
                let window = self.schedule.window(now_ms(), None);
                info!("the time window for costly learning is {window}");
            }
            if was_open != Some(is_open) || n_checks >= SAVE_AFTER {
                self.save().await;
                (was_open, n_checks) = (Some(is_open), 0);
            }
            n_checks += 1;
        }
    }

    /// Checks the facts once; returns whether the window is open.
    async fn check(&self) -> bool {
        self.schedule.set_keyboard(self.keyboard.latest());
        self.schedule
            .set_power(on_battery(Path::new(POWER_SUPPLIES)));
        let last_main_ms = match self.log.last_main_ms().await {
            Ok(last_main_ms) => last_main_ms,
            // It is reopened, or closes; whoever asks for the window asks it as well.
            Err(error) => {
                debug!(%error, "the log does not say when the last turn was");
                None
            }
        };
        self.schedule.window(now_ms(), last_main_ms).is_open()
    }

    async fn save(&self) {
        let path = self.home.scheduler_state();
        let text = self.schedule.save(now_ms()).text();
        let write = move || write_private(&path, text.as_bytes());
        match tokio::task::spawn_blocking(write).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => warn!(%error, "scheduler_state.json cannot be written"),
            Err(error) => warn!(%error, "writing scheduler_state.json panicked"),
        }
    }
}
