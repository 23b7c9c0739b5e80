//! A training server that somebody else started, without a model: it is given one, learns, and may lose what it learned.

use std::{fs, time::Duration};

use metaclaw_test_kit::until_within;
use metaclaw_tests::{
    external,
    home::Home,
    trainer::{Start, Trainer},
};
use serde_json::{Value, json};

use super::{answers, home_without_wishes, known, talk};

/// How long until it is seen how the server is: it is looked at every few seconds, and may load a model.
const SEEN_WITHIN: Duration = Duration::from_secs(120);

/// A home that learns at this server, and has it load the demo model.
fn home_of(trainer: &Trainer) -> Home {
    home_without_wishes()
        .with_env("METACLAW__RL__REMOTE_URL", &trainer.url)
        .with_env("METACLAW__RL__MODEL", external::model().to_string_lossy())
        .with_env("METACLAW__RL__METHOD", "binary_rl")
        .with_env("METACLAW__RL__BATCH_SIZE", "2")
        // Of a step, not of how good it was.
        .with_env("METACLAW__GATE__ENABLED", "false")
        .with_env("METACLAW__RL__MAX_STEPS", "1")
}

/// Waits until the status says so.
async fn says(home: &Home, what: &str, is_said: impl Fn(&Value) -> bool) {
    let status = async || home.ask(&["status", "--json"]).await.unwrap();
    until_within(SEEN_WITHIN, what, status, is_said).await;
}

fn has_the_model(status: &Value) -> bool {
    let model = external::model();
    let name = model.file_stem().unwrap().to_string_lossy();
    let trainer = &status["trainer"];
    trainer["is"] == "answers" && trainer["model"] == *name
}

#[tokio::test]
#[ignore = "needs the binaries and the model, cargo xtask test --all runs it"]
async fn a_remote_trainer_is_given_the_model_and_what_it_loses_is_told_and_loaded_again() {
    let files = tempfile::tempdir().unwrap();
    let mut start = Start {
        checkpoints: Some(files.path().join("trainer")),
        ..Start::default()
    };
    let trainer = Trainer::start(&start).await;
    start.port = trainer.port;
    let home = home_of(&trainer);
    let proxy = home.start().await.unwrap();
    says(&home, "the model was loaded", has_the_model).await;
    talk(&proxy.client(), 1, 3).await;
    let step = known(&home, "last_step").await;
    let adapter = step["adapter"].as_str().expect("an adapter").to_owned();
    assert_eq!(answers(&proxy).await.as_ref(), Some(&adapter), "{step}");

    // It is started again and has lost the adapter.
    trainer.stop().await;
    says(&home, "it is away", |status| {
        status["trainer"]["is"] == "away"
    })
    .await;
    let folder = files.path().join("trainer/adapters").join(&adapter);
    let aside = files.path().join("aside");
    fs::rename(&folder, &aside).unwrap();
    let trainer = Trainer::start(&start).await;
    let is_lost =
        |status: &Value| has_the_model(status) && status["lost"][0]["adapter"] == json!(adapter);
    says(&home, "the adapter is lost", is_lost).await;
    assert_eq!(answers(&proxy).await, None, "the base answers");
    let shown = home.command(&["status"]).output().await.unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.contains(&format!("{adapter} cannot serve _default")),
        "{shown}"
    );

    // It is started with it again.
    trainer.stop().await;
    fs::rename(&aside, &folder).unwrap();
    let trainer = Trainer::start(&start).await;
    says(&home, "it is there again", |status| {
        status["lost"] == json!([])
    })
    .await;
    assert_eq!(answers(&proxy).await.as_ref(), Some(&adapter));
    proxy.stop().await.unwrap();
    trainer.stop().await;
}
