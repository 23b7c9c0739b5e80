//! What the learner does, and how each agent's weights are, in lines.

use metaclaw_chat::Span;
use metaclaw_schedule::Window;
use serde::Deserialize as _;
use serde_json::Value;

use crate::out;

/// What the learner does, and how each agent's weights are.
pub(super) fn learner(learner: &Value, now_ms: u64) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(phase) = learner["phase"]["is"].as_str() {
        let waiting = &learner["judging"]["waiting"];
        let doing = match phase {
            "off" => "no weights are trained".to_owned(),
            "awaiting_request" => {
                "a batch is ready: `metaclaw train-step` trains it (gate.enabled is false, so that mode auto trains none by itself)".to_owned()
            }
            "awaiting_window" => "a batch is ready, and waits until you are away".to_owned(),
            "teaching" | "stepping" | "testing" => {
                format!("{phase}, for {}", said(&learner["phase"]["agent"]))
            }
            "waiting_for_trainer" => {
                format!("waits for the training server: {}", said(&learner["phase"]["why"]))
            }
            "refused" => format!(
                "the training server refuses: {}; it is asked again in {}",
                said(&learner["phase"]["why"]),
                until(&learner["phase"], now_ms)
            ),
            "resting" => format!(
                "rests: {}; the next try is in {}",
                said(&learner["phase"]["why"]),
                until(&learner["phase"], now_ms)
            ),
            "finished" => {
                format!("has made the {} steps of rl.max_steps", learner["phase"]["n_steps"])
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
    // Where no weights learn there are no samples and no steps to tell of.
    let learns = learner["phase"]["is"] != "off";
    let agents = learner["agents"].as_array().filter(|_| learns);
    for agent in agents.into_iter().flatten() {
        let adapter = agent["adapter"].as_str().unwrap_or("the base model");
        let ready = ready(agent, &learner["batch_size"]);
        let waiting = match agent["n_unanswered"].as_u64().unwrap_or(0) {
            0 => String::new(),
            n => format!(", {n} that wait for the teacher's reply"),
        };
        let last = match agent["last_step"]["n"].as_u64() {
            Some(n) => format!("last step {n}{}", again(&agent["last_step"])),
            None => "no step yet".to_owned(),
        };
        lines.push(format!(
            "agent:   {} on {adapter}; {ready}{waiting}; {last}",
            said(&agent["agent"])
        ));
        for (why, n) in agent["not_taught"].as_object().into_iter().flatten() {
            lines.push(format!("         {n} not taught: {why}"));
        }
        lines.extend(declined(&agent["declined"], now_ms));
        if agent["taken_back"].is_object() {
            let taken_back = &agent["taken_back"];
            let why = said(&taken_back["why"]);
            lines.push(format!(
                "         taken back: {}, as verdicts got worse: {why}",
                said(&taken_back["adapter"])
            ));
        }
        if agent["began_anew"].is_object() {
            let why = said(&agent["began_anew"]["why"]);
            lines.push(format!("         its weights began anew: {why}"));
        }
    }
    lines
}

/// How many replies a step could be made of, and how many it takes.
fn ready(agent: &Value, batch_size: &Value) -> String {
    let of_batch = match batch_size.as_u64() {
        Some(n) => format!(" (a batch: {n})"),
        None => String::new(),
    };
    format!(
        "{} taught and {} judged replies ready to train on{of_batch}",
        agent["n_redo"], agent["n_binary_rl"]
    )
}

/// How long until something is tried again.
fn until(phase: &Value, now_ms: u64) -> String {
    let until_ms = phase["until_ms"].as_u64().unwrap_or(now_ms);
    out::span(until_ms.saturating_sub(now_ms))
}

/// How many of a step's samples earlier steps had as well.
fn again(step: &Value) -> String {
    match step["n_again"].as_u64().unwrap_or(0) {
        0 => String::new(),
        n => format!(" (of {} redo samples {n} again)", step["n_redo"]),
    }
}

/// What the gate declined since an adapter last passed.
fn declined(declined: &Value, now_ms: u64) -> Vec<String> {
    if !declined.is_object() {
        return Vec::new();
    }
    let in_a_row = match declined["in_a_row"].as_u64() {
        Some(n) if n > 1 => format!(", {n} in a row"),
        Some(_) | None => String::new(),
    };
    let mut lines = vec![format!(
        "         declined: {}{in_a_row}: {}",
        said(&declined["adapter"]),
        said(&declined["why"])
    )];
    if let Some(until_ms) = declined["rests_until_ms"].as_u64() {
        let rest = Span::secs(until_ms.saturating_sub(now_ms) / 1_000);
        lines.push(format!(
            "         it rests for {rest}, or until 8 turns more are judged; its wishes are kept by their lines"
        ));
    }
    lines
}

/// A text; of what is not there a question mark.
pub(super) fn said(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}
