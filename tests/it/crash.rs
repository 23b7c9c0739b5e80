//! kill -9 of the proxy at 50 random moments, with 64 replies under way at each.
//!
//! Every turn whose reply had ended 100 ms before a kill is in the log after the restart, whole and
//! once; with `turns.durability: strict`, every turn whose end the agent saw. The moments come of a
//! seed that is printed; `METACLAW_TEST_SEED` asks for it again.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime},
};

use metaclaw_tests::{
    client::Client,
    echo::{self, Echo},
    external,
    home::{Home, Proxy},
    need,
    questions::split_mix,
};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, task::JoinSet};

const KILLS: usize = 50;
const STREAMS: usize = 64;
/// A turn that ended this long before a kill is in the log: `design.md` 3.
const PROMISE: Duration = Duration::from_millis(100);
/// A kill comes so long after the streams began, at the latest: several turns of each.
const LATEST_MS: u64 = 900;
/// A reply: six words and an end, a tenth of a second and a half.
const WORDS: usize = 6;
const EVERY: Duration = Duration::from_millis(15);
/// A client's conversation begins anew after so many messages.
const LONGEST: usize = 6;
/// What the log writes at once, about, and how often its disk is tried.
const WRITTEN: usize = 32 << 10;
const TRY_EVERY: Duration = Duration::from_millis(20);

/// A reply that came to its end.
#[derive(Debug)]
struct Ended {
    text: String,
    at: Instant,
}

/// What came of all rounds.
#[derive(Debug, Default)]
struct Outcome {
    /// Replies that the log must have, and those that it may have.
    kept: Vec<String>,
    late: Vec<String>,
    n_broken_off: usize,
}

/// How long the disk takes to keep what it was given, tried beside the proxy.
#[derive(Debug, Default)]
struct Disk {
    took: Arc<Mutex<Vec<Duration>>>,
    tasks: JoinSet<()>,
}

fn config(upstream: &Echo, durability: &str) -> String {
    format!(
        "mode: skills_only\nllm:\n  api_base: {}/v1\n  model_id: mock-model\n  api_key: sk-upstream\nturns:\n  durability: {durability}\n",
        upstream.base_url
    )
}

/// The seed of this run's moments, printed.
fn seed() -> u64 {
    let by_the_clock = || u64::from(SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos());
    let seed = external::seed().unwrap_or_else(by_the_clock);
    println!("METACLAW_TEST_SEED={seed}");
    seed
}

/// One client: conversation after conversation, until something breaks off.
async fn talk(client: Client, name: String) -> Vec<Ended> {
    let mut ended = Vec::new();
    let mut messages: Vec<Value> = Vec::new();
    loop {
        if messages.len() >= LONGEST {
            messages.clear();
        }
        let told = format!("{name}-{}", ended.len());
        messages.push(json!({"role": "user", "content": told}));
        let extra = json!({"session_id": name});
        let Ok(reply) = client.stream(&messages, &extra).await else {
            return ended;
        };
        let at = Instant::now();
        assert_eq!(reply.text, echo::reply(&told, WORDS), "another's reply");
        messages.push(json!({"role": "assistant", "content": reply.text}));
        let text = reply.text;
        ended.push(Ended { text, at });
    }
}

/// Lets all clients talk, kills the proxy after a while, and sorts what had ended by then.
async fn round(
    proxy: Proxy,
    number: usize,
    after: Duration,
    margin: Option<Duration>,
    all: &mut Outcome,
) {
    let client = proxy.client();
    let mut clients = JoinSet::new();
    for n in 0..STREAMS {
        clients.spawn(talk(client.clone(), format!("r{number}c{n}")));
    }
    tokio::time::sleep(after).await;
    let killed = Instant::now();
    proxy.kill().await.unwrap();
    for ended in clients.join_all().await {
        // Each client stopped at a reply that broke off.
        all.n_broken_off += 1;
        for ended in ended {
            let is_kept = margin.is_none_or(|margin| ended.at + margin <= killed);
            let list = if is_kept {
                &mut all.kept
            } else {
                &mut all.late
            };
            list.push(ended.text);
        }
    }
}

