//! `metaclaw status`: how the running process is.

use std::process::ExitCode;

use clap::Args;
use metaclaw_chat::{Span, now_ms};
use metaclaw_gateway::RelayOnly;
use serde::Deserialize as _;
use serde_json::Value;

use self::learner::{learner, said};
use super::{context::Context, exit, source::running};
use crate::{assemble::CloudSpend, out, policy_context::too_short, privacy, waiting::Waiting};

mod learner;

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
            return not_running(context, self.json);
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

/// Says that nothing runs in this home, and where something does.
pub(super) fn not_running(context: &Context, json: bool) -> anyhow::Result<ExitCode> {
    let home = context.home.dir().display().to_string();
    let elsewhere = context
        .demo()
        .filter(|demo| matches!(demo.holder(), Ok(Some(_))));
    let elsewhere = elsewhere.map(|demo| demo.dir().display().to_string());
    if json {
        let told = serde_json::json!({"running": false, "home": home, "elsewhere": elsewhere});
        out::json(&told)?;
        return Ok(ExitCode::from(exit::NOT_RUNNING));
    }
    out::line(format!("MetaClaw: not running in {home}"))?;
    for port in context.home.running_instances() {
        out::line(format!(
            "another runs on port {port}: metaclaw status --port {port}"
        ))?;
    }
    if let Some(demo) = elsewhere {
        out::line(format!(
            "the demo runs: METACLAW_HOME={demo} before a command is about that one"
        ))?;
    }
    Ok(ExitCode::from(exit::NOT_RUNNING))
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
    if let Some(file) = status["config_changed"].as_str() {
        lines.push(format!(
            "settings: {file} changed since the start: restart to use it"
        ));
    }
    lines.extend(private(status));
    lines.extend(trainer(&status["trainer"]));
    lines.extend(inference(&status["inference"]));
    lines.extend(lost(&status["lost"]));
    let short = too_short(status["context"].as_u64().unwrap_or_default());
    lines.extend(short.map(|it| format!("context: {it}")));
    let upstreams = status["upstreams"].as_object().into_iter().flatten();
    lines.extend(upstreams.map(|(name, it)| upstream(name, it, now_ms)));
    let weights = status["learner"]["phase"]["is"] != "off";
    lines.push(funnel(&status["funnel"], weights));
    for (why, n) in status["funnel"]["spent"].as_object().into_iter().flatten() {
        lines.push(format!("         {n} not used: {why}"));
    }
    lines.extend(log(&status["log"]));
    lines.extend(learner(&status["learner"], now_ms));
    lines.extend(spend(&status["spend"]).map(|it| format!("today:   {it}")));
    let cloud = serde_json::from_value::<CloudSpend>(status["cloud"].clone());
    lines.extend(cloud.ok().map(|it| format!("cloud:   {}", it.line())));
    lines.extend(review(status).map(|it| format!("review:  {it}")));
    if let Some(n) = status["dropped_lines"].as_u64().filter(|n| *n > 0) {
        lines.push(format!(
            "output:  {n} log lines were dropped: nobody read them in time"
        ));
    }
    lines.join("\n")
}

/// Who is only relayed, and how many chats were not kept.
fn private(status: &Value) -> Vec<String> {
    let off: RelayOnly = serde_json::from_value(status["off"].clone()).unwrap_or_default();
    let mut lines: Vec<String> = privacy::told(&off)
        .map(|told| format!("off:     {told}"))
        .into_iter()
        .collect();
    let count = |key: &str| status["counts"][key].as_u64().unwrap_or_default();
    let (relayed, off_record) = (count("relayed_only"), count("off_record"));
    if relayed + off_record > 0 {
        lines.push(format!(
            "private: {} only relayed, {off_record} off the record: nothing of them is kept",
            out::count(relayed, "chat")
        ));
    }
    lines
}

fn trainer(trainer: &Value) -> Option<String> {
    let place = || format!("{} (PID={})", said(&trainer["address"]), trainer["pid"]);
    let url = || said(&trainer["url"]);
    let how = match trainer["is"].as_str()? {
        "ready" => format!("ready at {}", place()),
        "silent" => format!("runs at {}, but does not answer", place()),
        "down" => format!("down ({}); it is started again", said(&trainer["reason"])),
        "answers" => format!("{} answers, and has {}", url(), said(&trainer["model"])),
        "without_model" => format!("{} has no model: {}", url(), said(&trainer["why"])),
        "away" => format!("{} cannot be used: {}", url(), said(&trainer["why"])),
        other => other.to_owned(),
    };
    Some(format!("trainer: {how}"))
}

