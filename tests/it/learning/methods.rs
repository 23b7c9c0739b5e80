//! Tests one step of each method, with the same conversations.

use serde_json::Value;

use super::{home_without_wishes, talk};

/// Each has a loss of its own name.
const METHODS: [&str; 6] = [
    "context_distillation",
    "opd",
    "binary_rl",
    "hybrid",
    "grpo",
    "metaclaw",
];

#[tokio::test]
#[ignore = "needs the binaries and the model, cargo xtask test --all runs it"]
async fn every_method_makes_a_step_of_what_was_said() {
    // Nothing is trained before the owner asks for it.
    let home = home_without_wishes().with_env("METACLAW__MODE", "auto");
    let proxy = home.start().await.unwrap();
    talk(&proxy.client(), 1, 6).await;
    for method in METHODS {
        let set = format!("rl.method={method}");
        let asked = [
            "replay",
            "--json",
            "--seed",
            "7",
            "--steps",
            "1",
            "--name",
            method,
            "--set",
            &set,
            "--set",
            "gate.enabled=false",
        ];
        let output = home.command(&asked).output().await.unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        eprintln!(
            "{method}: {said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let events: Vec<Value> = said
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let step = events.iter().find(|event| event["is"] == "step");
        let step = step.unwrap_or_else(|| panic!("{method} made no step: {said}"));
        assert_eq!(step["learning_rate"], 0.0005, "{step}");
        assert!(step["losses"][method].is_number(), "{step}");
        assert!(
            step["grad_norm"]
                .as_f64()
                .is_some_and(|norm| norm > 0.0 && norm.is_finite()),
            "{step}"
        );
        let ended = events.last().unwrap();
        assert_eq!(
            (&ended["is"], ended["n_steps"].as_u64()),
            (&"ended".into(), Some(1)),
            "{said}"
        );
    }
    proxy.stop().await.unwrap();
}
