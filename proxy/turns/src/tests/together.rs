//! Turns that one transaction writes: they share entries, and nobody can tell.

use std::path::Path;

use metaclaw_chat::{Score, TurnId};

use super::kit::{Client, as_put, open, verdict};
use crate::{
    NewTurn, StateKind, StreamEnd, TurnFilter, TurnLog, TurnState, TurnsConfig,
    append::{Prepared, append, last},
    engine::{finish, operate},
    index, keys,
    open::{OnDamage, open as open_store, wait_until_free},
    raw::RawTurn,
    state,
    store::{Batch, Table},
    tail::Cache,
    txn::Txn,
};

/// Writes turns in one transaction; their ids, and how many entries tables have then.
fn put(dir: &Path, turns: &[NewTurn]) -> (Vec<TurnId>, [usize; 3]) {
    put_with(dir, turns, 0)
}

/// The same, after the log's last turns were recalled.
fn put_with(dir: &Path, turns: &[NewTurn], n_recalled: usize) -> (Vec<TurnId>, [usize; 3]) {
    let (opened, _) = open_store(dir, &TurnsConfig::default(), OnDamage::Fail).unwrap();
    let (reader, mut cache, mut batch) = (opened.reader, Cache::default(), Batch::default());
    cache.recalled = last(&reader, n_recalled).unwrap();
    let mut ids = Vec::new();
    for (key, turn) in (0..).zip(turns) {
        let new = Prepared::new(RawTurn::of(turn.clone()).unwrap(), key).unwrap();
        let id = operate(&reader, &mut cache, &mut batch, |txn| append(txn, &new));
        ids.push(id.unwrap().unwrap());
    }
    finish(&reader, &mut cache, &mut batch).unwrap();
    reader.store.apply(&batch).unwrap();
    reader.store.flush().unwrap();
    let (from, to) = keys::under(&[]);
    let n_entries = |table| reader.store.range(table, from.clone(), to.clone()).count();
    let n_entries = [Table::Turns, Table::Index, Table::Times].map(n_entries);
    drop((reader, opened.witness));
    wait_until_free(dir);
    (ids, n_entries)
}

/// Two sessions that speak by turns, ten milliseconds apart.
fn two_sessions(n_turns: usize) -> Vec<NewTurn> {
    let mut clients = [Client::new("a", "sys"), Client::new("b", "sys")];
    let began_ms = clients[0].now_ms;
    let turns = (0..n_turns).map(|n| {
        let mut turn = clients[n % 2].turn(&format!("q{n}"), &format!("a{n}"));
        turn.started_ms = began_ms;
        turn.ended_ms = began_ms + 900 + 10 * n as u64;
        turn.reply_id = Some(format!("chatcmpl-{n}"));
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
async fn they_share_entries_and_read_back_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let turns = two_sessions(20);
    let (ids, n_entries) = put(dir.path(), &turns);
    assert_eq!(n_entries, [2, 2, 1]);
    let log = open(dir.path());
    for (id, turn) in ids.iter().zip(&turns) {
        assert_eq!(&as_put(log.get(*id).await.unwrap().unwrap()), turn);
        let reply_id = turn.reply_id.as_deref().unwrap();
        assert_eq!(log.by_reply(reply_id).await.unwrap(), [*id]);
    }
    assert!(log.by_reply("chatcmpl-20").await.unwrap().is_empty());
    let newest_first: Vec<TurnId> = ids.iter().rev().copied().collect();
    assert_eq!(listed(&log, None).await, newest_first);
    let last = log.last_main_ms().await.unwrap();
    assert_eq!(last, turns.last().map(|turn| turn.ended_ms));
    let chains = log.recent_chains(99).await.unwrap();
    assert_eq!(chains.len(), 20);

    // The session goes on behind them.
    let next = two_sessions(21).pop().unwrap();
    let id = log.append(next).await.unwrap();
    assert_eq!(id, keys::id(1, 10));
    let back = log.get(id).await.unwrap().unwrap();
    assert_eq!(back.parent, Some(keys::id(1, 9)));
}

#[tokio::test]
async fn as_many_as_have_waited_long_are_listed_in_order() {
    let dir = tempfile::tempdir().unwrap();
    // Three seconds, of which an entry spans one.
    let (ids, n_entries) = put(dir.path(), &two_sessions(300));
    assert!(n_entries[0] < 20 && n_entries[1] < 20, "{n_entries:?}");
    assert_eq!(n_entries[2], 3);
    let log = open(dir.path());
    let newest_first: Vec<TurnId> = ids.iter().rev().copied().collect();
    assert_eq!(listed(&log, None).await, newest_first);
}

/// A flush that fails may have flushed: the transaction is written again.
#[test]
fn those_that_are_there_already_are_found_however_many() {
    let dir = tempfile::tempdir().unwrap();
    let turns = two_sessions(60);
    let first = put(dir.path(), &turns[..40]);
    let (again, _) = put_with(dir.path(), &turns, 80);
    assert_eq!(again[..40], first.0);
    let mut ids = again;
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 60);
}

#[tokio::test]
async fn each_is_moved_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let (ids, _) = put(dir.path(), &two_sessions(12));
    let log = open(dir.path());
    let agent = "main".parse().unwrap();
    let mut captured = ids.clone();
    captured.sort_unstable();
    let mut judged = Vec::new();
    for seq in [3, 0, 5, 4, 1, 2] {
        let moved = keys::id(1, seq);
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
            listed.reverse();
            assert_eq!(&listed, expected);
        }
    }
    let all = log.session_turns(&agent, &"a".parse().unwrap()).await;
    let states = all.unwrap().into_iter().map(|turn| turn.state);
    assert!(states.eq([const { TurnState::Judged }; 6]));
}