/// Who answers chats for the trainer.
fn inference(inference: &Value) -> Option<String> {
    let [url, why, log] = ["url", "why", "log"].map(|key| said(&inference[key]));
    let how = match inference["state"].as_str()? {
        "ready" => "answers".to_owned(),
        "away" => format!("does not answer: {why}"),
        "refused" => format!("is not asked: {why}"),
        other => other.to_owned(),
    };
    let log = match inference["log"].as_str() {
        Some(_) => format!(" (started by the trainer; its output: {log})"),
        None => String::new(),
    };
    Some(format!("vLLM:    {url} {how}{log}"))
}

/// Adapters that were to serve and cannot.
fn lost(lost: &Value) -> Vec<String> {
    let line = |it: &Value| {
        let [agent, adapter, why] = ["agent", "adapter", "why"].map(|key| said(&it[key]));
        format!("adapter: {adapter} cannot serve {agent}, and the base model answers: {why}")
    };
    lost.as_array().into_iter().flatten().map(line).collect()
}

/// How an upstream answers, and how it failed last.
fn upstream(name: &str, it: &Value, now_ms: u64) -> String {
    let count = |key: &str| it[key].as_u64().unwrap_or_default();
    let (good_ms, failed_ms) = (count("last_good_ms"), count("last_failed_ms"));
    let counts = format!("{} answered, {} failed", count("n_good"), count("n_failed"));
    if failed_ms == 0 {
        return format!("asked:   {name}: {counts}");
    }
    let ago = out::span(now_ms.saturating_sub(failed_ms));
    let failure = said(&it["last_failure"]);
    if failed_ms > good_ms {
        format!("asked:   {name} fails: {failure}, {ago} ago ({counts})")
    } else {
        format!("asked:   {name}: {counts}; the last that failed: {failure}, {ago} ago")
    }
}

