//! Tests of turns that one transaction writes: the result does not differ.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use metaclaw_chat::{Score, TurnId};

use super::kit::{Client, as_put, new_log, one_turn, open, session_turns, verdict};
use crate::{
    NewTurn, StateKind, StreamEnd, TurnFilter, TurnLog, TurnState, TurnsConfig,
    engine::{JobBatch, StoreEngine},
    folder::{self, OpenMode, wait_until_free},
    health::{LogHealth, LogState},
    jobs::Append,
    journal::{self, MAX_TURNS},
    keys,
    store::{Bytes, Store},
    txn::Txn,
};

/// Writes turns in one transaction and returns their ids.
fn put(dir: &Path, turns: &[NewTurn]) -> Vec<TurnId> {
    let (opened, _) = folder::open(dir, &TurnsConfig::default(), OpenMode::First).unwrap();
    let mut engine = StoreEngine::new(opened, &Arc::default());
    let state = std::sync::Arc::new(LogState::new());
    let (told, ids) = std::sync::mpsc::channel();
    let appends = (0..).zip(turns).map(|(key, turn)| {
        let told = told.clone();
        let done = move |id: Result<TurnId, _>| told.send(id.unwrap()).unwrap();
        Append::new(&state, key, turn.clone(), Box::new(done))
    });
    let batch = JobBatch {
        appends: appends.collect(),
        ..JobBatch::default()
    };
    assert!(engine.run(batch, &state).is_ok());
    drop((engine, told));
    wait_until_free(dir);
    ids.iter().collect()
}

/// Makes two sessions that alternate, ten milliseconds apart.
fn two_sessions(n_turns: usize) -> Vec<NewTurn> {
    let mut clients = [Client::new("a", "sys"), Client::new("b", "sys")];
    let began_ms = clients[0].now_ms;
    let turns = (0..n_turns).map(|n| {
        let mut turn = clients[n % 2].turn(&format!("q{n}"), &format!("a{n}"));
        turn.meta.started_ms = began_ms;
        turn.meta.ended_ms = began_ms + 900 + 10 * n as u64;
        turn.meta.reply_id = Some(format!("chatcmpl-{n}"));
        turn
    });
    turns.collect()
}

async fn listed(log: &TurnLog, state: Option<StateKind>) -> Vec<TurnId> {
    let mut ids = Vec::new();
    loop {
        let filter = TurnFilter {
            agent: state.map(|_| "main".parse().unwrap()),
            state,
            limit: 3,
            before: ids.last().copied(),
            ..TurnFilter::default()
        };
        let page = log.list(filter).await.unwrap();
        if page.is_empty() {
            return ids;
        }
        ids.extend(page.into_iter().map(|turn| turn.id));
    }
}

#[tokio::test]
async fn they_read_back_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let turns = two_sessions(20);
    let ids = put(dir.path(), &turns);
    let log = open(dir.path());
    for (id, turn) in ids.iter().zip(&turns) {
        assert_eq!(&as_put(log.turn(*id).await), turn);
        let reply_id = turn.meta.reply_id.as_deref().unwrap();
        assert_eq!(log.by_reply(reply_id).await.unwrap(), [*id]);
    }
    assert!(log.by_reply("chatcmpl-20").await.unwrap().is_empty());
    let newest_first: Vec<TurnId> = ids.iter().rev().copied().collect();
    assert_eq!(listed(&log, None).await, newest_first);
    let last = log.last_main_ms().await.unwrap();
    assert_eq!(last, turns.last().map(|turn| turn.meta.ended_ms));
    let chains = log.recent_chains(99).await.unwrap();
    assert_eq!(chains.len(), 20);

    // The session continues after them.
    let next = two_sessions(21).pop().unwrap();
    let id = log.put(next).await;
    let at = |seq| TurnId { session: 1, seq };
    assert_eq!(id, at(10));
    let back = log.turn(id).await;
    assert_eq!(back.parent, Some(at(9)));
}

/// A failed flush may have flushed, so the transaction is written again.
#[test]
fn those_that_are_there_already_are_found_however_many() {
    let dir = tempfile::tempdir().unwrap();
    let turns = two_sessions(60);
    let first = put(dir.path(), &turns[..40]);
    let again = put(dir.path(), &turns);
    assert_eq!(again[..40], first);
    let mut ids = again;
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 60);
}

