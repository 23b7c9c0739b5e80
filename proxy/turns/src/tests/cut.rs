//! Tests of logs that lost their end.

use std::{fs, path::Path};

use tokio::task::{JoinSet, yield_now};

use super::{
    damage::{copy, named},
    kit::{Client, Dice, open},
};
use crate::LogError;

/// Makes text that does not compress, so that it fills the file.
fn unlike(n: u64, n_bytes: usize) -> String {
    let mut dice = Dice::new(n << 32);
    let letter = |_| char::from(b'a' + u8::try_from(dice.below(26)).unwrap());
    (0..n_bytes).map(letter).collect()
}

/// Turns of a log that is truncated.
const TURNS: u64 = 300;
/// One truncation is after each of these parts of its file, except the last.
const PARTS: u64 = 16;

/// Makes a log with `TURNS` turns of `n_bytes` each.
async fn fill(dir: &Path, n_bytes: usize) {
    let log = open(dir);
    let mut client = Client::new("s", "sys");
    let mut appending = JoinSet::new();
    for n in 0..TURNS {
        let turn = client.turn(&format!("question {n}"), &unlike(n, n_bytes));
        let log = log.clone();
        appending.spawn(async move { log.put(turn).await });
    }
    appending.join_all().await;
    log.close().await;
}

/// Copies a log to `to` and truncates its database there to `n` of [`PARTS`].
fn cut(dir: &Path, to: &Path, n: u64) {
    copy(dir, to);
    let file = fs::OpenOptions::new()
        .write(true)
        .open(to.join("sled/db"))
        .unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length * n / PARTS + 17).unwrap();
}

/// Checks that the rest of a truncated log is complete, and that new turns stay.
async fn goes_on(dir: &Path, what: &str) {
    let log = open(dir);
    let outcome = log.outcome().clone();
    let n_left = loop {
        match log.funnel(None).await {
            Ok(funnel) => break funnel.turns,
            // A missing page was found only now. The log is opened again without it.
            Err(LogError::Broken { .. }) => yield_now().await,
            Err(error) => panic!("{what}: {error}"),
        }
    };
    if let Some(moved) = outcome.moved_aside {
        assert!(
            moved.to.join("db").is_file() && !moved.why.is_empty(),
            "{what}"
        );
        assert_eq!((n_left, outcome.n_lost), (0, 0), "{what}");
    } else {
        // The removed part may have been unused room, or texts of existing turns.
        let copies = named(dir, "damaged-");
        assert!(n_left == TURNS || !copies.is_empty(), "{what}: {n_left}");
        if outcome.n_lost + outcome.n_gaps > 0 {
            assert_eq!(outcome.copied.as_ref(), copies.first(), "{what}");
        }
        assert!(copies.iter().all(|to| to.join("db").is_file()), "{what}");
    }
    let mut client = Client::new("s", "sys");
    let id = log.put(client.turn("q", "a")).await;
    log.close().await;
    for n in 1..4 {
        let log = open(dir);
        let outcome = log.outcome();
        assert!(
            outcome.moved_aside.is_none() && outcome.recovered,
            "{what}: {outcome:?}"
        );
        assert_eq!((outcome.n_lost, outcome.n_gaps), (0, 0), "{what}");
        let found = log.get(id).await;
        assert!(matches!(found, Ok(Some(_))), "{what}: {n}: {found:?}");
        assert_eq!(log.funnel(None).await.unwrap().turns, n_left + n, "{what}");
        log.put(client.turn(&format!("q{n}"), &unlike(n, 9_000)))
            .await;
        log.close().await;
    }
}

/// Checks this with each part removed.
async fn goes_on_wherever_it_is_cut(whole: &Path) {
    for n in 1..PARTS {
        let to = whole.with_file_name(n.to_string());
        cut(whole, &to, n);
        goes_on(&to, &format!("{n} of {PARTS}")).await;
    }
}

/// After one restart, sled has recorded the places of its pages, and misses them. Without that record, it may read the
/// rest, or fail: this depends on the place of the truncation in its segments.
#[tokio::test]
async fn a_log_cut_short_is_read_as_far_as_it_goes_or_moved_aside() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    fill(&whole, 9_000).await;
    open(&whole).close().await;
    goes_on_wherever_it_is_cut(&whole).await;
}

/// Here sled itself notices nothing, because it treats the truncation as a write that never finished.
#[tokio::test]
async fn a_log_that_lost_its_end_says_so_and_keeps_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    fill(&whole, 100).await;
    goes_on_wherever_it_is_cut(&whole).await;
}

/// Row 30 of the security tests: sled treats damage in its last segment as a write that never finished.
#[tokio::test]
async fn a_small_log_that_lost_something_was_copied_before() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path(), 100).await;
    let file = dir.path().join("sled/db");
    let mut bytes = fs::read(&file).unwrap();
    // One byte of the written part is changed. Everything after it is lost.
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end / 2] ^= 0x55;
    fs::write(&file, &bytes).unwrap();
    let log = open(dir.path());
    let outcome = log.outcome().clone();
    let copy = match (outcome.moved_aside, outcome.copied) {
        (Some(moved), None) => moved.to,
        (None, Some(copy)) => {
            assert!(outcome.n_lost > 0);
            copy
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(fs::read(copy.join("db")).unwrap(), bytes);
    assert!(!dir.path().join("before").exists());
    log.close().await;
    // The loss is reported once and not again, and no copy is left.
    let log = open(dir.path());
    assert_eq!((log.outcome().n_lost, &log.outcome().copied), (0, &None));
    assert!(!dir.path().join("before").exists());
}
