//! A researcher's tools where nothing runs: turns imported, adapters looked at, and the way back.

use metaclaw_chat::{AgentId, TurnId};
use metaclaw_turns::{NewStep, StepOutcome, TurnLog, TurnsConfig};
use serde_json::json;

use crate::harness::{Home, has};

async fn home() -> Home {
    let home = Home::new("mode: skills_only\nproxy: {port: 0}\n");
    log(&home).close().await;
    home
}

fn log(home: &Home) -> TurnLog {
    TurnLog::open(&home.path().join("turns"), &TurnsConfig::default()).unwrap()
}

#[tokio::test]
async fn rollouts_come_into_the_log_all_or_none() {
    let home = home().await;
    let file = home.path().join("rollouts.jsonl");
    let good = r#"{"agent": "main", "session": "r-1", "prompt": "What is rain?", "response": "Water.", "score": 1}
{"agent": "main", "session": "r-1", "prompt": "And snow?", "response": "Cold water.", "score": -1, "hint": "say more"}
"#;
    std::fs::write(&file, format!("{good}{{\"session\": 7}}\n")).unwrap();
    let path = file.to_str().unwrap();
    let refused = home.refusal(&["turns", "import", path]).await;
    insta::assert_snapshot!(refused, @r"
    metaclaw: rollouts.jsonl is refused, and nothing of it was imported:
    line 3: invalid type: integer `7`, expected a string at line 1 column 13
    ");
    let listed = home.json(&["turns", "list", "--json"]).await;
    assert_eq!(listed, json!([]));
    std::fs::write(&file, good).unwrap();
    let said = home.ask(&["turns", "import", path]).await;
    insta::assert_snapshot!(said, @"2 turns of rollouts.jsonl imported; 0 have token ids, which steps can use");
    let said = home.ask(&["turns", "import", path]).await;
    insta::assert_snapshot!(said, @"0 turns of rollouts.jsonl imported; the log had 2 already; 0 have token ids, which steps can use");
    let listed = home.json(&["turns", "list", "--json"]).await;
    let scores: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["score"].clone())
        .collect();
    assert_eq!(scores, [json!(-1), json!(1)]);
    let id = listed[0]["id"].as_str().unwrap();
    let shown = home.ask(&["turns", "show", id]).await;
    has(&shown, ["origin    imported from rollouts.jsonl"]);
    assert!(shown.contains("verdict   -1 say more"), "{shown}");
    let train = home.ask(&["turns", "show", id, "--train"]).await;
    assert!(train.contains("metaclaw does not run"), "{train}");
    assert!(train.contains("its token ids are not kept"), "{train}");
    let ids = r#"{"session": "r-2", "prompt_ids": [1], "response_ids": [2], "logprobs": [-0.5], "score": 1}"#;
    std::fs::write(&file, ids).unwrap();
    let refused = home.refusal(&["turns", "import", path]).await;
    insta::assert_snapshot!(refused, @"metaclaw: rollouts.jsonl has token ids, which are checked against the policy model: `metaclaw start` first");
}

/// A step of the default agent that made this adapter, from that one.
async fn made(log: &TurnLog, n: u64, turn: TurnId, adapter: &str, parent: Option<&str>) {
    let agent = AgentId::default_agent();
    let step = NewStep {
        agent: agent.clone(),
        lineage: "0badcafe".to_owned(),
        n,
        attempt: 0,
        turns: vec![turn],
        max_uses: 1,
        ancestors: Vec::new(),
        parent: parent.map(str::to_owned),
        hash: "00".repeat(32),
        choice_ms: None,
    };
    log.take(step).await.unwrap();
    let outcome = StepOutcome::Trained {
        adapter: adapter.to_owned(),
        checkpoint: adapter.to_owned(),
        gate: None,
    };
    log.finish_step(&agent, n, outcome).await.unwrap();
    log.set_serving(&agent, Some(adapter.to_owned()))
        .await
        .unwrap();
}

