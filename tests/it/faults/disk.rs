//! The log's disk fails: the chat goes on.

use std::{path::Path, time::Duration};

use metaclaw_test_kit::until_within;
use metaclaw_tests::home::{Home, Proxy};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};

use super::{home_before, metric, peak_memory, unlike, upstream, user};

/// The log is opened again after 15 s at the latest.
const BACK_WITHIN: Duration = Duration::from_secs(40);
/// One message, of which a few fill what room there is.
const MESSAGE: usize = 60_000;

/// Bounds the length of every file that the process writes; none takes the bound away.
fn bound_files(proxy: &Proxy, n_bytes: Option<u64>) {
    let pid = i32::try_from(proxy.pid()).ok().and_then(Pid::from_raw);
    let limit = Rlimit {
        current: n_bytes,
        maximum: None,
    };
    prlimit(pid, Resource::Fsize, limit).unwrap();
}

fn database(home: &Home) -> std::path::PathBuf {
    home.path().join("turns/sled/db")
}

/// A whole chat turn.
async fn chat(proxy: &Proxy, n: u64, n_bytes: usize) {
    let text = format!("{n}: {}", unlike(n, n_bytes));
    let reply = proxy.client().stream(&user(&text), &json!({})).await;
    assert_eq!(reply.unwrap().text, "Noted.", "turn {n}");
}

async fn broken(home: &Home) -> Option<String> {
    let status = home.ask(&["status", "--json"]).await.unwrap();
    status["log"]["broken"].as_str().map(str::to_owned)
}

/// How often each message of [`chat`] stands in the log, by its number; and how many are without their reply,
/// as the memory ended within it.
async fn logged(home: &Home) -> (Vec<u64>, u64) {
    let output = home.command(&["turns", "export"]).output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let mut n_without = 0;
    let number = |line: &str| {
        let turn: Value = serde_json::from_str(line).unwrap();
        if turn["end"]["how"] == "overflowed" {
            n_without += 1;
        } else {
            assert_eq!(turn["reply"]["content"], "Noted.");
        }
        let said = turn["request"]["messages"][0]["content"].as_str().unwrap();
        said.split_once(':').unwrap().0.parse().unwrap()
    };
    let mut numbers: Vec<u64> = lines.lines().map(number).collect();
    numbers.sort_unstable();
    (numbers, n_without)
}

#[tokio::test]
#[ignore = "needs the binaries, cargo xtask test --all runs it"]
async fn a_full_disk_stops_the_capture_and_not_the_chat_and_both_go_on_when_there_is_room() {
    let upstream = upstream().await;
    // Room for some turns that wait, and not for all.
    let more = "proxy: {port: 0, capture_memory: 1 MiB}";
    let home = home_before(&upstream.base_url, more);
    let proxy = home.start().await.unwrap();
    for n in 0..5 {
        chat(&proxy, n, MESSAGE).await;
    }
    let length = std::fs::metadata(database(&home)).unwrap().len();
    bound_files(&proxy, Some(length));
    let mut n = 5;
    let broken_by_chat = async || {
        chat(&proxy, n, MESSAGE).await;
        n += 1;
        broken(&home).await
    };
    let a_minute = Duration::from_secs(60);
    let why = until_within(a_minute, "a broken log", broken_by_chat, Option::is_some).await;
    let why = why.unwrap();
    assert!(why.contains("no space left"), "{why}");
    for _ in 0..20 {
        chat(&proxy, n, MESSAGE).await;
        n += 1;
    }
    let dropped = r#"metaclaw_dropped_captures_total{reason="no_memory"}"#;
    let n_dropped = metric(&proxy, dropped).await;
    assert!(n_dropped > 0.0, "those that found no room are counted");
    let unflushed = "metaclaw_oldest_unflushed_turn_seconds";
    assert!(metric(&proxy, unflushed).await > 0.0);
    let held = metric(&proxy, "metaclaw_capture_bytes").await;
    assert!(held <= f64::from(1 << 20), "{held}");

    bound_files(&proxy, None);
    until_within(
        BACK_WITHIN,
        "the log",
        async || broken(&home).await,
        Option::is_none,
    )
    .await;
    chat(&proxy, n, 10).await;
    n += 1;
    assert!(peak_memory(proxy.pid()) < 256 << 20);
    proxy.stop().await.unwrap();
    let said = home.log();
    assert!(said.contains("the turn log failed") && said.contains("the turn log works again"));

    let (logged, n_without) = logged(&home).await;
    let is_once = logged.windows(2).all(|pair| pair[0] < pair[1]);
    assert!(is_once, "twice in the log: {logged:?}");
    assert!(logged.starts_with(&[0, 1, 2, 3, 4]) && logged.ends_with(&[n - 1]));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a small count"
    )]
    let n_dropped = n_dropped as u64;
    let n_whole = logged.len() as u64 - n_without;
    assert_eq!(n_whole + n_dropped, n, "{logged:?}");
}

#[tokio::test]
#[ignore = "needs the binaries, cargo xtask test --all runs it"]
async fn a_file_where_the_log_should_be_is_named() {
    let upstream = upstream().await;
    let home = home_before(&upstream.base_url, "proxy: {port: 0}");
    std::fs::write(home.path().join("turns"), "").unwrap();
    let output = home.command(&["start"]).output().await.unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    let place = home.path().join("turns").display().to_string();
    let last = said.lines().last().unwrap();
    assert!(
        last.contains(&place) && last.contains("cannot use"),
        "{last}"
    );
}

/// Cuts a file to a third.
fn cut(path: &Path) {
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length / 3 + 17).unwrap();
}

#[tokio::test]
#[ignore = "needs the binaries, cargo xtask test --all runs it"]
async fn a_log_cut_short_is_read_as_far_as_it_goes_or_moved_aside_and_its_owner_is_told() {
    let upstream = upstream().await;
    let home = home_before(&upstream.base_url, "proxy: {port: 0}");
    let proxy = home.start().await.unwrap();
    for n in 0..40 {
        chat(&proxy, n, MESSAGE).await;
    }
    proxy.stop().await.unwrap();
    // Restarted once, sled has noted where its pages lie, and misses them.
    home.start().await.unwrap().stop().await.unwrap();
    cut(&database(&home));

    let proxy = home.start().await.unwrap();
    chat(&proxy, 40, 10).await;
    let status = home.ask(&["status", "--json"]).await.unwrap();
    let moved = status["log"]["moved_aside"].as_str();
    let place = moved.or(status["log"]["copied"].as_str());
    let place = place.expect("a place");
    assert!(Path::new(place).join("db").is_file(), "{place}");
    let shown = home.command(&["status"]).output().await.unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains(place), "{shown}");
    proxy.stop().await.unwrap();
    let said = if moved.is_some() {
        "the turn log was moved aside"
    } else {
        "the turn log lost"
    };
    assert!(home.log().contains(said), "{}", home.log());
    let (left, n_without) = logged(&home).await;
    assert_eq!((left.last(), n_without), (Some(&40), 0));
    assert!(left.len() < 41, "{left:?}");
    assert!(moved.is_none() || left.len() == 1, "{left:?}");
}
