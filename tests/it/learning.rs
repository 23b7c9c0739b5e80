//! Learning on the real engine: the demo model, an owner who likes short answers, the rules that judge, the teacher,
//! steps, the gate and the swap.

use std::time::{Duration, Instant};

use metaclaw_tests::{
    client::Client,
    home::{Home, Proxy},
    laptop::{Conversation, Script},
    wait::until,
};
use serde_json::Value;

use crate::chat::laptop_home;

mod commands;
mod data_set;
mod examples;
mod methods;
mod nets;
mod remote;
mod rollouts;
mod swap;
mod tinker;
mod two_machines;
mod vllm;

/// How long a step may take to be made and tested, on a machine that has much else to do.
const STEP_WITHIN: Duration = Duration::from_secs(900);

/// A home as `cargo xtask start` makes it, in which nothing but weights can learn: no wish is put into a prompt.
fn home_without_wishes() -> Home {
    laptop_home().with_env("METACLAW__WISHES__ENABLED", "false")
}

/// Conversations of an owner who says "Too long." to what has over 40 words; none may fail.
async fn talk(client: &Client, seed: u64, conversations: usize) -> Vec<Conversation> {
    let script = Script {
        seed,
        conversations,
        max_tokens: 96,
        retry_for: Duration::ZERO,
    };
    script.run(client, Instant::now(), |_, _| ()).await
}

/// What the learner says of the one agent; null before it has said anything.
async fn agent(home: &Home) -> Value {
    let mut status = home.ask(&["status", "--json"]).await.unwrap();
    let agents = &mut status["learner"]["agents"];
    agents.get_mut(0).map(Value::take).unwrap_or_default()
}

/// Waits until something of the agent is known: the field of its status.
async fn known(home: &Home, field: &str) -> Value {
    let mut found = Value::Null;
    let is_known = async || {
        found = agent(home).await[field].take();
        if found.is_null() {
            // Each look is a command, whose CPU the step would miss.
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        !found.is_null()
    };
    let waited = until(STEP_WITHIN, is_known).await;
    waited.unwrap_or_else(|error| panic!("{field}: {error}: {}", home.log()));
    found
}

/// The adapter that answers a new conversation.
async fn answers(proxy: &Proxy) -> Option<String> {
    let question = [serde_json::json!({"role": "user", "content": "What is tea?"})];
    let asked = serde_json::json!({"max_tokens": 4});
    let reply = proxy.client().stream(&question, &asked).await.unwrap();
    reply.adapter.filter(|name| name != "base")
}
