//! `metaclaw scheduler`: whether costly learning may run now, why not, and when next.

use clap::{Args, Subcommand};
use metaclaw_chat::now_ms;
use metaclaw_control::operations::process::GetSchedule;
use metaclaw_schedule::{Keyboard, Next, Opening, SavedState, local_clock};
use serde_json::{Value, json};

use super::{calling::caller, context::Context};
use crate::out;

#[derive(Debug, Args)]
pub(crate) struct SchedulerArgs {
    #[command(subcommand)]
    command: SchedulerCommand,
}

#[derive(Debug, Subcommand)]
enum SchedulerCommand {
    /// Show whether costly learning may run now, and what is known about when you are away.
    Status(ScheduleArgs),
    /// Show when costly learning may run next, if you say and type nothing until then.
    NextWindow(ScheduleArgs),
}

#[derive(Debug, Args)]
struct ScheduleArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

struct KnownSchedule {
    state: SavedState,
    /// Whether a running process says so; otherwise it is what the last one left.
    is_running: bool,
}

// === impl SchedulerArgs ===

impl SchedulerArgs {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let known = KnownSchedule::ask(context).await?;
        let now = now_ms();
        match self.command {
            SchedulerCommand::Status(ScheduleArgs { json: true })
            | SchedulerCommand::NextWindow(ScheduleArgs { json: true }) => {
                out::json(&known.json(now))?;
            }
            SchedulerCommand::Status(_) => out::line(known.text(now))?,
            SchedulerCommand::NextWindow(_) => out::line(known.next(now))?,
        }
        Ok(())
    }
}

// === impl KnownSchedule ===

impl KnownSchedule {
    /// From the running process, else from the file that the last one left.
    async fn ask(context: &Context) -> anyhow::Result<Self> {
        let caller = caller(context, "scheduler").await?;
        Ok(Self {
            state: caller.call(GetSchedule).await?,
            is_running: caller.is_process(),
        })
    }

    fn json(&self, now_ms: u64) -> Value {
        let (window, next) = self.state.at(now_ms);
        json!({
            "running": self.is_running,
            "age_ms": now_ms.saturating_sub(self.state.updated_ms),
            "window": window,
            "next": next,
            "known": self.state,
        })
    }

    fn next(&self, now_ms: u64) -> String {
        let (window, next) = self.state.at(now_ms);
        let told = match next {
            Some(next) if window.is_open() => format!("now: it is open{}", until(&next, now_ms)),
            Some(next) => format!(
                "{}, in {}, if nothing is said or typed until then{}{}",
                local_clock(next.at_ms, now_ms),
                out::span(next.at_ms - now_ms),
                because(next.why),
                until(&next, now_ms)
            ),
            None => "when the machine is plugged in (scheduler.on_battery)".to_owned(),
        };
        if self.is_running {
            return told;
        }
        format!("{told}\nmetaclaw does not run: nothing learns until it does")
    }

    fn text(&self, now_ms: u64) -> String {
        let Self { state, is_running } = self;
        let (window, _) = state.at(now_ms);
        let ago = |at_ms: u64| format!("{} ago", out::span(now_ms.saturating_sub(at_ms)));
        let facts = &state.facts;
        let keyboard = match &facts.keyboard {
            Keyboard::Unread => "not looked at yet".to_owned(),
            Keyboard::Headless => "no display: turns alone tell whether you are here".to_owned(),
            Keyboard::Silent { source, why } => {
                format!("{source} does not say, so turns alone tell: {why}")
            }
            Keyboard::Touched { source, at_ms } => format!("touched {} ({source})", ago(*at_ms)),
        };
        let idle = state.rules.idle_minutes;
        let chat = facts
            .last_main_ms
            .map_or_else(|| "no turn yet".to_owned(), ago_turn(now_ms));
        let sleep = if state.rules.sleep_start == state.rules.sleep_end {
            "no sleep hours"
        } else {
            &state.sleep_window
        };
        let power = match facts.on_battery {
            Some(true) => "battery",
            Some(false) => "mains",
            None => "unknown, so taken for mains",
        };
        let mut lines = vec![
            format!("window:    {window}"),
            format!(
                "next:      {}",
                self.next(now_ms).replace('\n', "\n           ")
            ),
            format!("chat:      {chat}; away after {idle} min"),
            format!("keyboard:  {keyboard}"),
            format!("sleep:     {sleep}"),
            format!("calendar:  {}", calendar(state, now_ms)),
        ];
        lines.extend(state.problems.iter().map(|one| format!("           {one}")));
        lines.push(format!("power:     {power}"));
        let last = state
            .last_open_ms
            .map_or_else(|| "never yet".to_owned(), ago);
        lines.push(format!("last open: {last}"));
        if !is_running {
            lines.push(format!(
                "as of:     {}, when metaclaw ended",
                ago(state.updated_ms)
            ));
        }
        lines.join("\n")
    }
}

