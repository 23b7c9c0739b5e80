//! What is asked of a judge model, by what its verdicts are used for.

use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

use futures_util::future::BoxFuture;
use metaclaw_chat::Message;
use metaclaw_reward::Rules;
use metaclaw_schedule::{Keyboard, Schedule};
use metaclaw_turns::{TurnLog, TurnsConfig};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    config::LearnerConfig,
    judge::{Ask, Judge},
    shared::Parts,
    testing::{World, append, corrected_talk},
};

/// Says always that it was good, and counts.
#[derive(Debug, Default)]
struct Kind(AtomicUsize);

impl Ask for Kind {
    fn ask<'a>(&'a self, _: &'a [Message]) -> BoxFuture<'a, Result<String, AskFailed>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok("verdict: +1".to_owned()) })
    }
}

/// The log of a talk of three turns, a judge model, and whoever shares them. Its owner is away.
struct Room {
    log: TurnLog,
    model: Arc<Kind>,
    shared: Shared,
}

impl Room {
    async fn new(dir: &Path, config: &serde_json::Value, trains: bool) -> Self {
        let log = TurnLog::open(dir, &TurnsConfig::default()).unwrap();
        let (world, model) = (World::default(), Arc::new(Kind::default()));
        append(&log, &world, "a", &corrected_talk(1)).await;
        let config: LearnerConfig = serde_json::from_value(config.clone()).unwrap();
        let at_once =
            serde_json::json!({"idle_minutes": 0, "sleep_start": "0:00", "sleep_end": "0:00"});
        let schedule = Schedule::local(serde_json::from_value(at_once).unwrap(), None);
        schedule.set_keyboard(Keyboard::Headless);
        let parts = Parts {
            judge: Judge::Model {
                rules: Rules::compile(&config.judge.rules).unwrap(),
                model: Arc::clone(&model) as Arc<dyn Ask>,
                votes: config.judge.votes,
            },
            config,
            log: log.clone(),
            backend: trains.then(|| Arc::new(world) as _),
            schedule,
            library: None,
            is_off: Arc::new(|_| false),
            evolver: None,
            on_swap: Arc::new(|_, _| ()),
        };
        let shared = Shared::new(parts, CancellationToken::new());
        Self { log, model, shared }
    }

    /// What is asked as the turns come, and how many then have a verdict.
    async fn as_they_come(&self) -> (usize, usize) {
        let agent = AgentId::default_agent();
        for id in followers_of(&self.shared, &agent).await.unwrap() {
            assert!(matches!(
                look(&self.shared, id, Why::Came).await,
                Ok(Looked::Done)
            ));
        }
        self.counts().await
    }

    /// The same once a step was asked for.
    async fn for_a_step(&self) -> (usize, usize) {
        judge_now(&self.shared, &AgentId::default_agent())
            .await
            .unwrap();
        self.counts().await
    }

    async fn counts(&self) -> (usize, usize) {
        let agent = AgentId::default_agent();
        let judged = self.log.in_state(&agent, StateKind::Judged).await;
        let n_asked = self.model.0.load(Ordering::Relaxed);
        (n_asked, judged.unwrap().len())
    }
}

#[tokio::test]
async fn nothing_is_asked_whose_verdict_nobody_would_use() {
    for (mode, trains, asked) in [
        ("rl", true, (4, 2)),
        ("rl", false, (0, 0)),
        ("auto", true, (4, 2)),
        ("auto", false, (0, 0)),
        ("skills_only", true, (0, 0)),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let room = Room::new(dir.path(), &serde_json::json!({"mode": mode}), trains).await;
        assert_eq!(room.as_they_come().await, asked, "{mode}, {trains}");
        room.log.close().await;
    }
}

/// Where no gate tests what would serve, `auto` trains when its owner asks: the votes are spent then, and once.
#[tokio::test]
async fn in_auto_a_step_that_is_asked_for_brings_the_verdicts() {
    let dir = tempfile::tempdir().unwrap();
    let off = serde_json::json!({"enabled": false});
    let auto = serde_json::json!({"mode": "auto", "gate": off, "judge": {"votes": 5}});
    let room = Room::new(dir.path(), &auto, true).await;
    assert_eq!(room.as_they_come().await, (0, 0));
    assert_eq!(
        room.for_a_step().await,
        (6, 2),
        "three votes decide of five"
    );
    assert_eq!(room.for_a_step().await, (6, 2));
    room.log.close().await;
}

/// What costs nothing is not put off.
#[tokio::test]
async fn in_auto_rules_judge_as_turns_come() {
    let dir = tempfile::tempdir().unwrap();
    let rules = serde_json::json!([{"on": "next", "pattern": "too long", "score": -1}]);
    let off = serde_json::json!({"enabled": false});
    let auto = serde_json::json!({"mode": "auto", "gate": off, "judge": {"rules": rules}});
    let room = Room::new(dir.path(), &auto, true).await;
    assert_eq!(room.as_they_come().await, (0, 1));
    room.log.close().await;
}
