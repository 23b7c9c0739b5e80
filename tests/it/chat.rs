//! The first thing a newcomer does: ask the demo model a question through the proxy.

use std::time::Duration;

use metaclaw_tests::{external, home::Home};
use serde_json::json;

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
        .stream(&question, &json!({"temperature": 0}))
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
