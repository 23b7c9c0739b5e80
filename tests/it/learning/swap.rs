//! Tests the way from complaints to an adapter that serves, and to one that is declined.

use std::time::Duration;

use metaclaw_tests::home::{Home, Proxy};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::{STEP_WITHIN, agent, answers, home_without_wishes, known, talk};

/// A hundred times the demo's rate: a step with it ends in nonsense.
const RUINOUS: &str = "0.05";
/// A tenth of the demo's rate: replies change, and stay as good as they were.
const GENTLE: &str = "0.00005";
/// The gate's tests that are made of each adapter. `preference` is skipped if there are no turns for it.
const TESTS: [&str; 11] = [
    "relevance",
    "fluency",
    "short",
    "distinct",
    "questions",
    "calls",
    "length",
    "capability",
    "margin",
    "tools",
    "broken_calls",
];

/// A home in which the first conversations lead to a step.
fn home_at(learning_rate: &str) -> Home {
    home_without_wishes()
        .with_env("METACLAW__RL__LEARNING_RATE", learning_rate)
        .with_env("METACLAW__RL__BATCH_SIZE", "2")
}

#[tokio::test]
#[ignore = "needs the binaries and the model, cargo xtask test --all runs it"]
async fn weights_that_ruin_are_declined_and_serve_nobody() {
    let home = home_at(RUINOUS);
    let proxy = home.start().await.unwrap();
    talk(&proxy.client(), 1, 3).await;
    let step = known(&home, "last_step").await;
    assert_eq!(step["serves"], false, "{step}");
    let declined = agent(&home).await["declined"].take();
    assert_eq!(declined["adapter"], step["adapter"]);
    assert_eq!(answers(&proxy).await, None, "{declined}");
    proxy.stop().await.unwrap();
}

/// Asks a harmless question each second until an adapter answers, and no request fails; returns the adapter's name. The
/// owner complains no more meanwhile, so that there is no second step.
async fn asks_until_swapped(proxy: &Proxy) -> String {
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let adapter = async {
        loop {
            ticks.tick().await;
            if let Some(adapter) = answers(proxy).await {
                return adapter;
            }
        }
    };
    let swapped = timeout(STEP_WITHIN, adapter).await;
    swapped.expect("an adapter comes to serve")
}

/// Every kind of test was made, and passed.
fn assert_passed(step: &Value) {
    for name in TESTS {
        let tests = step["gate"]["tests"].as_array().unwrap();
        let test = tests.iter().find(|test| test["name"] == name);
        let test = test.unwrap_or_else(|| panic!("{name} was not tested: {step}"));
        assert_eq!(test["passed"], true, "{test}");
        assert!(test["value"].is_number() && test["limit"].is_number());
    }
}

#[tokio::test]
#[ignore = "needs the binaries and the model, cargo xtask test --all runs it"]
async fn what_was_complained_about_is_learned_and_swapped_in_under_traffic() {
    let home = home_at(GENTLE);
    let proxy = home.start().await.unwrap();
    talk(&proxy.client(), 1, 3).await;
    let adapter = asks_until_swapped(&proxy).await;
    let step = known(&home, "last_step").await;
    assert_eq!(
        (&step["adapter"], &step["serves"]),
        (&json!(adapter), &json!(true))
    );
    assert_passed(&step);
    assert_eq!(answers(&proxy).await, Some(adapter));
    proxy.stop().await.unwrap();
}
