//! Kills the proxy with SIGKILL at [`KILLS`] random moments, each with 64 replies in progress.
//!
//! Every turn whose reply had ended 100 ms before a kill is in the log after the restart, complete and once; with
//! `turns.durability: strict`, every turn whose end the agent saw. The moments come from a seed that is printed;
//! `METACLAW_TEST_SEED` repeats them.
//!
//! A kill of the process loses only what has not been written; the system keeps the rest. So the 100 ms are measured in
//! memory, where other programs' writes do not interfere, and `strict`, which has no such limit, on the disk.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime},
};

use metaclaw_tests::{
    client::Client,
    echo::{self, Echo},
    external,
    home::{Home, Proxy},
    questions::split_mix,
};
use rustix::fs::statvfs;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, task::JoinSet};

/// METACLAW_TEST_KILLS says another number.
const KILLS: usize = 50;
const STREAMS: usize = 64;
/// A turn that ended this long before a kill must be in the log: `design.md` 3.
const PROMISE: Duration = Duration::from_millis(100);
/// The longest time from the start of the streams to a kill, so that each has several turns.
const LATEST_MS: u64 = 900;
/// A reply: six words and an end, in 0.15 s.
const WORDS: usize = 6;
const EVERY: Duration = Duration::from_millis(15);
/// A client's conversation begins anew after this many messages.
const LONGEST: usize = 6;
/// Ten times the size of the log of one run.
const ROOM: u64 = 512 << 20;
/// The approximate size of one write of the log, and how often the disk is measured with it.
const WRITTEN: usize = 32 << 10;
const TRY_EVERY: Duration = Duration::from_millis(20);

/// A reply that arrived completely.
#[derive(Debug)]
struct Ended {
    text: String,
    at: Instant,
}

/// A reply that arrived completely, and how long before the kill.
#[derive(Debug)]
struct Before {
    text: String,
    by: Duration,
}

/// The time that the disk takes for a write, measured beside the proxy.
#[derive(Debug, Default)]
struct Disk {
    flushes: Arc<Mutex<Vec<Duration>>>,
    tasks: JoinSet<()>,
}

fn config(upstream: &Echo, durability: &str) -> String {
    format!(
        "mode: skills_only\nllm:\n  api_base: {}/v1\n  model_id: mock-model\n  api_key: sk-upstream\nturns:\n  durability: {durability}\n",
        upstream.base_url
    )
}

/// Returns a folder in memory, if there is one with enough space, because containers often have 64 MiB of it.
fn in_memory() -> PathBuf {
    let folder = Path::new("/dev/shm");
    let room = statvfs(folder).map_or(0, |it| it.f_bavail * it.f_frsize);
    if room >= ROOM {
        return folder.to_owned();
    }
    println!("no room in {}: on the disk", folder.display());
    std::env::temp_dir()
}

/// Returns the seed of this run's moments, and prints it.
fn seed() -> u64 {
    let by_the_clock = || u64::from(SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos());
    let seed = external::seed().unwrap_or_else(by_the_clock);
    println!("METACLAW_TEST_SEED={seed}");
    seed
}

/// Runs one client: conversation after conversation, until a reply breaks off.
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

/// Runs all clients, and kills the proxy after a while; returns the completed replies.
async fn round(proxy: Proxy, number: usize, after: Duration) -> Vec<Before> {
    let client = proxy.client();
    let mut clients = JoinSet::new();
    for n in 0..STREAMS {
        clients.spawn(talk(client.clone(), format!("r{number}c{n}")));
    }
    tokio::time::sleep(after).await;
    let killed = Instant::now();
    proxy.kill().await.unwrap();
    // Each client stopped at a reply that broke off, so this is the number in progress.
    let ended = clients.join_all().await.into_iter().flatten();
    let before = ended.map(|Ended { text, at }| Before {
        text,
        by: killed.saturating_duration_since(at),
    });
    before.collect()
}

