//! Agents take turns: what one has to learn keeps no other waiting for longer than a few turns' teaching, or one step.

use std::fmt::Debug;

use metaclaw_chat::Score;
use serde_json::json;

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

    /// Waits until so many turns of an agent are judged so and have their ids.
    async fn ready(&self, agent: &AgentId, score: Score, n: usize) {
        let are_ready = async || {
            let mut n_ready = 0;
            for id in self.log.in_state(agent, StateKind::Judged).await.unwrap() {
                let turn = self.log.get(id).await.unwrap();
                let turn = turn.filter(|it| it.tokens.is_some());
                let verdict = turn.and_then(|turn| turn.verdict);
                n_ready += usize::from(verdict.is_some_and(|it| it.score == score));
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
    assert!(
        position(&events, "passed [110, 120]") < last.unwrap(),
        "{events:?}"
    );
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
