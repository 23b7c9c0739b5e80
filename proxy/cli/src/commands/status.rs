//! `metaclaw status`: how the running process is.

use std::process::ExitCode;

use clap::Args;
use metaclaw_chat::{Span, now_ms};
use metaclaw_schedule::Window;
use serde::Deserialize as _;
use serde_json::Value;

use super::{context::Context, source::running};
use crate::out;

/// Nothing runs: as `systemctl status` says it.
const NOT_RUNNING: u8 = 3;

/// Arguments of `status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// As JSON.
    #[arg(long)]
    json: bool,
}

// === impl StatusArgs ===

impl StatusArgs {
    /// Does it.
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let Some(client) = running(&context.home).await? else {
            if self.json {
                out::json(&serde_json::json!({"running": false}))?;
            } else {
                out::line("MetaClaw: not running")?;
            }
            return Ok(ExitCode::from(NOT_RUNNING));
        };
        let mut status: Value = client.ask("status", &()).await?;
        if self.json {
            status["running"] = true.into();
            out::json(&status)?;
        } else {
            out::line(text(&status, now_ms()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The status in lines; what a newer or older process does not say is left out.
fn text(status: &Value, now_ms: u64) -> String {
    let about = |key: &str| said(&status["about"][key]);
    let since_ms = status["since_ms"].as_u64().unwrap_or(now_ms);
    let up = match now_ms.saturating_sub(since_ms) / 1_000 {
        0 => "less than a second".to_owned(),
        seconds => Span::secs(seconds).to_string(),
    };
    let mut lines = vec![
        format!(
            "MetaClaw: running  (PID={}, mode={}, proxy={}, for {up})",
            status["pid"],
            about("mode"),
            said(&status["proxy"]),
        ),
        format!("serves:  {}", about("serves")),
        format!("learns:  {}", about("learns")),
        format!("leaves:  {}", about("leaves")),
    ];
    lines.extend(trainer(&status["trainer"]));
    lines.push(funnel(&status["funnel"]));
    for (why, n) in status["funnel"]["spent"].as_object().into_iter().flatten() {
        lines.push(format!("         {n} not used: {why}"));
    }
    lines.extend(log(&status["log"]));
    lines.extend(learner(&status["learner"]));
    if let Some(n) = status["dropped_lines"].as_u64().filter(|n| *n > 0) {
        lines.push(format!(
            "output:  {n} log lines were dropped: nobody read them in time"
        ));
    }
    lines.join("\n")
}

fn said(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

fn trainer(trainer: &Value) -> Option<String> {
    let place = || format!("{} (PID={})", said(&trainer["address"]), trainer["pid"]);
    let how = match trainer["is"].as_str()? {
        "ready" => format!("ready at {}", place()),
        "silent" => format!("runs at {}, but does not answer", place()),
        "down" => format!("down ({}); it is started again", said(&trainer["reason"])),
        other => other.to_owned(),
    };
    Some(format!("trainer: {how}"))
}

/// The way of turns to the weights, as far as each got.
fn funnel(funnel: &Value) -> String {
    let steps = ["turns", "main", "complete", "with_ids", "judged", "trained"];
    let counts = steps.map(|key| format!("{} {}", key.replace('_', " "), funnel[key]));
    let (first, rest) = (&counts[0], &counts[1..]);
    let first = first.trim_start_matches("turns ");
    let open = funnel["taken"].as_u64().filter(|n| *n > 0);
    let open = open.map(|n| format!(" (+ {n} in an open step)"));
    format!(
        "turns:   {first} -> {}{}",
        rest.join(" -> "),
        open.unwrap_or_default()
    )
}

/// What is wrong with the log, or was when it was opened.
fn log(log: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(why) = log["broken"].as_str() {
        lines.push(format!("log:     nothing is captured: {why}"));
    }
    if let Some(place) = log["moved_aside"].as_str() {
        lines.push(format!(
            "log:     it was damaged, or of an older format, and lies in {place} now; an empty one began"
        ));
    }
    if let Some(n_lost) = log["n_lost"].as_u64().filter(|n| *n > 0) {
        let copied = log["copied"].as_str();
        let copied = copied.map(|place| format!("; as it was, it lies in {place}"));
        lines.push(format!(
            "log:     its last {n_lost} changes were lost before this start{}",
            copied.unwrap_or_default()
        ));
    }
    lines
}

/// What the learner does, and how each agent's weights are.
fn learner(learner: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(phase) = learner["phase"]["is"].as_str() {
        let waiting = &learner["judging"]["waiting"];
        let doing = match phase {
            "awaiting_request" => {
                "a batch is ready: `metaclaw train-step` trains it (mode auto trains none by itself before a gate stands)".to_owned()
            }
            other => other.replace('_', " "),
        };
        lines.push(format!(
            "learner: {doing}; turns that wait for a verdict: {waiting}"
        ));
    }
    if let Ok(window) = Window::deserialize(&learner["window"]) {
        lines.push(format!("window:  {window}  (metaclaw scheduler status)"));
    }
    if let Some(why) = learner["judging"]["failing"].as_str() {
        lines.push(format!("judge:   does not answer: {why}"));
    }
    for agent in learner["agents"].as_array().into_iter().flatten() {
        let adapter = agent["adapter"].as_str().unwrap_or("the base model");
        let ready = format!(
            "{} redo and {} binary_rl samples ready",
            agent["n_redo"], agent["n_binary_rl"]
        );
        let last = match agent["last_step"]["n"].as_u64() {
            Some(n) => format!("last step {n}"),
            None => "no step yet".to_owned(),
        };
        lines.push(format!(
            "agent:   {} on {adapter}; {ready}; {last}",
            said(&agent["agent"])
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_second_is_no_time_of_0_ms() {
        let status = json!({"since_ms": 1_000});
        let shown = text(&status, 1_900);
        assert!(shown.contains("for less than a second"), "{shown}");
    }

    #[test]
    fn the_lines_say_who_serves_and_how_far_turns_got() {
        let status = json!({
            "dropped_lines": 3, "pid": 7, "proxy": "127.0.0.1:30000", "since_ms": 1_000,
            "about": {"mode": "rl", "serves": "demo", "learns": "weights", "leaves": "nothing"},
            "trainer": {"is": "ready", "address": "127.0.0.1:1", "pid": 8},
            "funnel": {"turns": 5, "main": 5, "complete": 4, "with_ids": 4, "judged": 3, "trained": 0, "taken": 2, "spent": {"unclear": 1}},
            "log": {"broken": null, "moved_aside": "/h/turns/damaged-1", "n_lost": 0},
            "learner": {
                "phase": {"is": "collecting"}, "judging": {"waiting": 1, "failing": null},
                "window": {"is": "closed", "why": {"is": "chatting", "until_ms": 7}},
                "agents": [{"agent": "_default", "adapter": null, "n_redo": 1, "n_binary_rl": 2, "last_step": null}],
            },
        });
        insta::assert_snapshot!(text(&status, 61_000), @r#"
        MetaClaw: running  (PID=7, mode=rl, proxy=127.0.0.1:30000, for 1 min)
        serves:  demo
        learns:  weights
        leaves:  nothing
        trainer: ready at 127.0.0.1:1 (PID=8)
        turns:   5 -> main 5 -> complete 4 -> with ids 4 -> judged 3 -> trained 0 (+ 2 in an open step)
                 1 not used: unclear
        log:     it was damaged, or of an older format, and lies in /h/turns/damaged-1 now; an empty one began
        learner: collecting; turns that wait for a verdict: 1
        window:  closed: you chatted a moment ago  (metaclaw scheduler status)
        agent:   _default on the base model; 1 redo and 2 binary_rl samples ready; no step yet
        output:  3 log lines were dropped: nobody read them in time
        "#);
    }
}
