//! Tests of how often a request's bytes are read until its turn is in the log.

use std::sync::atomic::Ordering;

use metaclaw_chat::work;
use serde_json::{Value, json};

use super::harness::{BRIEF, Harness};

const SENTENCE: &str = "When the owner asks for a \"summary\", give at most five points.\n";

/// Makes a request like OpenClaw's with a system text of 26 KB, 24 tools of 1 KB, and so many turns.
fn request(n_turns: usize) -> String {
    let tool = |n: usize| {
        let described = SENTENCE.repeat(16);
        let function = json!({"name": format!("tool_{n}"), "description": described});
        json!({"type": "function", "function": function})
    };
    let mut messages = vec![json!({"role": "system", "content": SENTENCE.repeat(420)})];
    for turn in 0..n_turns {
        let asked = format!("[Fri 2026-11-20 05:31 UTC] Which invoices of month {turn} are open?");
        messages.push(json!({"role": "user", "content": asked}));
        if turn + 1 < n_turns {
            let call = json!({"id": format!("call{turn}"), "type": "function",
                "function": {"name": "tool_1", "arguments": "{\"command\":\"ls\"}"}});
            messages.extend([
                json!({"role": "assistant", "content": null, "tool_calls": [call]}),
                json!({"role": "tool", "tool_call_id": format!("call{turn}"), "content": SENTENCE.repeat(20)}),
                json!({"role": "assistant", "content": "Two are open."}),
            ]);
        }
    }
    let tools: Vec<Value> = (0..24).map(tool).collect();
    json!({"model": "m", "messages": messages, "tools": tools}).to_string()
}

// Only a build with debug assertions counts.
#[cfg(debug_assertions)]
#[tokio::test]
async fn a_request_of_a_known_session_is_read_twice_at_most() {
    let mut harness = Harness::taught(&[BRIEF]).await;
    for n_turns in 1..6 {
        let body = request(n_turns);
        work::looked_at();
        harness.chat("", &body, "ok").await;
        harness.log.wait(n_turns).await;
        let relayed = work::looked_at();
        let recorded = harness.log.n_looked_at.load(Ordering::Relaxed);
        let n_bytes = body.len();
        assert!(
            relayed >= n_bytes && recorded > 0,
            "{relayed} and {recorded}"
        );
        // Texts that are new, here the system prompt and the tools, are searched and hashed once more.
        let most = if n_turns == 1 { 5 } else { 2 };
        let n_passes = (relayed + recorded) / n_bytes;
        assert!(
            n_passes <= most,
            "turn {n_turns} of {n_bytes} bytes: {relayed} bytes are read to relay it, {recorded} to record it"
        );
    }
}