#[tokio::test]
async fn each_is_moved_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let ids = put(dir.path(), &two_sessions(12));
    let log = open(dir.path());
    let agent = "main".parse().unwrap();
    let mut captured = ids.clone();
    captured.sort_unstable();
    let mut judged = Vec::new();
    for seq in [3, 0, 5, 4, 1, 2] {
        let moved = TurnId { session: 1, seq };
        assert!(log.judge(moved, verdict(Score::Good)).await.unwrap());
        captured.retain(|id| *id != moved);
        judged.push(moved);
        judged.sort_unstable();
        for (kind, expected) in [
            (StateKind::Captured, &captured),
            (StateKind::Judged, &judged),
        ] {
            assert_eq!(&log.in_state(&agent, kind).await.unwrap(), expected);
            let mut listed = listed(&log, Some(kind)).await;
            listed.sort_unstable();
            assert_eq!(&listed, expected);
        }
    }
    let all = session_turns(&log, "main", "a").await;
    let states = all.into_iter().map(|turn| turn.state);
    assert!(states.eq([const { TurnState::Judged }; 6]));
}

#[tokio::test]
async fn one_that_was_cut_gives_its_place_to_another_try() {
    let dir = tempfile::tempdir().unwrap();
    let mut turns = two_sessions(8);
    for turn in &mut turns {
        turn.session = "a".parse().unwrap();
    }
    turns[7].meta.end = StreamEnd::Cut;
    let mut again = turns[7].clone();
    again.meta.end = StreamEnd::Complete;
    again.meta.reply_id = Some("chatcmpl-again".to_owned());
    again.meta.started_ms = again.meta.ended_ms;
    again.meta.ended_ms += 40;
    turns.push(again);
    let ids = put(dir.path(), &turns);
    assert_eq!(ids[8], ids[7]);
    turns.remove(7);
    let log = open(dir.path());
    for (id, turn) in ids.iter().zip(&turns) {
        assert_eq!(&as_put(log.turn(*id).await), turn);
    }
    let newest_first: Vec<TurnId> = ids[..8].iter().rev().copied().collect();
    assert_eq!(listed(&log, None).await, newest_first);
    assert!(log.by_reply("chatcmpl-7").await.unwrap().is_empty());
}

/// The log has as many turns as two years bring, all of them after the one that is searched.
#[tokio::test]
async fn no_turn_waits_until_a_reply_is_found() {
    const TRANSACTIONS: u64 = 500;
    let (_dir, log) = new_log();
    let mut turns = two_sessions(3);
    let id = log.put(turns.remove(0)).await;
    let fill = |txn: &mut Txn<'_>| {
        let others = [(TurnId { session: 9, seq: 9 }, [1; 8]); MAX_TURNS];
        let numbers = 1_000..1_000 + TRANSACTIONS;
        Ok(numbers
            .into_iter()
            .try_for_each(|n| journal::put(txn, n, &others))?)
    };
    log.write(fill).await.unwrap();

    // One query takes only a few milliseconds, however long the log is.
    let mark = journal::mark(Some("chatcmpl-0"));
    let (mut before, mut n_questions, mut slowest) = (None, 0, Duration::ZERO);
    loop {
        let from = before.clone();
        let marked = move |store: &Store| {
            let began = Instant::now();
            let found = journal::marked(store, mark, from.as_ref())?;
            Ok((found, began.elapsed()))
        };
        let ((ids, next), took) = log.read(marked).await.unwrap();
        (n_questions, slowest) = (n_questions + 1, slowest.max(took));
        assert_eq!(ids.is_empty(), next.is_some());
        let number = |key: &Bytes| keys::read_u64(key).unwrap();
        if let (Some(before), Some(next)) = (&before, &next) {
            assert!(number(before) - number(next) <= 10);
        }
        if next.is_none() {
            break;
        }
        before = next;
    }
    assert_eq!(n_questions, TRANSACTIONS / 10 + 1);
    println!("100,000 turns in {n_questions} questions, the slowest {slowest:?}");

    let found = log.by_reply("chatcmpl-0");
    let mut found = std::pin::pin!(found);
    for turn in turns {
        tokio::select! {
            biased;
            _ = &mut found => panic!("a turn waited for all of it"),
            appended = log.append(turn) => assert!(appended.is_ok()),
        }
    }
    assert_eq!(found.await.unwrap(), [id]);
}

#[test]
fn the_age_is_that_of_the_turn_that_waits_longest() {
    let state = std::sync::Arc::new(LogState::new());
    assert_eq!(state.health(), LogHealth::default());
    let wait = |key| Append::new(&state, key, one_turn(), Box::new(|_| ()));
    let age = || state.health().oldest_unflushed.unwrap();
    let first = wait(1);
    let between = Instant::now();
    let second = wait(2);
    let least = between.elapsed();
    assert!(age() >= least);
    drop(first);
    let young = age();
    assert!(young <= between.elapsed());
    drop(second);
    assert_eq!(state.health(), LogHealth::default());
}
