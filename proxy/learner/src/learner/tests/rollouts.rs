//! Tests of learning from rollouts, and of the gate's test on held-out tasks.

use metaclaw_chat::{RolloutId, now_ms};
use metaclaw_turns::{Rollout, RolloutEnd, RolloutState};
use serde_json::json;

use super::*;
use crate::{GateTest, StepReport, WantedRollouts, testing::append_rollout};

/// Opens a rollout, has its agent talk, and closes it.
struct TestRollout<'a> {
    group: &'a str,
    attempt: u32,
    held_out: bool,
    adapter: Option<String>,
    /// The marks of its turns.
    marks: &'a [u32],
    /// None leaves it open.
    outcome: Option<f32>,
}

impl<'a> TestRollout<'a> {
    fn of(group: &'a str, attempt: u32, outcome: f32, marks: &'a [u32]) -> Self {
        Self {
            group,
            attempt,
            held_out: false,
            adapter: None,
            marks,
            outcome: Some(outcome),
        }
    }

    async fn run(self, rig: &Rig, world: &World, at: u64) {
        let rollout = Rollout {
            id: RolloutId::new(at, self.attempt),
            agent: AgentId::default_agent(),
            task: self.group.parse().unwrap(),
            group: format!("group {}", self.group).parse().unwrap(),
            group_size: 2,
            attempt: self.attempt,
            held_out: self.held_out,
            adapter: self.adapter.clone(),
            run: None,
            opened_by: None,
            key_hash: String::new(),
            opened_ms: now_ms(),
            deadline_ms: u64::MAX,
            state: RolloutState::Open,
        };
        rig.log.open_rollout(rollout.clone()).await.unwrap();
        let talk: Vec<Said> = self
            .marks
            .iter()
            .map(|mark| said(&format!("do {mark}"), "It is a short one.", *mark))
            .collect();
        append_rollout(&rollout, self.adapter.as_deref(), &rig.log, world, &talk).await;
        let Some(outcome) = self.outcome else { return };
        let end = RolloutEnd::Scored {
            outcome,
            steps: Vec::new(),
        };
        rig.log
            .close_rollout(&rollout.id, end, now_ms())
            .await
            .unwrap();
    }
}

/// Waits until the ids of all turns have come of which a step of rollouts would be.
async fn ready(rig: &Rig, n_rollouts: usize) {
    let is_ready = async || {
        let next = rig.learner.dry_run(None).await.unwrap();
        let of = next.first().and_then(|it| it.batch.rollouts);
        of.is_some_and(|it| it.n == n_rollouts)
    };
    rig.until("a step of rollouts", is_ready).await;
}

#[tokio::test]
async fn complete_groups_become_a_step_of_their_own() {
    let (dir, world) = (folder(), World::default());
    let rig = Rig::start(dir.path(), &world, config(&json!({}))).await;
    for (at, episode) in (0..).zip([
        TestRollout::of("a", 0, 1.0, &[10, 11]),
        TestRollout::of("a", 1, -1.0, &[20, 21]),
        TestRollout::of("same", 0, 1.0, &[30]),
        TestRollout::of("same", 1, 1.0, &[40]),
        TestRollout::of("half", 0, 1.0, &[50]),
        TestRollout {
            outcome: None,
            ..TestRollout::of("half", 1, 0.0, &[60])
        },
        TestRollout {
            held_out: true,
            ..TestRollout::of("kept", 0, 1.0, &[70])
        },
    ]) {
        episode.run(&rig, &world, at).await;
    }
    append(&rig.log, &world, "chat", &corrected_talk(9)).await;
    rig.judged(8).await;
    ready(&rig, 4).await;
    let dry = rig.learner.dry_run(None).await.unwrap();
    assert_eq!(
        (dry[0].n_turns, dry[0].samples[0].method.as_str()),
        (4, "rollouts")
    );
    let reports = rig.learner.train_now(None).await.unwrap();
    let [StepReport { batch, n_turns, .. }] = &reports[..] else {
        panic!("{reports:?}");
    };
    assert_eq!(
        world.passes(),
        [[10, 11, 20, 21]],
        "no chat, and each rollout in a row"
    );
    let rollouts = batch.rollouts.unwrap();
    assert_eq!((*n_turns, rollouts.n, rollouts.n_groups), (4, 4, 2));
    assert_eq!((rollouts.n_without_difference, rollouts.success), (1, 0.75));
    let spent = rig.log.funnel(None).await.unwrap().spent;
    assert_eq!(spent["no difference in the group"], 2, "{spent:?}");
    assert_eq!(spent["of a held-out task"], 1, "{spent:?}");
    // The other group waits, and the chat has its own step.
    let reports = rig.learner.train_now(None).await.unwrap();
    assert_eq!(reports.len(), 1);
    assert_eq!(world.passes()[1], [90]);
    assert!(reports[0].batch.rollouts.is_none());
    rig.stop().await;
}