#[tokio::test]
async fn an_adapter_is_shown_and_taken_back_to_what_it_was_trained_from() {
    let home = home().await;
    let rollouts = r#"{"session": "r-1", "prompt": "a", "response": "b", "score": 1}
{"session": "r-2", "prompt": "a", "response": "b", "score": 1}"#;
    let file = home.path().join("rollouts.jsonl");
    std::fs::write(&file, rollouts).unwrap();
    home.ask(&["turns", "import", file.to_str().unwrap()]).await;
    let (first, second) = ("_default-0badcafe-000001", "_default-0badcafe-000002");
    let turns = log(&home);
    let turn = |session| TurnId { session, seq: 0 };
    made(&turns, 1, turn(1), first, None).await;
    made(&turns, 2, turn(2), second, Some(first)).await;
    turns.close().await;
    for (name, parent, rate) in [(first, None, 5e-4), (second, Some(first), 2e-4)] {
        let adapter = home.path().join("trainer/adapters").join(name);
        std::fs::create_dir_all(&adapter).unwrap();
        std::fs::write(adapter.join("adapter_config.json"), "{}").unwrap();
        let checkpoint = home.path().join("trainer/checkpoints").join(name);
        std::fs::create_dir_all(&checkpoint).unwrap();
        let manifest = json!({"parent": parent, "lineage": "0badcafe", "n": 1, "turns": [name], "numbers": {"learning_rate": rate}});
        std::fs::write(checkpoint.join("manifest.json"), manifest.to_string()).unwrap();
        std::fs::write(checkpoint.join("state.json"), r#"{"step": 2}"#).unwrap();
    }
    let listed = home.json(&["adapters", "list", "--json"]).await;
    assert_eq!(listed[1]["parent"], first);
    let shown = home.ask(&["adapters", "show", second]).await;
    has(&shown, [format!("from      {first} <- the base model")]);
    let difference = home.ask(&["adapters", "diff", first, second]).await;
    assert!(difference.contains("numbers.learning_rate"), "{difference}");
    has(&difference, [format!("turns only behind {first}: none")]);
    let said = home.ask(&["adapters", "rollback"]).await;
    assert!(
        said.starts_with(&format!("_default is served with {first}")),
        "{said}"
    );
    let said = home.ask(&["adapters", "rollback", "_default"]).await;
    assert!(
        said.starts_with("_default is served with the base model"),
        "{said}"
    );
    let refused = home.refusal(&["adapters", "rollback"]).await;
    has(&refused, ["the base model answers already"]);
    let said = home.ask(&["adapters", "promote", second]).await;
    assert!(said.contains(second), "{said}");
    let refused = home.refusal(&["adapters", "show", "nobody"]).await;
    assert!(refused.contains("there is no adapter nobody"), "{refused}");
}

#[tokio::test]
async fn what_needs_a_log_or_a_policy_model_says_so() {
    let empty = Home::new("mode: skills_only\nproxy: {port: 0}\n");
    for what in [&["eval"][..], &["replay"], &["eval", "--agent", "main"]] {
        let refused = empty.refusal(what).await;
        assert!(
            refused.ends_with("there is no log in HOME yet"),
            "{refused}"
        );
    }
    let home = home().await;
    for what in ["eval", "replay"] {
        let refused = home.refusal(&[what]).await;
        assert!(
            refused.ends_with("there is no policy model here: set trainer.model, or rl.remote_url"),
            "{refused}"
        );
    }
    let bad = ["replay", "--set", "rl.batch_size"];
    let refused = home.refusal(&bad).await;
    has(&refused, ["KEY=VALUE, as in rl.learning_rate=1e-4"]);
    let bad = ["replay", "--name", "../up"];
    let refused = home.refusal(&bad).await;
    assert!(refused.contains("../up"), "{refused}");
}

/// A checkpoint that no step of the log made, as a replay's.
#[tokio::test]
async fn weights_of_no_step_are_tested_before_they_serve_which_takes_a_proxy() {
    let home = home().await;
    let name = "main-3fa9c0d1-000002";
    let adapter = home.path().join("trainer/adapters").join(name);
    std::fs::create_dir_all(&adapter).unwrap();
    std::fs::write(adapter.join("adapter_config.json"), "{}").unwrap();
    // Of which nothing tells whose it is: it may be anybody's.
    home.ask(&["adapters", "use", name]).await;
    let checkpoint = home.path().join("trainer/checkpoints").join(name);
    std::fs::create_dir_all(&checkpoint).unwrap();
    let made =
        json!({"version": "0.1.0", "seed": 7, "config": {}, "replay": {"name": "slow", "seed": 7}});
    let manifest =
        json!({"parent": null, "lineage": "3fa9c0d1", "n": 2, "turns": [], "made": made});
    std::fs::write(checkpoint.join("manifest.json"), manifest.to_string()).unwrap();
    std::fs::write(checkpoint.join("state.json"), r#"{"step": 2}"#).unwrap();
    let shown = home.ask(&["adapters", "show", name]).await;
    assert!(shown.contains("replay    slow"), "{shown}");
    let refused = home.refusal(&["adapters", "promote", name]).await;
    has(&refused, ["the gate tests it before it serves"]);
    std::fs::write(
        home.path().join("config.yaml"),
        "mode: skills_only\nproxy: {port: 0}\ngate: {enabled: false}\n",
    )
    .unwrap();
    let said = home.ask(&["adapters", "promote", name]).await;
    assert!(said.contains(name), "{said}");
}
