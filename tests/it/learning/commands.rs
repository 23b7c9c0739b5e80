//! Tests that the commands of the pages that need a training server do what the pages say.

use metaclaw_tests::home::Home;
use serde_json::json;

use super::{home_without_wishes, known, talk};

/// Returns what a command that has to succeed prints.
async fn printed(home: &Home, args: &[&str]) -> String {
    let output = home.command(args).output().await.unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let failed = String::from_utf8_lossy(&output.stderr);
    eprintln!("metaclaw {}\n{said}{failed}", args.join(" "));
    assert!(output.status.success(), "{args:?}: {said}{failed}");
    said
}

#[tokio::test]
#[ignore = "needs the binaries and the model, cargo xtask test --all runs it"]
async fn the_commands_of_training_do_what_the_pages_say() {
    let rules = json!([{"on": "reply", "min_words": 1, "score": 1}]);
    let home = home_without_wishes()
        .with_env("METACLAW__MODE", "auto")
        .with_env("METACLAW__RL__METHOD", "binary_rl")
        .with_env("METACLAW__RL__BATCH_SIZE", "2")
        .with_env("METACLAW__JUDGE__KIND", "rules")
        .with_env("METACLAW__JUDGE__RULES", rules.to_string())
        // The test is about the commands, and not about how good a step is.
        .with_env("METACLAW__GATE__ENABLED", "false");
    let proxy = home.start().await.unwrap();
    talk(&proxy.client(), 1, 3).await;
    let preview = printed(&home, &["train-step", "--dry-run"]).await;
    assert!(preview.contains("binary_rl"), "{preview}");
    printed(&home, &["train-step", "--agent", "_default"]).await;
    let step = known(&home, "last_step").await;
    let adapter = step["adapter"].as_str().unwrap();

    let listed = printed(&home, &["adapters", "list"]).await;
    assert!(listed.contains(adapter), "{listed}");
    let shown = printed(&home, &["adapters", "show", adapter]).await;
    assert!(shown.contains("binary_rl"), "{shown}");
    let turns = home.turns().await;
    let id = turns[0].id.to_string();
    let trained = printed(&home, &["turns", "show", &id, "--train"]).await;
    assert!(trained.contains(&id), "{trained}");

    // Each measures for a minute, so there are two: one as text, with the adapter that serves; one as JSON, by name.
    let measured = printed(&home, &["eval", "--replies", "3"]).await;
    assert!(measured.contains(adapter), "{measured}");
    let on_turn = printed(&home, &["eval", adapter, "--turns", &id, "--json"]).await;
    assert!(on_turn.contains(adapter), "{on_turn}");

    let rate = ["--set", "rl.learning_rate=1e-4", "--set", "rl.reuse=1"];
    let named = ["--seed", "7", "--name", "slow"];
    printed(&home, &[&["replay"], &rate[..], &named].concat()).await;
    let week = ["replay", "--since", "7 d", "--steps", "4", "--json"];
    let events = printed(&home, &week).await;
    assert!(events.contains(r#""is":"ended""#), "{events}");

    let back = printed(&home, &["adapters", "rollback", "_default"]).await;
    assert!(back.contains("base model"), "{back}");
    proxy.stop().await.unwrap();
}
