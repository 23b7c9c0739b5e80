//! Tests of restoring another log's turns: exported turns are restored completely, and once.

use std::{fs, path::Path};

use metaclaw_chat::{AgentId, Score, TurnId};
use proptest::prelude::*;

use super::{
    kit::{Client, open, step, trained, verdict},
    random::{asking, turn},
};
use crate::{
    DailyCounts, ExportedTurn, ImportOutcome, LogCounts, MAX_RESTORE, Restoring, SetAside,
    StreamEnd, Tokens, TurnFilter, TurnLog, TurnState, TurnsConfig,
};

/// Restores an export.
async fn restore(log: &TurnLog, export: &str) -> ImportOutcome {
    let mut restoring = Restoring::default();
    let (mut turns, mut counts) = (Vec::new(), LogCounts::default());
    for line in export.lines() {
        let line: ExportedTurn = serde_json::from_str(line).unwrap();
        counts = line.log_counts.unwrap_or(counts);
        turns.push(restoring.next(line.turn));
    }
    let mut sum = ImportOutcome::default();
    // Pieces have seven turns, so that a session is in several pieces.
    for piece in turns.chunks(7) {
        let outcome = log.restore(piece.to_vec()).await.unwrap();
        sum.n_new += outcome.n_new;
        sum.n_known += outcome.n_known;
    }
    log.raise_counts(counts).await.unwrap();
    sum
}

/// Returns everything that a log shows of itself.
async fn told(log: &TurnLog) -> String {
    let filter = TurnFilter {
        limit: 1_000,
        ..TurnFilter::default()
    };
    let list = log.list(filter).await.unwrap();
    let (funnel, days) = (
        log.funnel(None).await.unwrap(),
        log.statistics(0).await.unwrap(),
    );
    let lessons = log.lesson_counts(None).await.unwrap();
    let told = (list, funnel, days, lessons, log.agents().await.unwrap());
    serde_json::to_string_pretty(&told).unwrap()
}

/// Asserts that two texts are the same, and shows the first difference.
fn assert_same(one: &str, other: &str) {
    for (one, other) in one.lines().zip(other.lines()) {
        assert_eq!(one, other);
    }
    assert_eq!(one.len(), other.len());
}

/// Gives turns the states of a learner, according to numbers.
async fn learn(log: &TurnLog, ids: &[TurnId], fates: &[u8]) {
    let agent: AgentId = "main".parse().unwrap();
    let scores = [Score::Good, Score::Bad, Score::Unclear];
    let mut taken = Vec::new();
    for (id, fate) in ids.iter().zip(fates) {
        let mut judged = verdict(scores[usize::from(fate % 3)]);
        judged.hint = (fate % 2 == 0).then(|| format!("hint {fate}"));
        judged.at_session_end = fate % 7 == 0;
        judged.weight = f32::from(*fate) / 300.0;
        match fate % 6 {
            0 => continue,
            1 => drop(log.spend(*id, "of no use").await.unwrap()),
            _ => drop(log.judge(*id, judged.clone()).await.unwrap()),
        }
        match fate % 11 {
            0 => drop(log.hold_out(*id).await.unwrap()),
            1 => drop(log.overrule(*id, verdict(Score::Good)).await.unwrap()),
            2 => drop(log.spend(*id, "too old").await.unwrap()),
            _ => {}
        }
        // A turn that was sent twice occurs twice, and its second state may differ.
        taken.retain(|it| it != id);
        let turn = log.turn(*id).await;
        if turn.state == TurnState::Judged && fate % 5 == 0 {
            taken.push(*id);
        }
    }
    if !taken.is_empty() {
        log.take(step(1, &taken)).await.unwrap();
        log.finish_step(&agent, 1, trained("a")).await.unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_exported_comes_back_as_it_was(
        asked in prop::collection::vec(asking(), 1..24),
        fates in prop::collection::vec(any::<u8>(), 24),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let log = open(from.path());
            let mut clients = [Client::new("one", "sys"), Client::new("two", "sys")];
            let mut ids = Vec::new();
            for asking in &asked {
                let turn = turn(&mut clients[usize::from(asking.session)], asking);
                ids.push(log.put(turn).await);
            }
            learn(&log, &ids, &fates).await;
            let agent = "main".parse().unwrap();
            let learned = DailyCounts { lessons: 1, learning_tokens: 40, ..DailyCounts::default() };
            log.count(&agent, clients[0].now_ms, learned).await.unwrap();
            let (export, before) = (log.exported().await, told(&log).await);
            log.close().await;

            let log = open(to.path());
            let outcome = restore(&log, &export).await;
            assert_eq!(outcome, ImportOutcome { n_new: export.lines().count(), n_known: 0 });
            assert_same(&told(&log).await, &before);
            assert_same(&log.exported().await, &export);
            // The restore is repeated, and nothing occurs twice.
            let outcome = restore(&log, &export).await;
            assert_eq!(outcome, ImportOutcome { n_new: 0, n_known: export.lines().count() });
            assert_same(&log.exported().await, &export);
            log.close().await;
            let log = open(to.path());
            assert_same(&told(&log).await, &before);
            log.close().await;
        });
    }
}

