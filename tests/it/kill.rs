//! kill -9 at a random moment of the laptop script: of the proxy in one run, of the trainer in another.
//!
//! The script tries again and finishes; the log holds every turn that ended 100 ms before the kill,
//! once; no turn was judged twice, no use of one stands twice in a lineage of checkpoints; one trainer is left.
//! The moment is printed; `METACLAW_TEST_SEED` asks for it again.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use metaclaw_test_kit::until_within;
use metaclaw_tests::{
    client::{Client, Refusal},
    external,
    home::{Home, signal, trainers_of},
    laptop::{Conversation, Script},
    questions,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::chat::laptop_home;

/// A turn that ended this long before the kill must be in the log: `design.md` 3.
const PROMISE_MS: u64 = 100;
/// `rl.reuse` by default.
const MAX_USES: u64 = 4;

/// As `cargo xtask laptop` runs it: what changes is the weights' doing.
fn home_of_the_script() -> Home {
    laptop_home()
        .with_env("METACLAW__WISHES__ENABLED", "false")
        .with_env("METACLAW__RL__METHOD", "redo")
        // Its tests are killed one by one in the learner's own; here they would be most of ten minutes.
        .with_env("METACLAW__GATE__ENABLED", "false")
        // Enough for something to teach; the usual six take minutes more.
        .with_env("METACLAW__RL__DRAWS", "2")
        // What the model said is looked for in the log word by word, and it likes to speak of passwords.
        .with_env("METACLAW__TURNS__MASK_SECRETS", "false")
}

/// A moment in the middle of the script, of which the clock chooses one for each run.
#[derive(Debug)]
struct Moment {
    /// So many conversations are over,
    conversations: usize,
    /// and the next has gone on for so long.
    then: Duration,
}

impl Moment {
    fn draw() -> Self {
        let by_the_clock = || u64::from(SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos());
        let seed = external::seed().unwrap_or_else(by_the_clock);
        let mut state = seed;
        let mut below = |n| questions::split_mix(&mut state) % n;
        let moment = Self {
            conversations: 5 + usize::try_from(below(6)).unwrap(),
            then: Duration::from_millis(below(3_000)),
        };
        println!("METACLAW_TEST_SEED={seed}: {moment:?}");
        moment
    }

    /// Runs the script, and `kill` at this moment of it.
    async fn run<T>(
        &self,
        client: &Client,
        started: Instant,
        kill: impl AsyncFnOnce() -> T,
    ) -> (Vec<Conversation>, T) {
        let (n_over, mut conversations) = watch::channel(0);
        let killed = async {
            let over = conversations.wait_for(|n| *n >= self.conversations).await;
            over.expect("the script goes on beyond it");
            tokio::time::sleep(self.then).await;
            kill().await
        };
        let script = Script {
            seed: 11,
            conversations: 16,
            max_tokens: 96,
            retry_for: Duration::from_secs(120),
        };
        let run = script.run(client, started, |n, _| {
            n_over.send_replace(n + 1);
        });
        tokio::join!(run, killed)
    }
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
        // The event's own field: the span before it names the turn as well.
        let id = line
            .split(" judged turn=")
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

/// No (turn, use) stands in two manifests of one lineage, and no turn has more uses than `rl.reuse` allows.
fn assert_no_turn_trained_twice(home: &Home) -> usize {
    let mut seen: BTreeMap<(String, String, u64), PathBuf> = BTreeMap::new();
    let manifests = manifests(home.path());
    for (path, manifest) in &manifests {
        let lineage = manifest["lineage"].as_str().expect("a lineage").to_owned();
        let turns = manifest["turns"].as_array().expect("turn ids");
        let uses = manifest["uses"].as_array().expect("their uses");
        assert_eq!(turns.len(), uses.len(), "{}", path.display());
        for (turn, used) in turns.iter().zip(uses) {
            let nth = used.as_u64().expect("a number");
            assert!((1..=MAX_USES).contains(&nth), "use {nth} of {turn}");
            let id = turn.as_str().expect("an id").to_owned();
            if let Some(before) = seen.insert((lineage.clone(), id, nth), path.clone()) {
                panic!(
                    "use {nth} of turn {turn} stands in {} and {}",
                    before.display(),
                    path.display()
                );
            }
        }
    }
    manifests.len()
}

async fn assert_one_trainer(home: &Home) {
    let trainers = async || trainers_of(home.path());
    until_within(Duration::from_secs(20), "one trainer", trainers, |it| {
        it.len() == 1
    })
    .await;
}

/// What is true after both kills; says how many checkpoints there are.
async fn assert_nothing_lost_and_nothing_twice(
    home: &Home,
    run: &[Conversation],
    killed_ms: u64,
) -> usize {
    let turns = exported(home).await;
    assert_nothing_lost(run, killed_ms, &turns);
    assert_no_turn_judged_twice(home, &turns);
    assert_one_trainer(home).await;
    let n_checkpoints = assert_no_turn_trained_twice(home);
    assert!(n_checkpoints > 0, "no step was made: {}", home.log());
    n_checkpoints
}

#[tokio::test]
#[ignore = "needs the binaries and the model, cargo xtask test --all runs it"]
async fn a_killed_proxy_loses_no_turn_and_trains_none_twice() {
    let home = home_of_the_script();
    let moment = Moment::draw();
    let proxy = home.start().await.unwrap();
    let port = proxy.port();
    let (client, started) = (proxy.client(), Instant::now());
    let kill_and_restart = async || {
        let killed_ms = now_ms(started);
        proxy.kill().await.unwrap();
        let refused = client.stream(&[], &Value::Null).await;
        assert!(
            matches!(refused, Err(Refusal::Unreachable(_))),
            "{refused:?}"
        );
        (killed_ms, home.start_on(port).await.unwrap())
    };
    let (run, (killed_ms, proxy)) = moment.run(&client, started, kill_and_restart).await;

    let failures = failures_of(&run);
    assert!(!failures.is_empty(), "the kill was felt");
    let n = assert_nothing_lost_and_nothing_twice(&home, &run, killed_ms).await;
    println!("killed at {killed_ms} ms; {n} checkpoints; failures: {failures:?}");
    proxy.stop().await.unwrap();
    assert!(
        trainers_of(home.path()).is_empty(),
        "the trainer ends with the proxy"
    );
}

#[tokio::test]
#[ignore = "needs the binaries and the model, cargo xtask test --all runs it"]
async fn a_killed_trainer_is_replaced_and_no_turn_is_lost_or_trained_twice() {
    let home = home_of_the_script();
    let moment = Moment::draw();
    let proxy = home.start().await.unwrap();
    let (client, started) = (proxy.client(), Instant::now());
    let kill_and_ask = async || {
        let trainers = trainers_of(home.path());
        assert_eq!(trainers.len(), 1, "{trainers:?}");
        let killed_ms = now_ms(started);
        signal(trainers[0], Signal::KILL).unwrap();
        let left = async || trainers_of(home.path());
        let is_gone = |left: &Vec<u32>| !left.contains(&trainers[0]);
        until_within(
            Duration::from_secs(5),
            "the end of a trainer",
            left,
            is_gone,
        )
        .await;
        let hello = [json!({"role": "user", "content": "Are you there?"})];
        (
            killed_ms,
            client.stream(&hello, &json!({"max_tokens": 16})).await,
        )
    };
    let (run, (killed_ms, refused)) = moment.run(&client, started, kill_and_ask).await;

    let is_told_when = matches!(
        refused,
        Err(Refusal::Status {
            status: 503,
            retry_after: Some(_),
            ..
        })
    );
    assert!(is_told_when, "a new request: {refused:?}");
    let failures = failures_of(&run);
    let expected = |failure: &&String| {
        failure.contains("Cut") || failure.contains("status: 503, retry_after: Some(")
    };
    assert!(!failures.is_empty(), "the kill was felt");
    assert!(
        failures.iter().all(expected),
        "cut streams and 503 with Retry-After: {failures:?}"
    );
    let n = assert_nothing_lost_and_nothing_twice(&home, &run, killed_ms).await;
    println!("killed at {killed_ms} ms; {n} checkpoints; failures: {failures:?}");
    proxy.stop().await.unwrap();
}

fn failures_of(run: &[Conversation]) -> Vec<&String> {
    run.iter()
        .flat_map(|talk| &talk.requests)
        .flat_map(|request| &request.failures)
        .collect()
}
