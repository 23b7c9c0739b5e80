//! Tests of sending the numbers of steps to Weights & Biases: the numbers that exist are sent, and missing ones are named.

use std::os::unix::fs::PermissionsExt as _;

use crate::harness::Home;

/// Replaces Python: it has a client if `client` is in its folder, and prints what it should send.
const PYTHON: &str = r#"#!/bin/sh
case "$2" in
  *version*) test -e "$(dirname "$0")/client" && echo 0.31.0 ;;
  *) echo "$3 to $4" ;;
esac
"#;

#[tokio::test]
async fn wandb_is_asked_only_with_steps_a_key_and_a_client() {
    let home = Home::new("mode: skills_only\nproxy: {port: 0}\n");
    let python = home.path().join("python");
    std::fs::write(&python, PYTHON).unwrap();
    std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = python.to_str().unwrap();
    let ask = ["metrics", "wandb", "--python", path, "--project", "terse"];
    let refused = home.refusal(&ask).await;
    insta::assert_snapshot!(refused, @"metaclaw: there is no HOME/learning/steps.jsonl yet: it has a line for each training step, where rl.report_to has jsonl");
    std::fs::create_dir(home.path().join("learning")).unwrap();
    home.write("learning/steps.jsonl", "");
    let refused = home.refusal(&ask).await;
    insta::assert_snapshot!(refused, @"metaclaw: neither WANDB_API_KEY nor WANDB_MODE=offline is set: nothing is sent");
    let home = home.with_variable("WANDB_MODE", "offline");
    let refused = home.refusal(&ask).await;
    insta::assert_snapshot!(refused, @"metaclaw: HOME/python has no wandb package: `pip install wandb`, or --python names a Python that has it");
    home.write("client", "");
    let sent = home.ask(&ask).await;
    insta::assert_snapshot!(home.neutral(&sent), @"HOME/learning to terse");
}