#[test]
fn several_are_moved_in_one_transaction() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), &two_sessions(12));
    let (opened, _) = open_store(dir.path(), &TurnsConfig::default(), OnDamage::Fail).unwrap();
    let (reader, mut cache, mut batch) = (opened.reader, Cache::default(), Batch::default());
    let agent = "main".parse().unwrap();
    for seq in [3, 2, 4] {
        let judge = |txn: &mut Txn<'_>| state::judge(txn, keys::id(1, seq), &verdict(Score::Good));
        let judged = operate(&reader, &mut cache, &mut batch, judge).unwrap();
        assert!(judged.unwrap());
    }
    finish(&reader, &mut cache, &mut batch).unwrap();
    reader.store.apply(&batch).unwrap();
    let in_state = |kind| {
        let ids = index::under(&reader, &keys::index_prefix(kind, &agent), None);
        let seqs = ids.map(Result::unwrap).filter(|id| id.session == 1);
        seqs.map(|id| id.seq).collect::<Vec<_>>()
    };
    assert_eq!(in_state(StateKind::Judged), [2, 3, 4]);
    assert_eq!(in_state(StateKind::Captured), [0, 1, 5]);
}

#[tokio::test]
async fn one_that_was_cut_stays_alone_and_another_try_takes_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let mut turns = two_sessions(8);
    for turn in &mut turns {
        turn.session = "a".parse().unwrap();
    }
    turns[7].end = StreamEnd::Cut;
    let mut again = turns[7].clone();
    again.end = StreamEnd::Complete;
    again.reply_id = Some("chatcmpl-again".to_owned());
    again.started_ms = again.ended_ms;
    again.ended_ms += 40;
    turns.push(again);
    let (ids, n_entries) = put(dir.path(), &turns);
    assert_eq!(ids[8], ids[7]);
    assert_eq!(n_entries, [2, 2, 2]);
    turns.remove(7);
    let log = open(dir.path());
    for (id, turn) in ids.iter().zip(&turns) {
        assert_eq!(&as_put(log.get(*id).await.unwrap().unwrap()), turn);
    }
    let newest_first: Vec<TurnId> = ids[..8].iter().rev().copied().collect();
    assert_eq!(listed(&log, None).await, newest_first);
}
