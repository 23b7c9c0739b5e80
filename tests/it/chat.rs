//! The first thing a newcomer does: ask the demo model a question through the proxy.

use std::time::Duration;

use metaclaw_tests::{
    client::Refusal,
    external,
    home::{Home, signal, trainers_of},
    wait::until,
};
use rustix::process::Signal;
use serde_json::json;
use tokio::time::timeout;

/// A home as `cargo xtask start` makes it.
pub(crate) fn laptop_home() -> Home {
    let (bin_dir, model) = (external::bin_dir(), external::model());
    let config = include_str!("../../examples/laptop/config.yaml");
    let home = Home::new(&bin_dir, config);
    home.with_env("METACLAW__TRAINER__MODEL", model.to_string_lossy())
}

#[tokio::test]
#[ignore = "needs the binaries and the model, cargo xtask test runs it"]
async fn the_demo_model_says_paris_token_by_token() {
    let home = laptop_home();
    let proxy = home.start().await.unwrap();
    let question = [json!({"role": "user", "content": "What is the capital of France?"})];
    let reply = proxy
        .client()
        .stream(&question, &json!({"temperature": 0, "max_tokens": 32}))
        .await
        .unwrap();
    assert!(reply.text.contains("Paris"), "{reply:?}");
    assert_eq!(reply.finish_reason.as_deref(), Some("stop"), "{reply:?}");
    let distinct = |gap: &[Duration]| gap[1] > gap[0];
    let gaps = reply
        .arrivals
        .windows(2)
        .filter(|gap| distinct(gap))
        .count();
    assert!(
        gaps >= 3,
        "tokens arrive one after the other: {:?}",
        reply.arrivals
    );
    proxy.stop().await.unwrap();
}

/// SIGSTOP is what a hang looks like from outside: the process lives, its socket takes connections.
#[tokio::test]
#[ignore = "needs the binaries and the model, cargo xtask test --all runs it"]
async fn a_trainer_that_hangs_is_told_and_is_asked_again_when_it_answers() {
    let home = laptop_home();
    let proxy = home.start().await.unwrap();
    let question = [json!({"role": "user", "content": "What is the capital of France?"})];
    let ask = || async {
        proxy
            .client()
            .stream(&question, &json!({"max_tokens": 16}))
            .await
    };
    let is = || async { home.ask(&["status", "--json"]).await.unwrap()["trainer"]["is"].clone() };
    let trainer = trainers_of(home.path())[0];
    ask().await.unwrap();
    assert_eq!(is().await, "ready");
    signal(trainer, Signal::STOP).unwrap();
    let refused = timeout(Duration::from_secs(60), ask()).await;
    let refused = refused.expect("a chat does not wait without end");
    assert!(
        matches!(refused, Err(Refusal::Status { status: 503, .. })),
        "{refused:?}"
    );
    assert_eq!(is().await, "silent");
    signal(trainer, Signal::CONT).unwrap();
    let answers = async || ask().await.is_ok();
    until(Duration::from_secs(60), answers).await.unwrap();
    assert_eq!(is().await, "ready");
    assert_eq!(trainers_of(home.path()), [trainer]);
    proxy.stop().await.unwrap();
}
