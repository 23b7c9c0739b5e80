//! Readers that go on where they stopped.

use super::kit::{Client, new_log, open};
use crate::{ImportedTurn, LogReader, Restoring, TurnLog};

const READER: LogReader = LogReader::Wishes;

/// Returns the turns that a reader has not read.
async fn unread(log: &TurnLog) -> Vec<String> {
    let (mut last, mut found) = (log.resume(READER).await.unwrap(), Vec::new());
    while let Some((number, turns)) = log.turns_since(last).await.unwrap() {
        assert!(number > last && !turns.is_empty());
        found.extend(turns.iter().map(ToString::to_string));
        last = number;
    }
    found
}

#[tokio::test]
async fn a_reader_goes_on_after_the_last_transaction_that_it_noted() {
    let (dir, log) = new_log();
    let mut client = Client::new("a", "sys");
    log.put(client.turn("before", "yes")).await;
    assert_eq!(unread(&log).await, [""; 0], "old turns are not read");
    for said in ["one", "two", "three"] {
        log.put(client.turn(said, "yes")).await;
    }
    log.close().await;
    let log = open(dir.path());
    assert_eq!(unread(&log).await, ["1-1", "1-2", "1-3"]);
    let last = log.resume(READER).await.unwrap();
    let (second, _) = log.turns_since(last).await.unwrap().unwrap();
    log.note_read(READER, Some(second)).await.unwrap();
    // The other reader, and other writes, change nothing of it.
    log.resume(LogReader::Facts).await.unwrap();
    log.spend("1-2".parse().unwrap(), "why").await.unwrap();
    log.compact().await.unwrap();
    log.close().await;
    let log = open(dir.path());
    assert_eq!(unread(&log).await, ["1-2", "1-3"]);
    log.note_read(READER, None).await.unwrap();
    assert_eq!(
        unread(&log).await,
        [""; 0],
        "nothing was to be read meanwhile"
    );
    // The log was cut: its next transactions have numbers that were noted.
    log.note_read(READER, Some(u64::MAX)).await.unwrap();
    log.resume(READER).await.unwrap();
    log.put(client.turn("four", "yes")).await;
    assert_eq!(unread(&log).await, ["1-4"]);
    log.close().await;
}

#[tokio::test]
async fn turns_that_are_restored_are_not_read() {
    let (_other_dir, other) = new_log();
    let mut client = Client::new("a", "sys");
    let id = other.put(client.turn("old", "yes")).await;
    let old = Restoring::default().next(other.turn(id).await);
    let (_dir, log) = new_log();
    log.resume(READER).await.unwrap();
    log.restore(vec![old]).await.unwrap();
    assert_eq!(unread(&log).await, [""; 0]);
    let mut elsewhere = Client::new("b", "sys");
    let imported = ImportedTurn {
        turn: elsewhere.turn("imported", "yes"),
        verdict: None,
    };
    log.import(vec![imported]).await.unwrap();
    log.put(client.turn("new", "yes")).await;
    assert_eq!(unread(&log).await, ["2-0", "1-1"]);
    log.close().await;
}