fn ago_turn(now_ms: u64) -> impl Fn(u64) -> String {
    move |at_ms| format!("last turn {} ago", out::span(now_ms.saturating_sub(at_ms)))
}

/// Why it opens, where that is not said already.
fn because(why: Opening) -> String {
    match why {
        Opening::Idle => String::new(),
        Opening::SleepHours | Opening::Meeting => format!(": {why}"),
    }
}

fn until(next: &Next, now_ms: u64) -> String {
    let until = next.until_ms.map(|ms| local_clock(ms, now_ms));
    until.map_or_else(String::new, |until| format!(", until {until}"))
}

fn calendar(state: &SavedState, now_ms: u64) -> String {
    let busy = &state.facts.busy;
    let clock = |ms| local_clock(ms, now_ms);
    match busy.iter().find(|busy| busy.end_ms > now_ms) {
        Some(next) => format!(
            "busy from {} to {}; {} in two days",
            clock(next.start_ms),
            clock(next.end_ms),
            busy.len()
        ),
        None => "nothing in the next two days".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: u64 = 1_800_000_000_000;

    fn known(facts: &serde_json::Value, is_running: bool) -> KnownSchedule {
        let state = json!({
            "state": "idle_wait", "sleep_window": "00:00–00:00", "updated_ms": NOW - 7_200_000,
            "rules": {"sleep_start": "0:00", "sleep_end": "0:00"}, "facts": facts,
            "problems": ["number 1 at calendar.example: it answers 404 Not Found"],
        });
        let state = serde_json::from_value(state).unwrap();
        KnownSchedule { state, is_running }
    }

    #[test]
    fn a_busy_desktop_is_told_line_by_line() {
        let facts = json!({
            "last_main_ms": NOW - 240_000, "on_battery": false,
            "keyboard": {"is": "touched", "source": "X11", "at_ms": NOW - 10_000},
        });
        let shown = known(&facts, true).text(NOW);
        let clock = local_clock(NOW + 1_790_000, NOW);
        insta::assert_snapshot!(shown.replace(&clock, "HH:MM"), @"
        window:    costly learning waits: you chatted a moment ago
        next:      HH:MM, in 29 min, if nothing is said or typed until then
        chat:      last turn 4 min ago; away after 30 min
        keyboard:  touched 10 s ago (X11)
        sleep:     no sleep hours
        calendar:  nothing in the next two days
                   number 1 at calendar.example: it answers 404 Not Found
        power:     mains
        last open: never yet
        ");
    }

    #[test]
    fn what_a_process_left_says_how_old_it_is() {
        let facts = json!({"keyboard": {"is": "headless"}, "on_battery": true});
        insta::assert_snapshot!(known(&facts, false).text(NOW), @"
        window:    costly learning waits: the machine runs on battery
        next:      when the machine is plugged in (scheduler.on_battery)
                   metaclaw does not run: nothing learns until it does
        chat:      no turn yet; away after 30 min
        keyboard:  no display: turns alone tell whether you are here
        sleep:     no sleep hours
        calendar:  nothing in the next two days
                   number 1 at calendar.example: it answers 404 Not Found
        power:     battery
        last open: never yet
        as of:     2 h ago, when metaclaw ended
        ");
    }
}
