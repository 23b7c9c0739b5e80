//! Agents take turns: what one has to learn keeps no other waiting for longer than a few turns' teaching, or one step.
//!
//! Tests of when a step is made: on request, or while the owner is away.

use std::fmt::Debug;

use metaclaw_chat::Score;
use metaclaw_schedule::{Keyboard, Schedule};

use super::*;
use crate::testing::append_for;

fn work() -> AgentId {
    "work".parse().unwrap()
}

impl Rig {
    async fn talks(&self, agent: &AgentId, world: &World, numbers: &[u32]) {
        for number in numbers {
            let session = format!("s{number}");
            let talk = corrected_talk(*number);
            append_for(agent, &self.log, world, &session, &talk).await;
        }
    }

    async fn ready(&self, agent: &AgentId, score: Score, n: usize) {
        let are_ready = async || {
            let mut n_ready = 0;
            for id in self.log.in_state(agent, StateKind::Judged).await.unwrap() {
                let turn = self.log.get(id).await.unwrap();
                let turn = turn.filter(|turn| turn.tokens.is_some());
                let verdict = turn.and_then(|turn| turn.verdict);
                n_ready += usize::from(verdict.is_some_and(|verdict| verdict.score == score));
            }
            n_ready >= n
        };
        self.until("verdicts and ids", are_ready).await;
    }
}

fn position(events: &[impl AsRef<str> + Debug], of: &str) -> usize {
    let mut found = events.iter().map(AsRef::as_ref);
    let found = found.position(|event| event.ends_with(of));
    found.unwrap_or_else(|| panic!("no {of:?}: {events:?}"))
}

