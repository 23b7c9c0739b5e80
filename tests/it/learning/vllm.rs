//! vLLM answers the chats, and the training server learns from what it sampled. The real vLLM on a CPU, in float32.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use metaclaw_test_kit::until_within;
use metaclaw_tests::{
    client::Refusal,
    external,
    home::{Home, Proxy, signal},
    trainer::{Start, Trainer},
    vllm::{self, STARTS_WITHIN},
    wait::until,
};
use metaclaw_turns::{Tokens, Turn};
use rustix::process::Signal;
use serde_json::json;

use self::api::Api;
use super::{STEP_WITHIN, agent, answers, home_without_wishes, talk};

mod api;
mod continuity;
mod found;
mod long;
mod swaps;

/// Nats between what vLLM sampled at and what the engine finds of the same ids, both in float32.
const EXACT: f64 = 1e-3;
/// `rl.batch_size` of this test.
const BATCH_SIZE: u64 = 2;
/// Conversations within which a step is made of any turn, or of one that an adapter sampled.
const CONVERSATIONS: u64 = 12;
/// How long until it is seen how the server is.
const SEEN_WITHIN: Duration = Duration::from_secs(120);

/// A training server of the demo model that starts vLLM, in this folder.
fn start_in(folder: &Path, python: &Path) -> Start {
    let python = python.to_string_lossy();
    let flags = [
        "--dtype=f32".to_owned(),
        "--inference-backend=vllm".to_owned(),
        format!("--inference-python={python}"),
        "--inference-args=--max-model-len 2048 --enforce-eager".to_owned(),
    ];
    Start {
        model: Some(external::model()),
        checkpoints: Some(folder.join("trainer")),
        flags: flags.to_vec(),
        env: vllm::environment(folder),
        ..Start::default()
    }
}

/// Waits until vLLM is ready by the training server's word; `log` is its output.
async fn ready(trainer: &Trainer, log: impl Fn() -> String) {
    let api = Api::of(trainer);
    let state = async || (api.inference().await, log());
    until_within(STARTS_WITHIN, "vLLM", state, |it| it.0["state"] == "ready").await;
}

/// The same of one that was started by a server of [`start_in`].
async fn serves(trainer: &Trainer, folder: &Path) {
    let log = || {
        let log = fs::read_to_string(folder.join("trainer/vllm.log")).unwrap_or_default();
        let end = log.chars().count().saturating_sub(4_000);
        log.chars().skip(end).collect()
    };
    ready(trainer, log).await;
}

/// Process id, process group and command line of everything that runs.
fn running() -> Vec<(u32, u32, String)> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let read = |entry: fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // Behind the name, which may have any characters: state, parent, group.
        let group = stat.rsplit_once(')')?.1.split_whitespace().nth(2)?;
        let command = fs::read(entry.path().join("cmdline")).ok()?;
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        Some((pid, group.parse().ok()?, command))
    };
    entries.filter_map(read).collect()
}

/// The process group of the vLLM that was started with this command. Its workers change their command lines, but not this.
fn group_of(command: &str) -> u32 {
    let port = command.split_once("--port ").expect("a port").1;
    let port = format!("--port {} ", port.split(' ').next().unwrap_or_default());
    let all = running();
    let found = all.iter().find(|(.., command)| command.contains(&port));
    found.unwrap_or_else(|| panic!("no {port} in {all:?}")).1
}

/// `kill -9` of the engine of the vLLM that was started with this command.
fn kill_engine(command: &str) {
    let group = group_of(command);
    let all = running();
    let is_engine =
        |(_, its, command): &&(u32, u32, String)| *its == group && command.contains("EngineCore");
    let engine = all.iter().find(is_engine);
    signal(engine.expect("an engine").0, Signal::KILL).unwrap();
}

/// Holds conversations one by one until a step was made of such a turn. How many steps that takes is not known: a
/// verdict may arrive after its conversation has been seen to be over, and then the next one finds a batch half full.
async fn talk_until_used(proxy: &Proxy, home: &Home, seed: u64, is_such: impl Fn(&Turn) -> bool) {
    for seed in seed..seed + CONVERSATIONS {
        talk(&proxy.client(), seed, 1).await;
        let waited = until(STEP_WITHIN, async || is_quiet(home).await).await;
        waited.unwrap_or_else(|error| panic!("a step: {error}: {}", home.log()));
        let is_used = |turn: &Turn| !turn.uses.is_empty() && is_such(turn);
        if home.turns().await.iter().any(is_used) {
            return;
        }
    }
    panic!(
        "{CONVERSATIONS} conversations led to no such step: {}",
        home.log()
    );
}