/// The way of turns to the weights, as far as each got.
fn funnel(funnel: &Value, weights: bool) -> String {
    let stages: &[&str] = if weights {
        &["turns", "main", "complete", "with_ids", "judged", "trained"]
    } else {
        &["turns", "main", "complete", "judged"]
    };
    let count = |key: &&str| format!("{} {}", key.replace('_', " "), funnel[*key]);
    let counts: Vec<String> = stages.iter().map(count).collect();
    let (first, rest) = (&counts[0], &counts[1..]);
    let first = first.trim_start_matches("turns ");
    let at_end = funnel["judged_at_session_end"].as_u64();
    let at_end = at_end.filter(|n| *n > 0);
    let at_end = at_end.map(|n| format!("; of the judged {n} at their session's end"));
    let open = funnel["taken"].as_u64().filter(|n| *n > 0);
    let open = open.map(|n| format!(" (+ {n} in an open step)"));
    format!(
        "turns:   {first} -> {}{}{}",
        rest.join(" -> "),
        open.unwrap_or_default(),
        at_end.unwrap_or_default()
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
            "log:     it was damaged, and lies in {place} now; an empty one began (`metaclaw doctor` looks what can be had of it)"
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

/// What waits for the owner's look.
pub(super) fn review(status: &Value) -> impl Iterator<Item = String> {
    let waiting = Waiting::deserialize(&status["waiting"]).unwrap_or_default();
    waiting.lines().into_iter()
}

/// What was spent today.
pub(super) fn spend(spend: &Value) -> Option<String> {
    let (limit, learning) = (spend["limit"].as_u64()?, spend["learning"].as_u64()?);
    let failed = spend["n_failed"].as_u64().filter(|n| *n > 0);
    let failed = failed.map_or_else(String::new, |n| format!(", {n} not answered"));
    let asked = out::count(spend["n_answered"].as_u64().unwrap_or_default(), "question");
    Some(format!(
        "{} tokens of chat; {learning} of learning ({asked}{failed}; {} left)",
        spend["chat"],
        limit.saturating_sub(learning)
    ))
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

    /// A cloud user was told of a base model and of samples of redo.
    #[test]
    fn where_no_weights_are_trained_nothing_is_said_of_them() {
        let status = json!({
            "pid": 7, "proxy": "127.0.0.1:30000", "since_ms": 1_000,
            "about": {"mode": "skills_only", "serves": "m at x", "learns": "wishes", "leaves": "chat"},
            "funnel": {"turns": 5, "main": 5, "complete": 4, "with_ids": 0, "judged": 3, "trained": 0},
            "learner": {
                "phase": {"is": "off"}, "judging": {"waiting": 1, "failing": null},
                "agents": [{"agent": "main", "adapter": null, "n_redo": 0, "n_binary_rl": 0, "last_step": null}],
            },
        });
        insta::assert_snapshot!(text(&status, 61_000), @r"
        MetaClaw: running  (PID=7, mode=skills_only, proxy=127.0.0.1:30000, for 1 min)
        serves:  m at x
        learns:  wishes
        leaves:  chat
        turns:   5 -> main 5 -> complete 4 -> judged 3
        learner: no weights are trained; turns that wait for a verdict: 1
        ");
    }

    #[test]
    fn nobody_without_weights_is_told_of_steps() {
        let agent = json!({"agent": "main", "adapter": null, "n_redo": 0, "n_binary_rl": 0, "last_step": null});
        let learner = |phase: &str| json!({"phase": {"is": phase}, "judging": {"waiting": 0}, "agents": [agent]});
        let shown = |phase: &str| text(&json!({"learner": learner(phase)}), 1_000);
        assert!(shown("collecting").contains("main on the base model"));
        assert!(!shown("off").contains("base model"));
    }

    #[test]
    fn a_server_that_refuses_is_told_with_the_time_of_the_next_try() {
        let shown = |is: &str| {
            let phase = json!({"is": is, "why": "the key is refused", "until_ms": 121_000});
            text(
                &json!({"learner": {"phase": phase, "judging": {"waiting": 2}}}),
                1_000,
            )
        };
        let line = |is: &str| {
            let shown = shown(is);
            let mut lines = shown.lines();
            lines
                .find(|line| line.starts_with("learner:"))
                .unwrap()
                .to_owned()
        };
        insta::assert_snapshot!(line("refused"), @"learner: the training server refuses: the key is refused; it is asked again in 2 min; turns that wait for a verdict: 2");
        insta::assert_snapshot!(line("resting"), @"learner: rests: the key is refused; the next try is in 2 min; turns that wait for a verdict: 2");
    }

    #[test]
    fn what_upstreams_answered_and_what_the_file_says_now_is_told() {
        let status = json!({
            "config_changed": "/h/config.yaml",
            "upstreams": {
                "claude": {"n_good": 7, "n_failed": 1, "last_good_ms": 60_000, "last_failed_ms": 1_000, "last_failure": "429 Too Many Requests"},
                "llm": {"n_good": 2, "n_failed": 3, "last_good_ms": 1_000, "last_failed_ms": 59_000, "last_failure": "401 Unauthorized"},
                "other": {"n_good": 1, "n_failed": 0, "last_good_ms": 1_000, "last_failed_ms": null, "last_failure": null},
            },
        });
        let shown = text(&status, 61_000);
        let is_of_it = |line: &&str| line.starts_with("asked:") || line.starts_with("settings:");
        let shown: Vec<&str> = shown.lines().filter(is_of_it).collect();
        insta::assert_snapshot!(shown.join("\n"), @r"
        settings: /h/config.yaml changed since the start: restart to use it
        asked:   claude: 7 answered, 1 failed; the last that failed: 429 Too Many Requests, 1 min ago
        asked:   llm fails: 401 Unauthorized, 2 s ago (2 answered, 3 failed)
        asked:   other: 1 answered, 0 failed
        ");
    }

    #[test]
    fn a_training_server_elsewhere_is_said_with_what_it_lacks() {
        let shown = |trainer: Value| {
            text(
                &json!({"trainer": trainer, "lost": [{"agent": "main", "adapter": "a-1", "why": "a-1 is not here"}]}),
                1_000,
            )
        };
        let lines = |trainer: Value| -> String {
            let shown = shown(trainer);
            let is_of_it =
                |line: &&str| line.starts_with("trainer:") || line.starts_with("adapter:");
            shown
                .lines()
                .filter(is_of_it)
                .collect::<Vec<_>>()
                .join("\n")
        };
        let url = "http://gpu:8000";
        insta::assert_snapshot!(lines(json!({"is": "answers", "url": url, "model": "Qwen3-4B"})), @r"
        trainer: http://gpu:8000 answers, and has Qwen3-4B
        adapter: a-1 cannot serve main, and the base model answers: a-1 is not here
        ");
        assert!(
            shown(json!({"is": "away", "url": url, "why": "refused"}))
                .contains("trainer: http://gpu:8000 cannot be used: refused\n")
        );
        assert!(
            shown(json!({"is": "without_model", "url": url, "why": "w"}))
                .contains("trainer: http://gpu:8000 has no model: w\n")
        );
    }

    #[test]
    fn a_vllm_that_answers_for_the_trainer_is_said_with_what_is_wrong() {
        let shown = |inference: Value| {
            let shown = text(&json!({"inference": inference}), 1_000);
            let line = shown.lines().find(|line| line.starts_with("vLLM:"));
            line.map(str::to_owned)
        };
        let url = "http://127.0.0.1:8001";
        assert_eq!(shown(Value::Null), None);
        let lines = [
            json!({"url": url, "state": "ready", "why": null, "log": null}),
            json!({"url": url, "state": "away", "why": "it is being started", "log": "/h/trainer/vllm.log"}),
            json!({"url": url, "state": "refused", "why": "another model", "log": null}),
        ]
        .map(|inference| shown(inference).unwrap());
        insta::assert_snapshot!(lines.join("\n"), @r"
        vLLM:    http://127.0.0.1:8001 answers
        vLLM:    http://127.0.0.1:8001 does not answer: it is being started (started by the trainer; its output: /h/trainer/vllm.log)
        vLLM:    http://127.0.0.1:8001 is not asked: another model
        ");
    }

    #[test]
    fn the_lines_say_who_serves_and_how_far_turns_got() {
        let status = json!({
            "dropped_lines": 3, "pid": 7, "proxy": "127.0.0.1:30000", "since_ms": 1_000,
            "about": {"mode": "rl", "serves": "demo", "learns": "weights", "leaves": "nothing"},
            "trainer": {"is": "ready", "address": "127.0.0.1:1", "pid": 8},
            "funnel": {"turns": 5, "main": 5, "complete": 4, "with_ids": 4, "judged": 3, "judged_at_session_end": 1, "trained": 0, "taken": 2, "spent": {"unclear": 1}},
            "log": {"broken": null, "moved_aside": "/h/turns/damaged-1", "n_lost": 0},
            "spend": {"day": 1, "chat": 9000, "learning": 300, "n_answered": 2, "n_failed": 1, "limit": 50000},
            "waiting": {"skills": 2, "wishes": {"main": 1}},
            "learner": {
                "phase": {"is": "collecting"}, "judging": {"waiting": 1, "failing": null},
                "window": {"is": "closed", "why": {"is": "chatting", "until_ms": 7}},
                "batch_size": 4,
                "agents": [{"agent": "_default", "adapter": null, "n_redo": 1, "n_binary_rl": 2,
                    "n_unanswered": 3, "not_taught": {"no draw of the teacher does what is wished": 4},
                    "last_step": {"n": 7, "n_redo": 8, "n_again": 4},
                    "taken_back": {"adapter": "a-2", "to": "a-1", "why": "of 9 verdicts 8 are bad", "at_ms": 1},
                    "began_anew": {"why": "the base model has changed (a to b)", "at_ms": 1}}],
            },
        });
        insta::assert_snapshot!(text(&status, 61_000), @r#"
        MetaClaw: running  (PID=7, mode=rl, proxy=127.0.0.1:30000, for 1 min)
        serves:  demo
        learns:  weights
        leaves:  nothing
        trainer: ready at 127.0.0.1:1 (PID=8)
        turns:   5 -> main 5 -> complete 4 -> with ids 4 -> judged 3 -> trained 0 (+ 2 in an open step); of the judged 1 at their session's end
                 1 not used: unclear
        log:     it was damaged, and lies in /h/turns/damaged-1 now; an empty one began (`metaclaw doctor` looks what can be had of it)
        learner: collecting; turns that wait for a verdict: 1
        window:  closed: you chatted a moment ago  (metaclaw scheduler status)
        agent:   _default on the base model; 1 taught and 2 judged replies ready to train on (a batch: 4), 3 that wait for the teacher's reply; last step 7 (of 8 redo samples 4 again)
                 4 not taught: no draw of the teacher does what is wished
                 taken back: a-2, as verdicts got worse: of 9 verdicts 8 are bad
                 its weights began anew: the base model has changed (a to b)
        today:   9000 tokens of chat; 300 of learning (2 questions, 1 not answered; 49700 left)
        review:  2 skills that a model wrote wait for your look  (metaclaw skills review)
        review:  1 wish waits for your look  (metaclaw wishes review --agent main)
        output:  3 log lines were dropped: nobody read them in time
        "#);
    }
}
