use std::sync::atomic::AtomicBool;

use metaclaw_turns::TurnsConfig;
use serde_json::json;

use super::*;
use crate::testing::parts;

/// How many seconds a step pauses, by mode, the length of the chat, and when a person asks for a step.
#[tokio::test(start_paused = true)]
async fn a_step_pauses_while_a_chat_is_running_and_goes_on_after() {
    let dir = tempfile::tempdir().unwrap();
    let log = TurnLog::open(dir.path(), &TurnsConfig::default()).unwrap();
    let agent = AgentId::default_agent();
    for (mode, chat, asked, expected) in [
        ("auto", 0, 9_000, 0),
        ("auto", 60, 9_000, 80),
        ("auto", 3_600, 9_000, 600),
        ("auto", 3_600, 30, 30),
        ("rl", 60, 9_000, 0),
    ] {
        let is_chatting = Arc::new(AtomicBool::new(chat > 0));
        let seen = Arc::clone(&is_chatting);
        let config = serde_json::from_value(json!({"mode": mode})).unwrap();
        let parts = Parts {
            is_chatting: Arc::new(move || seen.load(Ordering::Relaxed)),
            ..parts(config, &log)
        };
        let shared = Shared::new(parts, CancellationToken::new());
        let began = Instant::now();
        let talk = async {
            tokio::time::sleep(Duration::from_secs(chat)).await;
            is_chatting.store(false, Ordering::Relaxed);
        };
        let pause = async {
            shared.let_chats_go_first(&agent).await;
            assert_eq!(shared.status.read().phase, Phase::default());
            began.elapsed()
        };
        let ask = async {
            tokio::time::sleep(Duration::from_secs(asked)).await;
            Arc::clone(&shared.waiting)
        };
        let look = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            shared.status.read().phase
        };
        let (paused, phase, (), _asks) = tokio::join!(pause, look, talk, ask);
        let paused = paused.as_secs();
        assert!(
            (expected..=expected + 1).contains(&paused),
            "{mode} {chat}: {paused}"
        );
        let is_shown = matches!(phase, Phase::Paused { .. });
        assert_eq!(is_shown, expected > 0, "{mode} {chat}: {phase:?}");
    }
    log.close().await;
}

#[tokio::test]
async fn an_agent_is_locked_once_and_others_are_free() {
    let locks = AgentLocks::default();
    let [one, other]: [AgentId; 2] = ["one", "other"].map(|name| name.parse().unwrap());
    let held = locks.lock(&one).await;
    assert!(locks.try_lock(&one).is_none());
    assert!(locks.try_lock(&other).is_some());
    drop(held);
    assert!(locks.try_lock(&one).is_some());
}
