//! Tests of deleting and of what remains.

use metaclaw_chat::{AgentId, Score, SessionId, TurnId, Verdict};

use super::kit::{Client, as_put, new_log, open, step, trained, verdict};
use crate::{
    StateKind, Tokens, TurnFilter, TurnLog, TurnState, keys,
    store::{Store, StoreSource as _, Table},
};

fn agent() -> AgentId {
    "main".parse().unwrap()
}

fn session(name: &str) -> SessionId {
    name.parse().unwrap()
}

fn tokens(n: u32) -> Tokens {
    Tokens {
        prompt_ids: (0..n).collect(),
        ids: vec![n],
        logprobs: vec![-0.5],
        ..Tokens::default()
    }
}

/// Returns the number of keys of a table.
async fn n_keys(log: &TurnLog, table: Table) -> usize {
    let count = move |store: &Store| Ok(store.range(table, keys::under(&[])).count());
    log.read(count).await.unwrap()
}

#[tokio::test]
async fn a_session_goes_with_all_that_it_alone_holds() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    let shared = "What all are told. ".repeat(200);
    let own = "What one alone is told. ".repeat(400);
    let mut kept = Vec::new();
    for name in ["a", "b"] {
        let mut client = Client::new(name, &shared);
        for n in 0..3 {
            let said = if name == "b" {
                own.clone()
            } else {
                "q".repeat(9)
            };
            let turn = client.turn(&format!("{n} {said}"), "an answer");
            let id = log.put(turn.clone()).await;
            log.add_tokens(id, tokens(n)).await.unwrap();
            log.judge(id, verdict(Score::Good)).await.unwrap();
            if name == "a" {
                kept.push((id, turn));
            }
        }
    }
    let before = log.funnel(None).await.unwrap();
    assert_eq!(log.forget(&agent(), &session("b")).await.unwrap(), 3);
    assert_eq!(log.forget(&agent(), &session("b")).await.unwrap(), 0);
    assert_eq!(log.forget(&agent(), &session("nobody's")).await.unwrap(), 0);
    for again in 0..2 {
        for (id, turn) in &kept {
            let mut back = log.turn(*id).await;
            back.tokens = None;
            assert_eq!(&as_put(back), turn);
        }
        assert_eq!(log.get(TurnId { session: 2, seq: 0 }).await.unwrap(), None);
        assert_eq!(log.list(TurnFilter::default()).await.unwrap().len(), 3);
        let judged = log.in_state(&agent(), StateKind::Judged).await.unwrap();
        assert_eq!(judged, kept.iter().map(|(id, _)| *id).collect::<Vec<_>>());
        assert_eq!(log.sessions().await.unwrap().len(), 1);
        // Data of the other session: its system prompt, its setup, its tools, and their users.
        let of_one = (
            n_keys(&log, Table::Texts).await,
            n_keys(&log, Table::TextUsers).await,
        );
        assert_eq!(of_one, (3, 6));
        for table in [Table::Tokens, Table::Verdicts, Table::States, Table::Turns] {
            assert_eq!(n_keys(&log, table).await, 3, "{table:?}");
        }
        let mut after = log.funnel(None).await.unwrap();
        assert_eq!(std::mem::take(&mut after.forgotten), 3);
        assert_eq!(after, before, "the counts outlive the text");
        if again == 0 {
            log.close().await;
            log = open(dir.path());
        }
    }
    // The number is not used again, even after the last session was deleted.
    let id = log.append(Client::new("b", &shared).turn("q", "a")).await;
    assert_eq!(id.unwrap(), TurnId { session: 3, seq: 0 });
}

#[tokio::test]
async fn what_ended_long_ago_is_forgotten() {
    let (_dir, log) = new_log();
    for (name, later) in [("old", 0), ("new", 90_000)] {
        let mut client = Client::new(name, "sys");
        client.now_ms += later;
        log.put(client.turn("q", "a")).await;
    }
    let before_ms = Client::new("", "").now_ms + 60_000;
    // The clock was behind when this one was written, after a turn that is young.
    let mut behind = Client::new("behind", "sys");
    behind.now_ms -= 1_000_000;
    log.put(behind.turn("q", "a")).await;
    // The clock was ahead, which says nothing about the turns that were written then.
    let mut ahead = Client::new("ahead", "sys");
    ahead.now_ms += 900_000;
    log.put(ahead.turn("q", "a")).await;
    let now_ms = before_ms + 60_000;
    assert_eq!(log.forget_before(before_ms, now_ms).await.unwrap(), 1);
    let left = log.sessions().await.unwrap();
    let left: Vec<_> = left.iter().map(|it| it.1.session.clone()).collect();
    assert_eq!(left, ["new", "behind", "ahead"].map(session));
    // Without a young turn before it, it is old by all that the log says.
    assert_eq!(log.forget_before(now_ms, now_ms).await.unwrap(), 2);
}

#[tokio::test]
async fn a_step_ends_though_a_turn_of_it_was_forgotten() {
    let (_dir, log) = new_log();
    let mut turns = Vec::new();
    for name in ["a", "b"] {
        let id = log.append(Client::new(name, "sys").turn("q", "a")).await;
        turns.push(id.unwrap());
        log.judge(turns[turns.len() - 1], verdict(Score::Good))
            .await
            .unwrap();
    }
    log.take(step(1, &turns)).await.unwrap();
    log.forget(&agent(), &session("b")).await.unwrap();
    log.finish_step(&agent(), 1, trained("main-1"))
        .await
        .unwrap();
    let trained = log.in_state(&agent(), StateKind::Trained).await.unwrap();
    assert_eq!(trained, turns[..1]);
    let funnel = log.funnel(None).await.unwrap();
    assert_eq!((funnel.taken, funnel.trained, funnel.forgotten), (0, 1, 1));
}

