//! Folders that do not open, and what is said about them.

use std::{fs, path::Path};

use metaclaw_chat::Score;

use super::kit::{Client, Dice, open, verdict};
use crate::{
    ExportFilter, OpenError, StateKind, Turn, TurnFilter, TurnLog, TurnState, TurnsConfig, keys,
    store::{Batch, Change, Store, Table},
};

fn try_open(dir: &Path) -> Result<TurnLog, OpenError> {
    TurnLog::open(dir, &TurnsConfig::default())
}

#[tokio::test]
async fn a_second_opener_is_told_who_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    let error = try_open(dir.path()).unwrap_err().to_string();
    let holder = format!("is in use by process {}", std::process::id());
    assert!(error.contains(&holder), "{error}");
    log.close().await;
    open(dir.path()).close().await;
}

#[tokio::test]
async fn a_file_in_the_folders_place_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("turns");
    fs::write(&path, "").unwrap();
    let error = try_open(&path).unwrap_err();
    assert!(matches!(error, OpenError::NotWritable { .. }), "{error}");
    assert!(error.to_string().contains(&*path.to_string_lossy()));
}

/// Text that does not compress, so that the file is full of it.
fn unlike(n: u64, n_bytes: usize) -> String {
    let mut dice = Dice::new(n << 32);
    let letter = |_| char::from(b'a' + u8::try_from(dice.below(26)).unwrap());
    (0..n_bytes).map(letter).collect()
}

/// A log with 300 turns of `n_bytes` each.
async fn fill(dir: &Path, n_bytes: usize) {
    let log = open(dir);
    let mut client = Client::new("s", "sys");
    for n in 0..300 {
        let turn = client.turn(&format!("question {n}"), &unlike(n, n_bytes));
        log.append(turn).await.unwrap();
    }
    log.close().await;
}

/// Cuts the database's file to a third.
fn cut(dir: &Path) {
    let file = fs::OpenOptions::new()
        .write(true)
        .open(dir.join("sled/db"))
        .unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length / 3 + 17).unwrap();
}

#[tokio::test]
async fn a_log_cut_short_is_moved_aside_and_an_empty_one_begins() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path(), 9_000).await;
    // Restarted once, sled has noted where its pages lie, and misses them.
    open(dir.path()).close().await;
    cut(dir.path());
    let log = open(dir.path());
    let moved = log.outcome().moved_aside.clone().unwrap();
    assert!(moved.to.join("db").is_file() && !moved.why.is_empty());
    assert_eq!(log.funnel(None).await.unwrap().turns, 0);
    assert_eq!(log.outcome().n_lost, 0);
    let id = log
        .append(Client::new("s", "sys").turn("q", "a"))
        .await
        .unwrap();
    log.close().await;
    let log = open(dir.path());
    assert!(log.outcome().moved_aside.is_none() && log.outcome().recovered);
    assert!(log.get(id).await.unwrap().is_some());
}

/// Here sled itself sees nothing: it takes the cut for a write that never finished.
#[tokio::test]
async fn a_log_that_lost_its_end_says_so_and_keeps_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path(), 100).await;
    cut(dir.path());
    let log = open(dir.path());
    let outcome = log.outcome().clone();
    assert!(outcome.recovered && outcome.moved_aside.is_none());
    let n_turns = log.funnel(None).await.unwrap().turns;
    assert_eq!(n_turns + outcome.n_lost, 300);
    assert!(outcome.n_lost > 100, "{}", outcome.n_lost);
    log.append(Client::new("s", "sys").turn("q", "a"))
        .await
        .unwrap();
    log.close().await;
    let log = open(dir.path());
    assert_eq!(
        (log.outcome().n_lost, log.funnel(None).await.unwrap().turns),
        (0, n_turns + 1)
    );
}

#[tokio::test]
async fn a_log_whose_database_is_gone_does_not_begin_anew_unasked() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).close().await;
    fs::remove_dir_all(dir.path().join("sled")).unwrap();
    for _ in 0..2 {
        let error = try_open(dir.path()).unwrap_err();
        assert!(matches!(error, OpenError::Vanished { .. }), "{error}");
    }
    fs::remove_file(dir.path().join("FORMAT")).unwrap();
    open(dir.path()).close().await;
}