/// The teacher answered all turns of a step that was asked for before anything else was looked at.
#[tokio::test]
async fn a_step_that_is_asked_for_keeps_no_other_agents_waiting() {
    let (dir, world, own) = (folder(), World::default(), AgentId::default_agent());
    let mixed = config(&json!({"mode": "auto", "agents": {"work": {"mode": "rl"}}}));
    let rig = Rig::start(dir.path(), &world, mixed).await;
    rig.talks(&own, &world, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
        .await;
    rig.ready(&own, Score::Bad, 10).await;
    let draws = world.hold_draws();
    let asked = rig.learner.train_now(Some(own.clone()));
    let meanwhile = async {
        let has_begun = async || !world.events().is_empty();
        rig.until("the first draw", has_begun).await;
        rig.talks(&work(), &world, &[11, 12]).await;
        rig.ready(&work(), Score::Bad, 2).await;
        draws.add_permits(1_000);
    };
    let (reports, ()) = tokio::join!(asked, meanwhile);
    assert_eq!(reports.unwrap()[0].n_redo, 10);
    let events = world.events();
    let last = events
        .iter()
        .rposition(|event| event.starts_with("draws") && event.contains("question 10"));
    let is_so = position(&events, "passed [110, 120]") < last.unwrap();
    assert!(is_so, "{events:?}");
    rig.stop().await;
}

/// All batches that an agent had were trained before another's first.
#[tokio::test]
async fn agents_with_several_batches_take_turns() {
    let (dir, world, own) = (folder(), World::default(), AgentId::default_agent());
    let verdicts = |mode: &str| {
        let rl = json!({"method": "binary_rl"});
        config(&json!({"mode": mode, "rl": rl, "gate": {"enabled": false}}))
    };
    let rig = Rig::start(dir.path(), &world, verdicts("skills_only")).await;
    rig.talks(&own, &world, &[1, 2, 3]).await;
    rig.talks(&work(), &world, &[5]).await;
    for score in [Score::Bad, Score::Good] {
        rig.ready(&own, score, 3).await;
        rig.ready(&work(), score, 1).await;
    }
    rig.stop().await;
    let rig = Rig::start(dir.path(), &world, verdicts("rl")).await;
    assert!(rig.trained(6).await);
    let events = world.events();
    assert_eq!(position(&events, "passed [50, 51]"), 1, "{events:?}");
    rig.stop().await;
}

#[tokio::test]
async fn a_step_can_be_asked_for() {
    let (dir, world) = (folder(), World::default());
    let auto = json!({"mode": "auto", "gate": {"enabled": false}});
    let rig = Rig::start(dir.path(), &world, config(&auto)).await;
    assert_eq!(rig.learner.train_now(None).await, Ok(Vec::new()));
    rig.talk(&world, &[1, 2, 3]).await;
    rig.phase("it waits to be asked", |phase| {
        phase == Phase::AwaitingRequest
    })
    .await;
    assert_eq!(rig.n(StateKind::Trained).await, 0, "nobody asked");
    let reports = rig.learner.train_now(None).await.unwrap();
    // The step uses all samples, not only one batch.
    assert_eq!((reports.len(), reports[0].n_redo), (1, 3));
    rig.stop().await;
}

#[tokio::test]
async fn with_the_manual_trigger_no_mode_trains_by_itself() {
    let (dir, world) = (folder(), World::default());
    let manual = json!({"mode": "rl", "rl": {"manual_train_trigger": true}});
    let rig = Rig::start(dir.path(), &world, config(&manual)).await;
    rig.talk(&world, &[1, 2]).await;
    rig.phase("it waits to be asked", |phase| {
        phase == Phase::AwaitingRequest
    })
    .await;
    assert_eq!(rig.n(StateKind::Trained).await, 0, "nobody asked");
    assert_eq!(rig.learner.train_now(None).await.unwrap().len(), 1);
    rig.stop().await;
}

/// With a gate, a step begins when the owner is away, without a request.
#[tokio::test]
async fn in_auto_a_batch_waits_until_its_owner_is_away() {
    let (dir, world) = (folder(), World::default());
    let auto = json!({"mode": "auto"});
    let rig = Rig::start(dir.path(), &world, config(&auto)).await;
    rig.talk(&world, &[1, 2]).await;
    rig.phase("it waits for its owner to leave", |phase| {
        phase == Phase::AwaitingWindow
    })
    .await;
    assert_eq!(rig.n(StateKind::Trained).await, 0, "its owner chats");
    rig.stop().await;
}

/// A person who asks for something of the training task ends the pause.
#[tokio::test]
async fn in_auto_a_step_pauses_between_its_calls_while_its_owner_chats() {
    let (dir, world) = (folder(), World::default());
    let auto = config(&json!({"mode": "auto"}));
    let hours = json!({"idle_minutes": 0, "sleep_start": "0:00", "sleep_end": "0:00"});
    let schedule = Schedule::local(serde_json::from_value(hours).unwrap(), None);
    schedule.set_keyboard(Keyboard::Headless);
    let change = |parts| Parts {
        schedule,
        is_chatting: Arc::new(|| true),
        ..parts
    };
    let rig = Rig::start_changed(dir.path(), &world, auto, change).await;
    rig.talk(&world, &[1, 2]).await;
    rig.phase("it lets the chat go first", |phase| {
        matches!(phase, Phase::Paused { .. })
    })
    .await;
    assert_eq!(world.passes().len(), 0);
    rig.learner.train_now(None).await.unwrap();
    assert!(rig.trained(2).await);
    rig.stop().await;
}

#[tokio::test]
async fn what_costs_something_waits_until_its_owner_is_away() {
    let (dir, world) = (folder(), World::default());
    let auto = json!({"mode": "auto", "agents": {"busy": {"mode": "rl"}}});
    let rig = Rig::start(dir.path(), &world, config(&auto)).await;
    let (any, busy) = (AgentId::default_agent(), "busy".parse().unwrap());
    assert!(
        rig.learner.may_cost(&any).await.unwrap(),
        "the owner is away"
    );
    rig.talk(&world, &[1]).await;
    assert!(!rig.learner.may_cost(&any).await.unwrap());
    let is_so = rig.learner.may_cost(&busy).await.unwrap();
    assert!(is_so, "mode rl waits for nobody");
    let window = rig.learner.status().await.unwrap().window;
    let why = |window| match window {
        Window::Closed { why } => Some(why),
        Window::Open { .. } => None,
    };
    assert!(matches!(why(window), Some(Obstacle::Chatting { .. })));
    rig.stop().await;
}