/// Session numbers, deleted turns, replaced tries and infinities must not spoil the result.
#[tokio::test]
async fn what_no_turn_tells_comes_back_too() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let log = open(from.path());
    let agent: AgentId = "main".parse().unwrap();
    let mut gone = Client::new("gone", "sys");
    log.put(gone.turn("q", "a")).await;
    let mut first = Client::new("first", "sys");
    first.push(metaclaw_chat::Message::user("one"));
    let mut broken = first.request("");
    broken.meta.end = StreamEnd::Cut;
    broken.reply = None;
    log.put(broken).await;
    let mut second = Client::new("second", "sys");
    second.now_ms += 100;
    log.put(second.turn("two", "b")).await;
    // Another try replaces the first one. The second session's turn came before it.
    let mut turn = first.request("a");
    turn.tokens = Some(Tokens {
        prompt_ids: vec![1],
        ids: vec![2, 3],
        logprobs: vec![-0.1, f32::NEG_INFINITY],
        sampling_logprobs: vec![f32::NEG_INFINITY, -0.3],
        base: "demo".to_owned(),
        ..Tokens::default()
    });
    let id = log.put(turn).await;
    log.judge(id, verdict(Score::Bad)).await.unwrap();
    log.take(step(1, &[id])).await.unwrap();
    log.forget(&agent, &"gone".parse().unwrap()).await.unwrap();
    // Without token ids, `previous_response_id` shows what it continues.
    let mut third = Client::new("third", "sys");
    let mut turn = third.turn("three", "c");
    turn.meta.reply_id = Some("resp-1".to_owned());
    log.put(turn).await;
    let mut onward = Client::new("third", "sys");
    onward.messages.clear();
    onward.now_ms = third.now_ms;
    let mut turn = onward.turn("and then?", "d");
    turn.continues = Some("resp-1".to_owned());
    log.put(turn).await;
    let (export, before) = (log.exported().await, told(&log).await);
    assert!(before.contains(r#""forgotten": 1"#) && before.contains(r#""taken": 1"#));

    let other = open(to.path());
    restore(&other, &export).await;
    let free = |text: &str| text.replace(r#""taken": 1"#, r#""taken": 0"#);
    let told_there = told(&other).await;
    let states = before.replace("\"is\": \"taken\",\n        \"n\": 1", "\"is\": \"judged\"");
    assert_same(&told_there, &free(&states));
    let restored = other.turn(id).await;
    let mut expected = log.turn(id).await;
    // The step that had taken it belongs to the other log.
    assert_eq!(expected.state, TurnState::Taken { n: 1 });
    expected.state = TurnState::Judged;
    assert_eq!(restored, expected);
    // A new session gets an unused number.
    let id = other.put(Client::new("new", "sys").turn("q", "a")).await;
    assert_eq!(id.session, 5);
    let many = vec![Restoring::default().next(restored); MAX_RESTORE + 1];
    assert!(other.restore(many).await.is_err());
}

async fn fill(dir: &Path, session: &str, from_ms: u64, n: usize) -> Vec<TurnId> {
    let log = open(dir);
    let mut client = Client::new(session, "sys");
    client.now_ms = from_ms;
    let mut ids = Vec::new();
    for n in 0..n {
        let id = log.put(client.turn(&format!("{session} {n}"), "a")).await;
        log.judge(id, verdict(Score::Good)).await.unwrap();
        ids.push(id);
    }
    log.close().await;
    ids
}

/// This is what `metaclaw doctor --fix` does: a log that was moved aside is restored into the one that began after it.
#[tokio::test]
async fn a_log_that_was_set_aside_comes_back_in_its_time_and_once() {
    const DAY_MS: u64 = 24 * 3_600 * 1_000;
    let dir = tempfile::tempdir().unwrap();
    let early = 1_760_000_000_000;
    fill(dir.path(), "old", early, 5).await;
    fill(dir.path(), "goes on", early + DAY_MS, 3).await;
    let aside = dir.path().join("damaged-1760000000000");
    fs::rename(dir.path().join("sled"), &aside).unwrap();
    for file in ["FORMAT", "flushed"] {
        fs::remove_file(dir.path().join(file)).unwrap();
    }
    fill(dir.path(), "goes on", early + 3 * DAY_MS, 2).await;
    fill(dir.path(), "new", early + 4 * DAY_MS, 2).await;

    let found = SetAside::find(dir.path()).unwrap();
    assert_eq!(
        (&found.databases[..], found.parts.len()),
        (&[aside.clone()][..], 0)
    );
    let db = fs::read(aside.join("db")).unwrap();
    let log = open(dir.path());
    for n_lacking in [8, 0] {
        let old = TurnLog::open_aside(&aside, &TurnsConfig::default()).unwrap();
        let export = old.exported().await;
        old.close().await;
        let fingerprints = export.lines().map(|line| {
            let line: ExportedTurn = serde_json::from_str(line).unwrap();
            line.turn.fingerprint()
        });
        let lacks = log.lacks(fingerprints.collect()).await.unwrap();
        assert_eq!(lacks.iter().filter(|lacks| **lacks).count(), n_lacking);
        let outcome = restore(&log, &export).await;
        assert_eq!((outcome.n_new, outcome.n_known), (n_lacking, 8 - n_lacking));
    }
    let listed = log.list(TurnFilter::default()).await.unwrap();
    let mut asked: Vec<_> = listed.iter().filter_map(|it| it.asked.as_deref()).collect();
    asked.reverse();
    let expected = [
        "old 0",
        "old 1",
        "old 2",
        "old 3",
        "old 4",
        "goes on 0",
        "goes on 1",
        "goes on 2",
        "goes on 0",
        "goes on 1",
        "new 0",
        "new 1",
    ];
    assert_eq!(asked, expected);
    assert!(listed.iter().all(|it| it.state == TurnState::Judged));
    let funnel = log.funnel(None).await.unwrap();
    assert_eq!((funnel.turns, funnel.judged), (12, 12));
    let good: u64 = log
        .statistics(0)
        .await
        .unwrap()
        .iter()
        .map(|it| it.counts.good)
        .sum();
    assert_eq!(good, 12);
    // A copy was read, and it is deleted.
    assert!(fs::read(aside.join("db")).unwrap() == db);
    assert!(!dir.path().join("copy-to-read").exists());
    log.close().await;
}

#[tokio::test]
async fn a_folder_that_is_no_log_of_ours_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let aside = dir.path().join("format-3-1");
    let db = sled::open(&aside).unwrap();
    db.open_tree("blobs").unwrap().insert(b"a", b"b").unwrap();
    drop(db);
    crate::store::Store::wait_until_free(&aside);
    let garbage = dir.path().join("damaged-2");
    fs::create_dir(&garbage).unwrap();
    fs::write(garbage.join("db"), vec![0xAB; 700_000]).unwrap();
    fs::write(garbage.join("snap.0000000000000001"), [1; 100]).unwrap();
    fs::create_dir(dir.path().join("damaged-empty")).unwrap();
    let found = SetAside::find(dir.path()).unwrap();
    assert_eq!(found.databases, [aside.clone(), garbage.clone()]);
    let config = TurnsConfig::default();
    let error = TurnLog::open_aside(&aside, &config)
        .unwrap_err()
        .to_string();
    assert!(error.contains("the tables blobs"), "{error}");
    match TurnLog::open_aside(&garbage, &config) {
        Ok(empty) => {
            assert_eq!(empty.exported().await, "");
            empty.close().await;
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    assert!(!dir.path().join("copy-to-read").exists());
}
