//! Weights that are trained by Tinker's API: at our own training server, as somebody starts it elsewhere.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use metaclaw_test_kit::until_within;
use metaclaw_tests::{
    external,
    home::{Home, Proxy},
    laptop::Script,
    trainer::{Start, Trainer},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{STEP_WITHIN, agent, answers, home_without_wishes, known, talk};

mod data_set;
mod killed;
mod refused;
mod shapes;

const KEY: &str = "of-this-server";
/// `rl.reuse` by default.
const MAX_USES: u64 = 4;
/// `rl.batch_size` of these tests.
const BATCH_SIZE: u64 = 2;
/// Of [`talk_briefly`].
const CONVERSATIONS: usize = 2;
/// How long until it is seen how the server is.
const SEEN_WITHIN: Duration = Duration::from_secs(120);

/// A training server with a key and a folder of its own, and how it is started again at the same address.
async fn server() -> (Trainer, Start, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let mut start = Start {
        model: Some(external::model()),
        checkpoints: Some(folder.path().to_owned()),
        key: Some(KEY.to_owned()),
        ..Start::default()
    };
    let trainer = Trainer::start(&start).await;
    start.port = trainer.port;
    (trainer, start, folder)
}

fn user(text: &str) -> [Value; 1] {
    [json!({"role": "user", "content": text})]
}

/// A home that learns there.
fn home_of(url: &str) -> Home {
    let model = external::model();
    let name = model.file_stem().unwrap().to_string_lossy();
    home_without_wishes()
        .with_env("METACLAW__RL__BACKEND", "tinker")
        .with_env("METACLAW__RL__MODEL", name)
        .with_env(
            "METACLAW__RL__TOKENIZER",
            external::converted().to_string_lossy().into_owned(),
        )
        .with_env("TINKER_BASE_URL", url)
        .with_env("TINKER_API_KEY", format!("tml-{KEY}"))
        .with_env("METACLAW__RL__METHOD", "binary_rl")
        .with_env("METACLAW__RL__BATCH_SIZE", BATCH_SIZE.to_string())
}

/// Waits until the status says so.
async fn says(home: &Home, what: &str, is_said: impl Fn(&Value) -> bool) {
    let state = async || (home.ask(&["status", "--json"]).await.unwrap(), home.log());
    until_within(SEEN_WITHIN, what, state, |it| is_said(&it.0)).await;
}

async fn answers_again(home: &Home) {
    let is_said = |status: &Value| status["trainer"]["is"] == "answers";
    says(home, "the server answers", is_said).await;
}

/// What lies below a folder of the server, but for what is being written.
fn saved(folder: &Path, kind: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(folder.join(kind)).into_iter().flatten();
    let names = entries
        .flatten()
        .map(|it| it.file_name().to_string_lossy().into_owned());
    names.filter(|name| !name.starts_with('.')).collect()
}

/// What each checkpoint at the server says of the step that made it.
fn manifests(folder: &Path) -> Vec<Value> {
    let read = |name: String| {
        let file = folder.join("checkpoints").join(name).join("manifest.json");
        let manifest: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        let ours = &manifest["tinker"]["user_metadata"]["metaclaw_manifest"];
        serde_json::from_str(ours.as_str().expect("a manifest of ours")).unwrap()
    };
    saved(folder, "checkpoints").into_iter().map(read).collect()
}

/// Each step has one checkpoint at the server, and no use of a turn stands in two.
fn assert_no_use_trained_twice(folder: &Path, n_steps: u64) {
    let manifests = manifests(folder);
    let mut steps: Vec<u64> = manifests
        .iter()
        .map(|it| it["n"].as_u64().unwrap())
        .collect();
    steps.sort_unstable();
    let expected: Vec<u64> = (1..=n_steps).collect();
    assert_eq!(steps, expected, "one checkpoint a step: {manifests:?}");
    let mut seen = BTreeSet::new();
    for manifest in &manifests {
        let turns = manifest["turns"].as_array().unwrap();
        let uses = manifest["uses"].as_array().unwrap();
        assert_eq!(turns.len(), uses.len(), "{manifest}");
        for (turn, used) in turns.iter().zip(uses) {
            let nth = used.as_u64().unwrap();
            assert!((1..=MAX_USES).contains(&nth), "use {nth} of {turn}");
            let is_new = seen.insert((turn.as_str().unwrap().to_owned(), nth));
            assert!(
                is_new,
                "use {nth} of {turn} was trained twice: {manifests:?}"
            );
        }
    }
}

/// Checks that the log calls exactly those turns trained that are in a checkpoint.
async fn assert_log_and_server_agree(home: &Home, folder: &Path) {
    let manifests = manifests(folder);
    let of_server: BTreeSet<&str> = manifests
        .iter()
        .flat_map(|it| it["turns"].as_array().unwrap())
        .map(|id| id.as_str().unwrap())
        .collect();
    let output = home.command(&["turns", "export"]).output().await.unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let turns: Vec<Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let trained = turns.iter().filter(|it| it["state"]["is"] == "trained");
    let of_log: BTreeSet<&str> = trained.map(|it| it["id"].as_str().unwrap()).collect();
    assert_eq!(of_log, of_server);
    let taken: Vec<&Value> = turns
        .iter()
        .filter(|it| it["state"]["is"] == "taken")
        .collect();
    assert!(taken.is_empty(), "of no step that is open: {taken:?}");
}

#[tokio::test]
#[ignore = "needs the binaries and the model, cargo xtask test --all runs it"]
async fn a_step_at_a_server_with_tinkers_api_serves_or_is_declined_with_its_reason() {
    let (trainer, _, folder) = server().await;
    let home = home_of(&trainer.url)
        .with_env("METACLAW__RL__MAX_STEPS", "1")
        .with_env("METACLAW__RL__LEARNING_RATE", "0.00005");
    let proxy = home.start().await.unwrap();
    answers_again(&home).await;
    talk(&proxy.client(), 1, 5).await;
    let step = known(&home, "last_step").await;
    assert_eq!(step["n"], 1, "{step}");
    let adapter = step["adapter"].as_str().expect("an adapter").to_owned();
    if step["serves"] == json!(true) {
        assert_no_use_trained_twice(folder.path(), 1);
        assert_log_and_server_agree(&home, folder.path()).await;
        assert_eq!(answers(&proxy).await, Some(adapter), "{step}");
    } else {
        // A declined step gives its turns back, and the next one begins at once, at half the rate.
        let declined = agent(&home).await["declined"].take();
        let why = declined["why"].as_str().unwrap_or_default();
        assert!(!why.is_empty(), "{declined}");
        assert_ne!(answers(&proxy).await, Some(adapter), "{declined}");
    }
    let status = home.ask(&["status", "--json"]).await.unwrap();
    let n_tokens = status["cloud"]["today"]["trained"].as_u64();
    assert!(n_tokens.is_some_and(|n| n > 0), "{}", status["cloud"]);
    proxy.stop().await.unwrap();
    trainer.stop().await;
}

/// Two short conversations, whose first replies are a batch.
async fn talk_briefly(proxy: &Proxy, seed: u64) {
    let script = Script {
        seed,
        conversations: CONVERSATIONS,
        max_tokens: 24,
        retry_for: SEEN_WITHIN,
    };
    script.run(&proxy.client(), Instant::now(), |_, _| ()).await;
}
