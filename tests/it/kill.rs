//! kill -9 in the middle of the laptop script: of the proxy in one run, of the trainer in another.
//!
//! The script tries again and finishes; the log holds every turn that ended 100 ms before the kill,
//! once; no turn was trained twice in one lineage of checkpoints; one trainer is left.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use metaclaw_tests::{
    client::Refusal,
    home::{Home, signal, trainers_of, until},
    laptop::{Conversation, Script},
    need,
};
use rustix::process::Signal;
use serde_json::Value;

use crate::chat::laptop_home;

/// A turn that ended this long before the kill must be in the log: `design.md` 3.
const PROMISE_MS: u64 = 100;

fn script() -> Script {
    Script {
        seed: 11,
        conversations: 10,
        max_tokens: 96,
        retry_for: Duration::from_secs(120),
    }
}

/// Small batches, so that steps come within the first conversations.
fn busy_home() -> Option<Home> {
    let home = laptop_home()?
        .with_env("METACLAW__WISHES__ENABLED", "false")
        .with_env("METACLAW__RL__METHOD", "redo")
        .with_env("METACLAW__RL__BATCH_SIZE", "2");
    Some(home)
}

fn now_ms(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)
}

async fn exported(home: &Home) -> Vec<Value> {
    let output = home.command(&["turns", "export"]).output().await.unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines = String::from_utf8(output.stdout).unwrap();
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Every reply that ended in time stands in the log once.
fn assert_nothing_lost(run: &[Conversation], killed_ms: u64, turns: &[Value]) {
    let mut ids = BTreeSet::new();
    for turn in turns {
        assert!(
            ids.insert(turn["id"].as_str().unwrap()),
            "twice in the log: {}",
            turn["id"]
        );
    }
    let requests = run.iter().flat_map(|talk| &talk.requests);
    for request in requests {
        let ended_ms = request.sent_ms + request.total_ms;
        if ended_ms < killed_ms && killed_ms - ended_ms < PROMISE_MS {
            continue;
        }
        let held = |turn: &&Value| turn["reply"]["content"].as_str() == Some(&request.reply);
        let n_held = turns.iter().filter(held).count();
        let said_by = |other: &&metaclaw_tests::laptop::Request| other.reply == request.reply;
        let n_said = run
            .iter()
            .flat_map(|talk| &talk.requests)
            .filter(said_by)
            .count();
        assert_eq!(
            n_held, n_said,
            "ended at {ended_ms} ms, killed at {killed_ms} ms: {request:?}"
        );
    }
}

/// Every verdict that took effect, in any process of this home, was for another turn, and is in the log.
fn assert_no_turn_judged_twice(home: &Home, turns: &[Value]) {
    let said = home.log();
    let mut judged = BTreeSet::new();
    for line in said.lines().filter(|line| line.contains(" judged turn=")) {
        let id = line
            .split("turn=")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        let id = id.expect("an id");
        assert!(judged.insert(id), "two verdicts: {line}");
        let kept = turns
            .iter()
            .find(|turn| turn["id"] == id)
            .expect("in the log");
        assert!(kept["verdict"].is_object(), "its verdict is gone: {kept}");
    }
    assert!(!judged.is_empty(), "nothing was judged: {said}");
}

/// All `manifest.json` below a folder.
fn manifests(folder: &Path) -> Vec<(PathBuf, Value)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(manifests(&path));
        } else if path.file_name().is_some_and(|name| name == "manifest.json") {
            let manifest = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            found.push((path, manifest));
        }
    }
    found
}

fn assert_no_turn_trained_twice(home: &Home) -> usize {
    let mut seen: BTreeMap<(String, String), PathBuf> = BTreeMap::new();
    let manifests = manifests(home.path());
    for (path, manifest) in &manifests {
        let lineage = manifest["lineage"].as_str().expect("a lineage").to_owned();
        for turn in manifest["turns"].as_array().expect("turn ids") {
            let key = (lineage.clone(), turn.as_str().expect("an id").to_owned());
            if let Some(before) = seen.insert(key, path.clone()) {
                panic!(
                    "turn {turn} stands in {} and {}",
                    before.display(),
                    path.display()
                );
            }
        }
    }
    manifests.len()
}