/// Returns every turn of the log after the last kill.
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

fn assert_all_there(kept: &[&Before], replies: &BTreeMap<String, Vec<Value>>) {
    let is_missing = |ended: &&&Before| !replies.contains_key(&ended.text);
    let missing: Vec<_> = kept.iter().filter(is_missing).collect();
    assert!(
        missing.is_empty(),
        "{} of {} turns are lost: {missing:?}",
        missing.len(),
        kept.len()
    );
}

/// Each turn in the log is complete, and there once.
fn assert_whole_and_once(ended: &[Before], replies: &BTreeMap<String, Vec<Value>>) {
    for Before { text, .. } in ended {
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

/// Runs the whole test, with a log below `folder`. `is_kept` says whether a turn must be in the log.
async fn kill_often(durability: &str, folder: &Path, is_kept: impl Fn(&Before) -> bool) {
    let bin_dir = external::bin_dir();
    let kills = external::kills().unwrap_or(KILLS);
    let mut dice = seed();
    let upstream = Echo::start(WORDS, EVERY);
    let home = Home::below(folder, &bin_dir, &config(&upstream, durability));
    let disk = Disk::watch(&home);
    let mut ended = Vec::new();
    let began = Instant::now();
    for number in 0..kills {
        let proxy = home.start().await.unwrap();
        let after = Duration::from_millis(split_mix(&mut dice) % LATEST_MS);
        ended.extend(round(proxy, number, after).await);
    }
    let took = began.elapsed();
    let flushes = disk.flushes().await;
    let p99 = p99(&flushes);
    let replies = replies(&home).await;
    let (kept, late): (Vec<&Before>, Vec<&Before>) = ended.iter().partition(|ended| is_kept(ended));
    let late_there = late.iter().filter(|it| replies.contains_key(&it.text));
    println!(
        "{kills} kills under {STREAMS} streams in {took:.1?}: {} turns must be there; {} of {} that ended later are; flush p99 {p99:.1?}{}",
        kept.len(),
        late_there.count(),
        late.len(),
        if p99 > PROMISE { ": disk too slow" } else { "" },
    );
    assert!(
        !home.log().contains("moved aside"),
        "a log was moved aside: {}",
        home.log()
    );
    let shows = kept.len() > kills * STREAMS / 4;
    assert!(shows || p99 > PROMISE, "too few to show anything");
    assert_whole_and_once(&ended, &replies);
    assert_all_there(&kept, &replies);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the binaries, cargo xtask test --all runs it"]
async fn a_turn_that_ended_100_ms_before_a_kill_is_in_the_log_whole_and_once() {
    kill_often("normal", &in_memory(), |ended| ended.by >= PROMISE).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the binaries, cargo xtask test --all runs it"]
async fn strict_keeps_every_turn_whose_end_the_agent_saw() {
    kill_often("strict", &std::env::temp_dir(), |_| true).await;
}

// === impl Disk ===

impl Disk {
    fn watch(home: &Home) -> Self {
        let mut disk = Self::default();
        let (file, flushes) = (home.path().join("disk.probe"), Arc::clone(&disk.flushes));
        disk.tasks.spawn(async move {
            let mut file = tokio::fs::File::create(file).await.unwrap();
            let written = vec![7; WRITTEN];
            loop {
                let began = Instant::now();
                file.write_all(&written).await.unwrap();
                file.sync_data().await.unwrap();
                flushes.lock().unwrap().push(began.elapsed());
                tokio::time::sleep(TRY_EVERY).await;
            }
        });
        disk
    }

    async fn flushes(mut self) -> Vec<Duration> {
        self.tasks.shutdown().await;
        self.flushes.lock().unwrap().clone()
    }
}

fn p99(flushes: &[Duration]) -> Duration {
    let mut took = flushes.to_vec();
    took.sort_unstable();
    took[took.len() * 99 / 100]
}