/// Every turn of the log, as it is after the last kill.
async fn replies(home: &Home) -> BTreeMap<String, Vec<Value>> {
    let output = home.command(&["turns", "export"]).output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let mut replies: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let turn: Value = serde_json::from_str(line).unwrap();
        let text = turn["reply"]["content"].as_str().unwrap_or_default();
        replies.entry(text.to_owned()).or_default().push(turn);
    }
    replies
}

fn assert_all_there(all: &Outcome, replies: &BTreeMap<String, Vec<Value>>) {
    let missing: Vec<&String> = all
        .kept
        .iter()
        .filter(|text| !replies.contains_key(*text))
        .collect();
    assert!(
        missing.is_empty(),
        "{} of {} turns are lost: {missing:?}",
        missing.len(),
        all.kept.len()
    );
    for text in all.kept.iter().chain(&all.late) {
        let Some(turns) = replies.get(text) else {
            continue;
        };
        assert_eq!(turns.len(), 1, "twice in the log: {turns:?}");
        let turn = &turns[0];
        assert_eq!(turn["end"]["how"], "complete", "{turn}");
        let messages = turn["request"]["messages"].as_array().unwrap();
        let told = messages.last().unwrap()["content"].as_str().unwrap();
        assert_eq!(echo::reply(told, WORDS), *text, "{turn}");
    }
}

/// The whole test. `margin` is how long before a kill a turn must have ended to be kept; without one,
/// each whose end was seen is.
async fn kill_often(durability: &str, margin: Option<Duration>) {
    let bin_dir = need!(external::bin_dir());
    let mut dice = seed();
    let upstream = Echo::start(WORDS, EVERY).await;
    let home = Home::new(&bin_dir, &config(&upstream, durability));
    let disk = Disk::watch(&home);
    let mut all = Outcome::default();
    let began = Instant::now();
    for number in 0..KILLS {
        let proxy = home.start().await.unwrap();
        let after = Duration::from_millis(split_mix(&mut dice) % LATEST_MS);
        round(proxy, number, after, margin, &mut all).await;
    }
    let p99 = disk.p99().await;
    let replies = replies(&home).await;
    let late_there = all.late.iter().filter(|text| replies.contains_key(*text));
    println!(
        "{KILLS} kills in {:?}: {} turns must be there; {} of {} that ended later are; {} replies broke off; flush p99 {p99:?}{}",
        began.elapsed(),
        all.kept.len(),
        late_there.count(),
        all.late.len(),
        all.n_broken_off,
        if p99 > PROMISE { ": disk too slow" } else { "" }
    );
    assert!(
        !home.log().contains("moved"),
        "a log was moved aside: {}",
        home.log()
    );
    assert_eq!(all.n_broken_off, KILLS * STREAMS);
    assert!(
        all.kept.len() > KILLS * STREAMS / 2,
        "too few to show anything"
    );
    assert_all_there(&all, &replies);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_ended_100_ms_before_a_kill_is_in_the_log_whole_and_once() {
    kill_often("normal", Some(PROMISE)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_keeps_every_turn_whose_end_the_agent_saw() {
    kill_often("strict", None).await;
}

// === impl Disk ===

impl Disk {
    fn watch(home: &Home) -> Self {
        let mut disk = Self::default();
        let (file, took) = (home.path().join("disk.probe"), Arc::clone(&disk.took));
        disk.tasks.spawn(async move {
            let mut file = tokio::fs::File::create(file).await.unwrap();
            let written = vec![7; WRITTEN];
            loop {
                let began = Instant::now();
                file.write_all(&written).await.unwrap();
                file.sync_data().await.unwrap();
                took.lock().unwrap().push(began.elapsed());
                tokio::time::sleep(TRY_EVERY).await;
            }
        });
        disk
    }

    async fn p99(mut self) -> Duration {
        self.tasks.shutdown().await;
        let mut took = self.took.lock().unwrap().clone();
        took.sort_unstable();
        took[took.len() * 99 / 100]
    }
}