async fn assert_one_trainer(home: &Home) {
    let one = until(Duration::from_secs(20), async || {
        trainers_of(home.path()).len() == 1
    });
    one.await
        .unwrap_or_else(|_| panic!("trainers left: {:?}", trainers_of(home.path())));
}

/// Waits until a step has been made, so that the kill finds the loop at work.
async fn first_checkpoint(home: &Home) {
    let made = async || !manifests(home.path()).is_empty();
    until(Duration::from_secs(300), made)
        .await
        .expect("a first training step");
}

#[tokio::test]
async fn a_killed_proxy_loses_no_turn_and_trains_none_twice() {
    let home = need!(busy_home());
    let proxy = home.start().await.unwrap();
    let port = proxy.port();
    let (client, script, started) = (proxy.client(), script(), Instant::now());
    let kill_and_restart = async {
        first_checkpoint(&home).await;
        let killed_ms = now_ms(started);
        proxy.kill().await.unwrap();
        let refused = client.stream(&[], &Value::Null).await;
        assert!(
            matches!(refused, Err(Refusal::Unreachable(_))),
            "{refused:?}"
        );
        (killed_ms, home.start_on(port).await.unwrap())
    };
    let (run, (killed_ms, proxy)) =
        tokio::join!(script.run(&client, started, |_, _| ()), kill_and_restart);

    let failures: Vec<&String> = failures_of(&run);
    assert!(!failures.is_empty(), "the kill was felt");
    let turns = exported(&home).await;
    assert_nothing_lost(&run, killed_ms, &turns);
    assert_no_turn_judged_twice(&home, &turns);
    assert_one_trainer(&home).await;
    let n_steps = assert_no_turn_trained_twice(&home);
    println!("killed at {killed_ms} ms; {n_steps} checkpoints; failures: {failures:?}");
    proxy.stop().await.unwrap();
    assert!(
        trainers_of(home.path()).is_empty(),
        "the trainer ends with the proxy"
    );
}

#[tokio::test]
async fn a_killed_trainer_is_replaced_and_no_turn_is_lost_or_trained_twice() {
    let home = need!(busy_home());
    let proxy = home.start().await.unwrap();
    let (client, script, started) = (proxy.client(), script(), Instant::now());
    let kill = async {
        first_checkpoint(&home).await;
        let trainers = trainers_of(home.path());
        assert_eq!(trainers.len(), 1, "{trainers:?}");
        signal(trainers[0], Signal::KILL).unwrap();
        now_ms(started)
    };
    let (run, killed_ms) = tokio::join!(script.run(&client, started, |_, _| ()), kill);

    let failures = failures_of(&run);
    let expected = |failure: &&String| {
        failure.contains("Cut") || failure.contains("status: 503, retry_after: Some(")
    };
    assert!(!failures.is_empty(), "the kill was felt");
    assert!(
        failures.iter().all(expected),
        "cut streams and 503 with Retry-After: {failures:?}"
    );
    let turns = exported(&home).await;
    assert_nothing_lost(&run, killed_ms, &turns);
    assert_no_turn_judged_twice(&home, &turns);
    assert_one_trainer(&home).await;
    let n_steps = assert_no_turn_trained_twice(&home);
    println!("killed at {killed_ms} ms; {n_steps} checkpoints; failures: {failures:?}");
    proxy.stop().await.unwrap();
}

fn failures_of(run: &[Conversation]) -> Vec<&String> {
    run.iter()
        .flat_map(|talk| &talk.requests)
        .flat_map(|request| &request.failures)
        .collect()
}
