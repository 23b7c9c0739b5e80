//! From complaints to an adapter that serves, and one that may not.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use metaclaw_tests::{
    client::Client,
    home::{Home, Proxy},
    laptop::words,
    questions,
    upstream::{Play, Upstream},
};
use metaclaw_turns::Turn;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::{STEP_WITHIN, agent, answers, home_without_wishes, known, talk};

/// A hundred times the demo's: a step of it ends in nonsense.
const RUINOUS: &str = "0.05";
/// What the owner writes down.
const WISH: &str = "Answer in one short sentence.";
/// Of the gate: what makes up a whole test. `preference` is skipped where there are no turns for it.
const TESTS: [&str; 8] = [
    "relevance",
    "fluency",
    "short",
    "distinct",
    "length",
    "capability",
    "margin",
    "tools",
];
/// Questions that are asked before and after, and at once.
const N_ASKED: usize = 24;
const AT_ONCE: usize = 8;

#[tokio::test]
#[ignore = "needs the binaries and the model, cargo xtask test --all runs it"]
async fn weights_that_ruin_are_declined_and_serve_nobody() {
    let home = home_without_wishes()
        .with_env("METACLAW__RL__LEARNING_RATE", RUINOUS)
        .with_env("METACLAW__RL__BATCH_SIZE", "2");
    let proxy = home.start().await.unwrap();
    talk(&proxy.client(), 1, 3).await;
    let step = known(&home, "last_step").await;
    assert_eq!(step["serves"], false, "{step}");
    let declined = agent(&home).await["declined"].take();
    assert_eq!(declined["adapter"], step["adapter"]);
    assert_eq!(answers(&proxy).await, None, "{declined}");
    proxy.stop().await.unwrap();
}

/// Answers' words in all, to questions of which each is a conversation of its own.
async fn words_said(client: &Client) -> usize {
    let ask = |(seed, question): (usize, &'static str)| async move {
        let question = [json!({"role": "user", "content": question})];
        let asked = json!({"max_tokens": 64, "temperature": 0.7, "seed": seed});
        words(&client.stream(&question, &asked).await.unwrap().text)
    };
    let questions = (0..N_ASKED).zip(questions::shuffled(2));
    let answers = stream::iter(questions).map(ask).buffer_unordered(AT_ONCE);
    let answers: Vec<usize> = answers.collect().await;
    answers.iter().sum()
}

/// The owner talks every ten seconds until an adapter answers, and no request fails; the adapter's name.
async fn talks_until_swapped(proxy: &Proxy) -> String {
    let client = proxy.client();
    let mut ticks = interval(Duration::from_secs(10));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let adapter = async {
        for seed in 3.. {
            ticks.tick().await;
            let talked = talk(&client, seed, 1).await;
            if let Some(adapter) = talked[0].adapter.clone().filter(|it| it != "base") {
                return adapter;
            }
        }
        unreachable!("seeds do not end")
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

/// The wishes in the prompt of the newest conversation that was answered so.
async fn wishes_told(home: &Home, adapter: Option<&str>) -> usize {
    let name = |turn: &Turn| turn.served.adapter.clone().filter(|it| it != "base");
    let turns = home.turns().await.into_iter();
    let turns = turns.filter(|turn| name(turn).as_deref() == adapter);
    let newest = turns.max_by_key(|turn| turn.meta.ended_ms);
    newest.expect("a turn of it").served.wish_ids.len()
}

#[tokio::test]
#[ignore = "needs the binaries and the model, cargo xtask test --all runs it"]
async fn what_was_complained_about_is_learned_and_swapped_in_under_traffic() {
    // Rules say which replies are good; what they do not know, as whether a wish is kept, a model says.
    let judge = Upstream::start(Play::Text(r"\boxed{1}")).await;
    let home = home_without_wishes()
        .with_env("METACLAW__JUDGE__KIND", "llm")
        .with_env("METACLAW__JUDGE__URL", format!("{}/v1", judge.base_url))
        .with_env("METACLAW__JUDGE__MODEL", "judge")
        // The stand-in says of each answer that it took 1,241 tokens.
        .with_env("METACLAW__BUDGET__TOKENS_PER_DAY", "10000000")
        // Not while the owner talks.
        .with_env("METACLAW__MODE", "auto");
    let proxy = home.start().await.unwrap();
    talk(&proxy.client(), 1, 6).await;
    let before = words_said(&proxy.client()).await;
    proxy.stop().await.unwrap();

    let home = home
        .with_env("METACLAW__MODE", "rl")
        .with_env("METACLAW__WISHES__ENABLED", "true");
    let wished = home.command(&["wishes", "add", WISH]).status().await;
    assert!(wished.unwrap().success());
    let proxy = home.start().await.unwrap();
    let adapter = talks_until_swapped(&proxy).await;
    let step = known(&home, "last_step").await;
    assert_eq!(
        (&step["adapter"], &step["serves"]),
        (&json!(adapter), &json!(true))
    );
    assert_passed(&step);

    // What is in the weights is not said in new conversations.
    let after = words_said(&proxy.client()).await;
    assert!(
        after * 100 < before * 95,
        "{after} words, and {before} before"
    );
    assert_eq!(wishes_told(&home, None).await, 1);
    assert_eq!(wishes_told(&home, Some(&adapter)).await, 0);
    let listed = home.command(&["wishes", "list"]).output().await.unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(
        listed.contains(WISH) && listed.contains("now in the weights"),
        "{listed}"
    );
    proxy.stop().await.unwrap();
}