/// Whether nothing waits for a verdict, and no step is being made or could be.
async fn is_quiet(home: &Home) -> bool {
    let status = home.ask(&["status", "--json"]).await.unwrap();
    let learner = &status["learner"];
    let n_left = learner["agents"][0]["n_binary_rl"].as_u64();
    learner["phase"]["is"] == "collecting"
        && learner["judging"]["waiting"] == 0
        && n_left.is_some_and(|left| left < BATCH_SIZE)
        && status["funnel"]["taken"] == 0
}

/// Waits until the adapter of the last step answers, and returns it.
async fn last_adapter_answers(proxy: &Proxy, home: &Home) -> String {
    let mut found = None;
    let is_so = async || {
        let made = agent(home).await["last_step"]["adapter"].take();
        found = made.as_str().map(str::to_owned);
        is_quiet(home).await && found.is_some() && answers(proxy).await == found
    };
    let waited = until(STEP_WITHIN, is_so).await;
    waited.unwrap_or_else(|error| panic!("{found:?} answers: {error}: {}", home.log()));
    found.expect("an adapter")
}

/// The ids of every turn, by the adapter that sampled them.
async fn sampled(home: &Home) -> BTreeMap<Option<String>, Vec<Tokens>> {
    let mut of: BTreeMap<_, Vec<Tokens>> = BTreeMap::new();
    for turn in home.turns().await {
        let tokens = turn.tokens.expect("the ids of each turn are kept");
        of.entry(tokens.adapter.clone()).or_default().push(tokens);
    }
    of
}

#[tokio::test]
#[ignore = "needs the binaries, the model and vLLM, cargo xtask test --all runs it"]
async fn steps_are_made_of_what_vllm_sampled_and_the_next_replies_are_the_new_adapters() {
    let Some(python) = external::vllm() else {
        println!(
            "skipped: METACLAW_TEST_VLLM is not set; cargo xtask clients says why vLLM is not here"
        );
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let trainer = Trainer::start(&start_in(folder, &python)).await;
    let said = Api::of(&trainer).inference().await;
    let command = said["command"].as_str().unwrap();
    assert!(command.contains("--dtype float32"), "{command}");
    let home = home_without_wishes()
        .with_env("METACLAW__RL__REMOTE_URL", &trainer.url)
        .with_env("METACLAW__RL__MODEL", external::model().to_string_lossy())
        .with_env("METACLAW__RL__METHOD", "binary_rl")
        .with_env("METACLAW__RL__BATCH_SIZE", BATCH_SIZE.to_string())
        // Of steps, not of how good they were.
        .with_env("METACLAW__GATE__ENABLED", "false");
    let proxy = home.start().await.unwrap();
    serves(&trainer, folder).await;

    talk_until_used(&proxy, &home, 100, |_| true).await;
    let first = last_adapter_answers(&proxy, &home).await;
    let is_of_an_adapter = |turn: &Turn| {
        turn.tokens
            .as_ref()
            .is_some_and(|tokens| tokens.adapter.is_some())
    };
    talk_until_used(&proxy, &home, 200, is_of_an_adapter).await;
    let second = last_adapter_answers(&proxy, &home).await;
    assert_ne!(first, second);

    let of = sampled(&home).await;
    for name in [&first, &second] {
        assert!(
            of.contains_key(&Some(name.clone())),
            "{name}: {:?}",
            of.keys()
        );
    }
    let largest = Api::of(&trainer).rescored(&of).await;
    eprintln!("largest differences in nats: {largest:?}");
    assert!(largest.values().all(|it| *it <= EXACT), "{largest:?}");

    // Its engine dies: chats are refused at once, and the adapter answers again when there is another.
    kill_engine(command);
    let is_away = async || Api::of(&trainer).inference().await["state"] == "away";
    until(SEEN_WITHIN, is_away).await.unwrap();
    let question = [json!({"role": "user", "content": "What is tea?"})];
    let (client, asked) = (proxy.client(), json!({"max_tokens": 4}));
    let refused = client.stream(&question, &asked).await;
    let refused = refused.expect_err("nobody is there to answer");
    assert!(
        matches!(refused, Refusal::Status { status: 503, .. }),
        "{refused:?}"
    );
    serves(&trainer, folder).await;
    assert_eq!(last_adapter_answers(&proxy, &home).await, second);
    let again = sampled(&home).await;
    let largest = Api::of(&trainer).rescored(&again).await;
    assert!(largest.values().all(|it| *it <= EXACT), "{largest:?}");

    let group = group_of(command);
    proxy.stop().await.unwrap();
    trainer.stop().await;
    let left = || running().into_iter().filter(|(_, its, _)| *its == group);
    let left = async || left().collect::<Vec<_>>();
    until_within(SEEN_WITHIN, "the end of vLLM", left, Vec::is_empty).await;
}
