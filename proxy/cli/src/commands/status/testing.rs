//! A status for tests of what is shown of it.

use metaclaw_control::status::ProcessStatus;
use serde_json::{Value, json};

/// A status of nothing special but for these fields; agents and their last steps are filled up as well.
pub(in crate::commands) fn status(differs: Value) -> ProcessStatus {
    let mut status = json!({
        "pid": 7, "version": "0.1.0", "proxy": "127.0.0.1:30000", "since_ms": 1_000,
        "about": {"mode": "rl", "serves": "m at x", "learns": "wishes", "leaves": "chat", "judges_complaints": true, "places": {}},
        "off": {}, "trainer": null, "inference": null, "serving": {}, "lost": [], "context": null,
        "funnel": {}, "log": {"oldest_unflushed_ms": null, "n_lost": 0}, "counts": counts(), "upstreams": {},
        "config_changed": null, "dropped_lines": 0, "learner": null,
        "spend": {"limit": 50_000}, "cloud": null, "waiting": null,
    });
    merge(&mut status, differs);
    if status["learner"].is_object() {
        let mut learner = json!({
            "mode": "auto", "method": "context_distillation", "batch_size": 8,
            "judging": {"waiting": 0, "failing": null}, "phase": {"is": "collecting"},
            "window": {"is": "closed", "why": {"is": "chatting", "until_ms": 7}}, "agents": [],
        });
        merge(&mut learner, status["learner"].take());
        if let Some(agents) = learner["agents"].as_array_mut() {
            agents.iter_mut().for_each(fill_agent);
        }
        status["learner"] = learner;
    }
    serde_json::from_value(status).unwrap()
}

fn counts() -> Value {
    serde_json::to_value(metaclaw_gateway::Counts::default()).unwrap()
}

fn fill_agent(agent: &mut Value) {
    let mut whole = json!({
        "agent": "main", "adapter": null, "n_redo": 0, "n_unanswered": 0, "not_taught": {}, "n_binary_rl": 0,
        "last_step": null, "declined": null, "taken_back": null, "began_anew": null, "last_window_ms": null, "funnel": {},
    });
    merge(&mut whole, agent.take());
    if whole["last_step"].is_object() {
        let mut step = json!({
            "agent": "main", "lineage": "0badcafe", "n": 1, "step": 1, "adapter": "a-1", "n_redo": 0, "n_binary_rl": 0,
            "n_again": 0, "n_turns": 0, "mean_reward": 0.0, "success_rate": 0.0, "loss": 0.0, "grad_norm": 0.0,
            "learning_rate": 0.0, "serves": true, "gate": null, "seconds": 0.0, "ended_ms": 0,
            "batch": serde_json::to_value(metaclaw_learner::BatchStats::default()).unwrap(),
        });
        merge(&mut step, whole["last_step"].take());
        whole["last_step"] = step;
    }
    *agent = whole;
}

fn merge(whole: &mut Value, differs: Value) {
    match (whole, differs) {
        (Value::Object(whole), Value::Object(differs)) => {
            for (name, value) in differs {
                merge(whole.entry(name).or_insert(Value::Null), value);
            }
        }
        (whole, differs) => *whole = differs,
    }
}