/// Tries the held-out tasks as often as the gate wants them, with this outcome.
async fn runner(rig: &Rig, world: &World, outcome: f32) -> Vec<WantedRollouts> {
    let (agent, mut seen) = (AgentId::default_agent(), Vec::new());
    loop {
        let wanted = rig.learner.wanted_rollouts(&agent);
        if wanted.held_out > 0 && seen.last() != Some(&wanted) {
            for at in 0..8 {
                let (name, marks) = (format!("task {at}"), [900 + at]);
                let episode = TestRollout {
                    held_out: true,
                    adapter: wanted.adapter.clone(),
                    ..TestRollout::of(&name, 0, outcome, &marks)
                };
                let at = 1_000 * (1 + seen.len() as u64) + u64::from(at);
                episode.run(rig, world, at).await;
            }
            seen.push(wanted);
        }
        if rig.n(StateKind::Trained).await > 0
            || rig.learner.status().await.unwrap().agents[0]
                .declined
                .is_some()
        {
            return seen;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A step of one group whose adapter succeeds so on held-out tasks at which the base model always succeeds.
async fn gated(outcome: f32, tried_before: bool) -> (Vec<WantedRollouts>, StepReport) {
    let (dir, world) = (folder(), World::default());
    let rig = Rig::start(dir.path(), &world, config(&json!({}))).await;
    rig.learner.wanted_rollouts(&AgentId::default_agent());
    for at in 0..8 {
        let (name, marks) = (format!("task {at}"), [500 + at]);
        let episode = TestRollout {
            held_out: true,
            adapter: (!tried_before).then(|| "older".to_owned()),
            ..TestRollout::of(&name, 0, 1.0, &marks)
        };
        episode.run(&rig, &world, u64::from(at)).await;
    }
    TestRollout::of("a", 0, 1.0, &[10])
        .run(&rig, &world, 100)
        .await;
    TestRollout::of("a", 1, -1.0, &[20])
        .run(&rig, &world, 101)
        .await;
    ready(&rig, 2).await;
    let (reports, wanted) =
        tokio::join!(rig.learner.train_now(None), runner(&rig, &world, outcome));
    let report = reports.unwrap().remove(0);
    rig.stop().await;
    (wanted, report)
}

fn of_tasks(report: &StepReport) -> &GateTest {
    let tests = &report.gate.as_ref().unwrap().tests;
    let names: Vec<&str> = tests.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names.first(), Some(&"replies"));
    assert!(
        names.contains(&"capability") && names.contains(&"tools"),
        "{names:?}"
    );
    assert!(
        tests[0].passed.is_none(),
        "nothing is known of its chats: {tests:?}"
    );
    tests.iter().find(|it| it.name == "tasks").unwrap()
}

#[tokio::test]
async fn an_adapter_that_succeeds_less_at_held_out_tasks_is_declined() {
    let (wanted, report) = gated(-1.0, true).await;
    let candidate = Some(report.adapter.clone());
    assert_eq!(
        wanted,
        [WantedRollouts {
            adapter: candidate,
            held_out: 8
        }]
    );
    let test = of_tasks(&report);
    assert_eq!((test.passed, test.value), (Some(false), Some(-1.0)));
    assert!(!report.serves);
}

#[tokio::test]
async fn one_that_succeeds_as_often_serves_and_what_served_is_tried_first_if_nobody_has() {
    let (wanted, report) = gated(1.0, false).await;
    let adapters: Vec<_> = wanted.iter().map(|it| it.adapter.clone()).collect();
    assert_eq!(adapters, [None, Some(report.adapter.clone())]);
    let test = of_tasks(&report);
    assert_eq!(
        (test.passed, test.value),
        (Some(true), Some(0.0)),
        "{test:?}"
    );
    assert!(report.serves);
}

#[tokio::test]
async fn without_a_runner_the_test_says_so() {
    let (dir, world) = (folder(), World::default());
    let rig = Rig::start(dir.path(), &world, config(&json!({}))).await;
    TestRollout::of("a", 0, 1.0, &[10])
        .run(&rig, &world, 100)
        .await;
    TestRollout::of("a", 1, -1.0, &[20])
        .run(&rig, &world, 101)
        .await;
    ready(&rig, 2).await;
    let report = rig.learner.train_now(None).await.unwrap().remove(0);
    let test = of_tasks(&report);
    assert!(
        test.passed.is_none() && test.why.contains("no program asks"),
        "{}",
        test.why
    );
    assert!(report.serves);
    rig.stop().await;
}