#[tokio::test]
async fn a_log_of_a_later_program_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).close().await;
    fs::write(dir.path().join("FORMAT"), "4\n").unwrap();
    let error = try_open(dir.path()).unwrap_err().to_string();
    assert!(
        error.contains("has format 4; this program reads formats up to 3"),
        "{error}"
    );
}

/// There, a captured turn had an entry among the states, too; and up to format 2 its reply had one, and
/// that among the times was empty.
#[tokio::test]
async fn a_log_of_format_1_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    let mut client = Client::new("s", "sys");
    let agent = client.agent.parse().unwrap();
    let (mut ids, mut times) = (Vec::new(), Vec::new());
    for n in 0..2 {
        let mut turn = client.turn(&format!("q{n}"), "a");
        turn.reply_id = Some(format!("chatcmpl-{n}"));
        ids.push(log.append(turn).await.unwrap());
        times.push(client.now_ms + 900);
    }
    log.close().await;
    fs::write(dir.path().join("FORMAT"), "1\n").unwrap();
    let store = Store::open(&dir.path().join("sled"), 8 << 20).unwrap();
    let mut batch = Batch::default();
    for (n, (id, ended_ms)) in ids.iter().zip(times).enumerate() {
        let mut put = |table, key, value: &[u8]| batch.set(table, key, Change::Put(value.into()));
        put(Table::States, keys::turn(*id), &[0]);
        put(Table::Times, keys::time(ended_ms, *id), &[]);
        let reply_hash = keys::reply_hash(&format!("chatcmpl-{n}"));
        let reply = keys::reply(&reply_hash, id.session);
        put(Table::Replies, reply, &id.seq.to_be_bytes());
    }
    store.apply(&batch).unwrap();
    store.flush().unwrap();
    drop(store);
    Store::wait_until_free(&dir.path().join("sled"));

    let log = open(dir.path());
    assert!(log.judge(ids[0], verdict(Score::Good)).await.unwrap());
    ids.push(log.append(client.turn("q2", "a")).await.unwrap());
    let captured = log.in_state(&agent, StateKind::Captured).await.unwrap();
    assert_eq!(captured, ids[1..]);
    assert_eq!(log.by_reply("chatcmpl-0").await.unwrap(), ids[..1]);
    let listed = log.list(TurnFilter::default()).await.unwrap();
    assert!(
        listed
            .iter()
            .rev()
            .map(|turn| turn.id)
            .eq(ids.iter().copied())
    );
    let session = client.session.parse().unwrap();
    let turns = log.session_turns(&agent, &session).await.unwrap();
    let states: Vec<_> = turns.into_iter().map(|turn| turn.state).collect();
    let captured = || TurnState::Captured;
    assert_eq!(states, [TurnState::Judged, captured(), captured()]);
    log.close().await;
    let format = fs::read_to_string(dir.path().join("FORMAT")).unwrap();
    assert_eq!(format, "3\n");
}

#[tokio::test]
async fn an_export_is_one_whole_turn_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let log = open(dir.path());
    for session in ["a", "b"] {
        let mut client = Client::new(session, "sys");
        for n in 0..20 {
            log.append(client.turn(&format!("q{n}"), "a\nb"))
                .await
                .unwrap();
        }
    }
    let mut lines = Vec::new();
    let n = log
        .export(&mut lines, &ExportFilter::default())
        .await
        .unwrap();
    assert_eq!(n, 40);
    let text = String::from_utf8(lines).unwrap();
    let turns: Vec<Turn> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(turns.len(), 40);
    for turn in &turns {
        assert_eq!(log.get(turn.id).await.unwrap().as_ref(), Some(turn));
    }
    let only = ExportFilter {
        session: Some("b".parse().unwrap()),
        ..ExportFilter::default()
    };
    assert_eq!(log.export(&mut Vec::new(), &only).await.unwrap(), 20);
}
