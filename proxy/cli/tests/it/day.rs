//! Tests a day: two agents, eight sessions, fifty turns with tools, with a cloud model and a key. The test measures
//! what learning costs.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use metaclaw_test_kit::chat;
use serde_json::{Value, json};

use crate::harness::{Home, Reply, Request, Running, Server, until};

/// The size of OpenClaw's system text and tools, in bytes.
const SYSTEM: usize = 26_000;
const TURNS: usize = 50;

#[derive(Debug, Default)]
struct Asked {
    chats: AtomicU64,
    heard: AtomicU64,
    judged: AtomicU64,
    written: AtomicU64,
    chat: AtomicU64,
    learning: AtomicU64,
}

/// A cloud that calls tools before it answers, follows no wish, and counts.
fn answer(asked: &Asked, request: &Request) -> Reply {
    let request = request.json();
    let messages = request["messages"].as_array().cloned().unwrap_or_default();
    let text =
        |message: Option<&Value>| message.and_then(|it| it["content"].as_str().map(str::to_owned));
    let system = text(messages.first()).unwrap_or_default();
    let last = messages.last();
    let said = text(last).unwrap_or_default();
    let (of, message) = if system.starts_with("You read what a person said") {
        let is_wish = said.contains("in one sentence");
        let heard = if is_wish {
            "wish 1: Answer in one sentence."
        } else {
            "none"
        };
        (&asked.heard, json!({"role": "assistant", "content": heard}))
    } else if system.starts_with("You judge") {
        let vote = "The user objects.\nhint: NONE\nverdict: -1";
        (&asked.judged, json!({"role": "assistant", "content": vote}))
    } else if request["tools"].is_array() {
        let looks_up = last.is_some_and(|it| it["role"] == "user") && said.contains("Look up");
        let call = json!({"id": "call1", "type": "function", "function": {"name": "search", "arguments": "{}"}});
        let message = if looks_up {
            json!({"role": "assistant", "content": null, "tool_calls": [call]})
        } else {
            json!({"role": "assistant", "content": format!("answer to {}", messages.len())})
        };
        (&asked.chats, message)
    } else {
        (
            &asked.written,
            json!({"role": "assistant", "content": "[]"}),
        )
    };
    of.fetch_add(1, Ordering::Relaxed);
    let prompt = u64::try_from(request.to_string().len() / 4).unwrap_or_default();
    let tokens = if std::ptr::eq(of, &raw const asked.chats) {
        &asked.chat
    } else {
        &asked.learning
    };
    tokens.fetch_add(prompt + 20, Ordering::Relaxed);
    let mut reply = chat::completion(&message);
    reply["model"] = request["model"].clone();
    reply["usage"] =
        json!({"prompt_tokens": prompt, "completion_tokens": 20, "total_tokens": prompt + 20});
    Reply::json(reply)
}

/// Runs one session of an agent as OpenClaw does; returns the number of its turns.
async fn session(proxy: &Running, name: &str, agent: &str, said: &[&str]) -> usize {
    let runtime = format!("\n\nRuntime: agent={agent} | session=agent:{agent}:{name} | host=box");
    let mut messages = vec![json!({"role": "system", "content": "s ".repeat(SYSTEM / 2)})];
    let mut n_turns = 0;
    for (n, said) in said.iter().enumerate() {
        let runtime = if n == 0 { runtime.as_str() } else { "" };
        let typed = format!("[Fri 2026-11-20 05:31 UTC] {said}{runtime}");
        messages.push(json!({"role": "user", "content": typed}));
        loop {
            let tools =
                json!([{"type": "function", "function": {"name": "search", "parameters": {}}}]);
            let body = json!({"model": "scripted", "messages": messages, "tools": tools});
            let reply = proxy.send("/v1/chat/completions", name, &body).await;
            let (_, reply) = reply.split_once("\r\n\r\n").expect("no body");
            let reply: Value = serde_json::from_str(reply).unwrap();
            let message = reply["choices"][0]["message"].clone();
            let calls = message["tool_calls"].is_array();
            messages.push(message);
            n_turns += 1;
            if !calls {
                break;
            }
            messages.push(
                json!({"role": "tool", "tool_call_id": "call1", "content": "no error, 42 found"}),
            );
        }
    }
    n_turns
}

/// Runs the day; every eighth message objects, and one is a wish.
async fn day(proxy: &Running) -> usize {
    let mut n_turns = 0;
    for n in 0..8 {
        let agent = if n % 2 == 0 { "main" } else { "work" };
        let last = match n {
            0 => "Please always answer in one sentence.",
            1 => "Thanks, that was it.",
            _ => "No, that is wrong, I meant the other one.",
        };
        let said = [
            "Look up the opening hours of the museum",
            "And who built it?",
            "Look up the price of a ticket",
            last,
        ];
        n_turns += session(proxy, &format!("s-{n}"), agent, &said).await;
    }
    // Two more make fifty.
    n_turns += session(proxy, "s-8", "main", &["What is rain?", "And snow?"]).await;
    n_turns
}

#[tokio::test]
async fn a_day_of_learning_costs_a_twentieth_of_the_chat_at_most() {
    let cloud = Arc::new(Asked::default());
    let counting = Arc::clone(&cloud);
    let server = Server::new(move |request| match request.path() {
        "/v1/models" => Reply::status(404, "{}"),
        _ => answer(&counting, request),
    });
    let home = Home::new(&format!(
        "mode: skills_only\nproxy: {{port: 0}}\nllm: {{api_base: '{}/v1', model_id: scripted, api_key: sk-0123456789abcd}}\n\
         scheduler: {{idle_minutes: 0, on_battery: true}}\n",
        server.url()
    ));
    let proxy = home.start().await;
    assert_eq!(day(&proxy).await, TURNS);
    let asked = |of: &AtomicU64| of.load(Ordering::Relaxed);
    // There are 34 typed messages; six object to the turn before them, and one sounds as if it did ("that was it"). Rules
    // are sure about the wish, the questions and the thanks. The objections wait to be read in one request.
    let is_over = async || {
        let status = home.json(&["status", "--json"]).await;
        let (spend, funnel) = (&status["spend"], &status["funnel"]);
        let seen = json!([
            asked(&cloud.heard),
            asked(&cloud.judged),
            funnel["turns"],
            funnel["judged"],
            status["learner"]["hearing"]["waiting"]
        ]);
        let is_counted =
            spend["learning"] == asked(&cloud.learning) && spend["chat"] == asked(&cloud.chat);
        (seen, is_counted, status)
    };
    let all = json!([0, 7, TURNS, 7, 7]);
    let (.., status) = until("all counts", is_over, |it| it.0 == all && it.1).await;
    assert_eq!(status["learner"]["hearing"]["is_held_back"], false);
    let spend = |key: &str| status["spend"][key].as_u64().unwrap();
    let (chat, learning) = (spend("chat"), spend("learning"));
    println!("chat {chat}, learning {learning}, of the cloud: {cloud:?}");
    assert!(learning * 20 <= chat, "{learning} of {chat}");
    let wishes = home
        .json(&["wishes", "list", "--agent", "main", "--json"])
        .await;
    assert_eq!(
        wishes["wishes"],
        json!(["Please always answer in one sentence."])
    );

    // The log counts a moment after the budget.
    let report = home
        .json_until(&["report", "--json"], |it| it["learning"] == learning)
        .await;
    let today = report["days"].as_array().unwrap().last().unwrap();
    assert_eq!(today["lessons"], 1, "{today}");
    assert_eq!(report["turns"], TURNS);
    assert_eq!(report["verdicts"]["bad"], 7, "{report}");
    home.stop(proxy).await;
}