#[tokio::test]
async fn a_masked_text_is_gone_with_the_ids_that_would_tell_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = open(dir.path());
    let mut client = Client::new("s", "sys");
    let mut ids = Vec::new();
    let long = format!("{} the key is sk-secret", "so long ".repeat(300));
    for said in ["hello", &long, "thanks", "sk-secret again"] {
        let id = log.put(client.turn(said, "an answer")).await;
        let n = u32::try_from(ids.len()).unwrap();
        log.add_tokens(id, tokens(n)).await.unwrap();
        ids.push(id);
    }
    let mask = |text: &str| {
        let is_secret = text.contains("sk-secret");
        is_secret.then(|| text.replace("sk-secret", "[key]"))
    };
    let n_masked = log
        .mask(&agent(), &session("s"), Box::new(mask))
        .await
        .unwrap();
    assert_eq!(n_masked, 3);
    for again in 0..2 {
        assert!(!log.exported().await.contains("sk-secret"));
        assert!(log.exported().await.contains("the key is [key]"));
        for (n, id) in ids.iter().enumerate() {
            let turn = log.turn(*id).await;
            assert_eq!((turn.meta.masked, turn.tokens.is_none()), (n > 0, n > 0));
            assert_eq!(turn.request.messages.len(), 2 + 2 * n);
        }
        // The setup, the tools, and the text that replaced the long one.
        assert_eq!(n_keys(&log, Table::Texts).await, 3);
        if again == 0 {
            log.close().await;
            log = open(dir.path());
        }
    }
    assert!(!log.add_tokens(ids[1], tokens(1)).await.unwrap());
    assert_eq!(
        log.mask(&agent(), &session("s"), Box::new(mask))
            .await
            .unwrap(),
        0
    );

    // This turn's text was masked before it was handed in.
    let mut turn = client.turn("it was [key]", "an answer");
    turn.tokens = Some(tokens(9));
    turn.meta.masked = true;
    let id = log.put(turn).await;
    let turn = log.turn(id).await;
    assert!(turn.meta.masked && turn.tokens.is_none());
    assert_eq!(turn.state, TurnState::Captured);
}

/// Returns whether some bytes are in a file of a folder.
fn lie_in(dir: &std::path::Path, bytes: &[u8]) -> bool {
    std::fs::read_dir(dir).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return lie_in(&path, bytes);
        }
        let file = std::fs::read(&path).unwrap();
        memchr::memmem::find(&file, bytes).is_some()
    })
}

#[tokio::test]
async fn what_was_forgotten_is_gone_from_the_disk_once_the_log_is_written_anew() {
    let (dir, log) = new_log();
    let mut ids = Vec::new();
    for (name, text) in [("a", "a secret"), ("b", "no secret")] {
        let mut client = Client::new(name, "You are kind.");
        ids.push(log.put(client.turn(text, "Yes.")).await);
    }
    let key = keys::turn(ids[0]);
    let stored = move |store: &Store| Ok(store.get(Table::Turns, &key)?.unwrap().to_vec());
    let stored = log.read(stored).await.unwrap();
    log.forget(&agent(), &session("a")).await.unwrap();
    assert!(lie_in(dir.path(), &stored), "sled keeps what was removed");
    log.compact().await.unwrap();
    assert!(!lie_in(dir.path(), &stored));
    assert!(!log.exported().await.contains("a secret"));
    assert!(
        log.exported().await.contains("no secret"),
        "the other session is there"
    );
    let mut client = Client::new("c", "You are kind.");
    log.put(client.turn("after", "Yes.")).await;
    log.close().await;
    let log = open(dir.path());
    assert!(log.exported().await.contains("no secret") && log.exported().await.contains("after"));
    log.close().await;
}

#[tokio::test]
async fn a_kill_within_the_swap_loses_nothing() {
    let (dir, log) = new_log();
    let mut client = Client::new("a", "You are kind.");
    log.put(client.turn("kept", "Yes.")).await;
    log.close().await;
    let at = |name: &str| dir.path().join(name);
    // The two cases are after the first rename, and before it.
    for (has_old, is_moved) in [(true, true), (false, false)] {
        if is_moved {
            std::fs::rename(at("sled"), at("sled.new")).unwrap();
        } else {
            std::fs::create_dir(at("sled.new")).unwrap();
        }
        if has_old {
            std::fs::create_dir(at("sled.old")).unwrap();
        }
        let log = open(dir.path());
        assert!(log.exported().await.contains("kept"));
        log.close().await;
        assert!(!at("sled.new").exists() && !at("sled.old").exists());
    }
}

#[tokio::test]
async fn a_hint_is_masked_with_the_session_that_it_came_from() {
    let (_dir, log) = new_log();
    let turn = Client::new("s", "sys").turn("hello", "hi");
    let id = log.put(turn).await;
    let told = "Do not say sk-secret.".to_owned();
    let judged = Verdict {
        hint: Some(told.clone()),
        judge_hints: vec![told],
        ..verdict(Score::Bad)
    };
    log.judge(id, judged).await.unwrap();
    let mask = |text: &str| {
        text.contains("sk-secret")
            .then(|| text.replace("sk-secret", "[key]"))
    };
    log.mask(&agent(), &session("s"), Box::new(mask))
        .await
        .unwrap();
    let verdict = log.turn(id).await.verdict.unwrap();
    assert_eq!(verdict.hint.as_deref(), Some("Do not say [key]."));
    assert_eq!(verdict.judge_hints, ["Do not say [key]."]);
}
