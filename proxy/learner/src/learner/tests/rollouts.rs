//! Tests of learning from rollouts, and of the gate's test on held-out tasks.
//!
//! Looking at the next step changes nothing, and the step is what was shown.
//!
//! Tests of methods that train on a turn's own ids, with a training server that returns log-probabilities.

use metaclaw_chat::{RolloutId, TurnId, now_ms};
use metaclaw_trainer_api::Datum;
use metaclaw_turns::{Rollout, RolloutEnd, RolloutState};

use super::*;
use crate::{
    GateTest, StepReport, WantedRollouts,
    testing::{END, append_rollout},
};

struct TestRollout<'a> {
    group: &'a str,
    attempt: u32,
    held_out: bool,
    adapter: Option<String>,
    marks: &'a [u32],
    /// None leaves it open.
    outcome: Option<f32>,
}

impl<'a> TestRollout<'a> {
    fn new(group: &'a str, attempt: u32, outcome: f32, marks: &'a [u32]) -> Self {
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
        let of = next.first().and_then(|figures| figures.batch.rollouts);
        of.is_some_and(|stats| stats.n == n_rollouts)
    };
    rig.until("a step of rollouts", is_ready).await;
}

#[tokio::test]
async fn complete_groups_become_a_step_of_their_own() {
    let (_dir, world, rig) = begin(usual()).await;
    for (at, episode) in (0..).zip([
        TestRollout::new("a", 0, 1.0, &[10, 11]),
        TestRollout::new("a", 1, -1.0, &[20, 21]),
        TestRollout::new("same", 0, 1.0, &[30]),
        TestRollout::new("same", 1, 1.0, &[40]),
        TestRollout::new("half", 0, 1.0, &[50]),
        TestRollout {
            outcome: None,
            ..TestRollout::new("half", 1, 0.0, &[60])
        },
        TestRollout {
            held_out: true,
            ..TestRollout::new("kept", 0, 1.0, &[70])
        },
    ]) {
        episode.run(&rig, &world, at).await;
    }
    rig.talk(&world, &[9]).await;
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
    // No rollout is ready: one group waits for another, and the other was excluded.
    let is_ready = async || {
        let status = rig.learner.status().await.unwrap();
        status.agents[0].n_binary_rl == 0
    };
    rig.until("what is ready", is_ready).await;
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
                    ..TestRollout::new(&name, 0, outcome, &marks)
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
    let (_dir, world, rig) = begin(usual()).await;
    rig.learner.wanted_rollouts(&AgentId::default_agent());
    for at in 0..8 {
        let (name, marks) = (format!("task {at}"), [500 + at]);
        let episode = TestRollout {
            held_out: true,
            adapter: (!tried_before).then(|| "older".to_owned()),
            ..TestRollout::new(&name, 0, 1.0, &marks)
        };
        episode.run(&rig, &world, u64::from(at)).await;
    }
    TestRollout::new("a", 0, 1.0, &[10])
        .run(&rig, &world, 100)
        .await;
    TestRollout::new("a", 1, -1.0, &[20])
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
    let names: Vec<&str> = tests.iter().map(|test| test.name.as_str()).collect();
    assert_eq!(names.first(), Some(&"replies"));
    let is_so = names.contains(&"capability") && names.contains(&"tools");
    assert!(is_so, "{names:?}");
    let is_so = tests[0].passed.is_none();
    assert!(is_so, "nothing is known of its chats: {tests:?}");
    tests.iter().find(|test| test.name == "tasks").unwrap()
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
    let adapters: Vec<_> = wanted.iter().map(|wanted| wanted.adapter.clone()).collect();
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
    let (_dir, world, rig) = begin(usual()).await;
    TestRollout::new("a", 0, 1.0, &[10])
        .run(&rig, &world, 100)
        .await;
    TestRollout::new("a", 1, -1.0, &[20])
        .run(&rig, &world, 101)
        .await;
    ready(&rig, 2).await;
    let report = rig.learner.train_now(None).await.unwrap().remove(0);
    let test = of_tasks(&report);
    let is_so = test.passed.is_none() && test.why.contains("no program asks");
    assert!(is_so, "{}", test.why);
    assert!(report.serves);
    rig.stop().await;
}

/// What a talk begins with, and what the teacher says to it.
const QUESTION: &str = "question 0";
const REPLY: &str = "question 0 is answered.";

/// A learner whose turns are judged and wait for a batch that is never full.
async fn waiting(dir: &Path, world: &World, rl: Value) -> Rig {
    let config = config(&json!({"rl": rl}));
    let rig = Rig::start(dir, world, config).await;
    for n in 0..2 {
        append(&rig.log, world, &format!("s{n}"), &corrected_talk(n)).await;
    }
    let what = "two turns of each talk are judged and have their ids";
    rig.until(what, async || are_ready(&rig, 4).await).await;
    rig
}

/// Whether `n` turns are judged, wait for a step and have their ids.
async fn are_ready(rig: &Rig, n: usize) -> bool {
    let agent = AgentId::default_agent();
    let judged = rig.log.in_state(&agent, StateKind::Judged).await.unwrap();
    for id in &judged {
        let turn = rig.log.get(*id).await.unwrap();
        if turn.is_none_or(|turn| turn.tokens.is_none()) {
            return false;
        }
    }
    let funnel = rig.log.funnel(None).await.unwrap();
    judged.len() == n && funnel.with_ids == funnel.turns
}

/// Has the teacher answer what waits, in a step that the trainer refuses.
async fn answered(rig: &Rig, world: &World) {
    world.set_max_rank(2);
    let refused = rig.learner.train_now(None).await;
    let is_so = matches!(refused, Err(TrainError::Refused { .. }));
    assert!(is_so, "{refused:?}");
    world.set_max_rank(u32::MAX);
}

#[tokio::test]
async fn a_dry_run_touches_nothing_and_the_step_is_what_it_said() {
    let (dir, world) = (folder(), World::default());
    let rl = json!({"method": "redo+binary_rl", "batch_size": 50, "learning_rate": 3e-4});
    let rig = waiting(dir.path(), &world, rl).await;
    let before = rig.log.funnel(None).await.unwrap();
    let shown = rig.learner.dry_run(None).await.unwrap().remove(0);
    assert_eq!(rig.log.funnel(None).await.unwrap(), before);
    assert!(rig.log.steps(&shown.agent).await.unwrap().is_empty());
    assert_eq!((world.n_runs(), world.passes().len()), (0, 0));
    assert!(world.checkpoints().is_empty());
    // What failed waits for the teacher, who is not asked.
    assert_eq!((shown.unanswered.len(), shown.n_turns), (2, 2));
    assert!(
        shown
            .samples
            .iter()
            .all(|sample| sample.method == "binary_rl")
    );
    assert!(world.told().is_empty());

    answered(&rig, &world).await;
    let shown = rig.learner.dry_run(None).await.unwrap().remove(0);
    assert_eq!((shown.unanswered.len(), shown.n_turns), (0, 4));
    assert_eq!((shown.n, shown.step, shown.lineage), (1, 1, None));
    assert_eq!((shown.parent, shown.begins_anew), (None, None));
    // The first of three warm-up steps.
    let rate = shown.learning_rate.unwrap();
    assert!((rate - 1e-4).abs() < 1e-9, "{rate}");
    let redo: Vec<_> = shown
        .samples
        .iter()
        .filter(|sample| sample.method == "context_distillation")
        .collect();
    assert_eq!((redo.len(), redo[0].turns.len()), (2, 1));
    assert_eq!(redo[0].loss, "cross_entropy");
    // Each of two has half of w_redo.
    assert!((redo[0].weight - 0.5).abs() < 1e-6);
    // A mark and the question; the reply and its end.
    let (prompt, reply) = (1 + QUESTION.len(), REPLY.len() + 1);
    assert_eq!(
        (redo[0].n_tokens, redo[0].n_trained),
        (prompt + reply - 1, reply)
    );
    assert!(
        shown
            .samples
            .iter()
            .any(|sample| sample.method == "binary_rl" && sample.weight < 0.0)
    );

    let made = rig.learner.train_now(None).await.unwrap().remove(0);
    assert_eq!((made.n_turns, made.step), (shown.n_turns, shown.step));
    assert_eq!(made.numbers.n_tokens, shown.n_tokens);
    assert!((made.numbers.learning_rate - rate).abs() < 1e-12);
    assert_eq!(made.batch, shown.batch);
    assert!(rig.learner.dry_run(None).await.unwrap().is_empty());
    rig.stop().await;
}

#[tokio::test]
async fn a_dry_run_says_where_it_goes_on() {
    let (dir, world) = (folder(), World::default());
    let rl = json!({"method": "redo+binary_rl", "batch_size": 50});
    let rig = waiting(dir.path(), &world, rl).await;
    // By the model's size, which a run tells.
    let first = rig.learner.dry_run(None).await.unwrap().remove(0);
    assert_eq!(first.learning_rate, None);
    let made = rig.learner.train_now(None).await.unwrap().remove(0);
    rig.talk(&world, &[7]).await;
    let what = "the new turns are judged and have their ids";
    rig.until(what, async || are_ready(&rig, 2).await).await;
    let shown = rig.learner.dry_run(None).await.unwrap().remove(0);
    assert_eq!(shown.lineage, Some(made.lineage));
    assert_eq!(shown.parent, Some(made.adapter));
    assert_eq!((shown.n, shown.step), (2, 2));
    assert!(shown.learning_rate.is_some());
    rig.stop().await;
}

#[tokio::test]
async fn a_turn_shows_what_a_step_would_use_of_it() {
    let (dir, world) = (folder(), World::default());
    let rl = json!({"method": "redo+binary_rl", "batch_size": 50});
    let rig = waiting(dir.path(), &world, rl).await;
    let failed = TurnId { session: 1, seq: 0 };
    let waits = rig.learner.turn_preview(failed).await.unwrap().unwrap();
    assert!(waits.is_unanswered && waits.waits && waits.samples.is_empty());
    answered(&rig, &world).await;
    let failed = rig.learner.turn_preview(failed).await.unwrap().unwrap();
    let methods: Vec<&str> = failed.samples.iter().map(|s| s.method.as_str()).collect();
    assert_eq!(methods, ["context_distillation", "binary_rl"]);
    let [redo, pushed] = &failed.samples[..] else {
        panic!("{failed:?}")
    };
    // What is predicted from the last of the prompt on.
    let masks = |sample: &crate::SamplePreview| -> Vec<u8> {
        sample.tokens.iter().map(|token| token.mask).collect()
    };
    let expected = |reply: usize| [vec![0; QUESTION.len()], vec![1; reply + 1]].concat();
    assert_eq!(masks(redo), expected(REPLY.len()));
    assert!(redo.tokens.iter().all(|token| token.logprob.is_none()));
    assert_eq!(masks(pushed), expected("word ".len() * 60));
    let last = pushed.tokens.last().unwrap();
    assert_eq!(
        (last.ids.as_slice(), last.logprob),
        (&[END][..], Some(-0.5))
    );
    assert!(last.advantage[0] < 0.0, "it failed: {last:?}");
    let sum: f32 = pushed.tokens.iter().flat_map(|t| &t.advantage).sum();
    assert!((sum - pushed.weight).abs() < 1e-6);
    // The last turn of a session has no verdict yet.
    let last = TurnId { session: 1, seq: 2 };
    let last = rig.learner.turn_preview(last).await.unwrap().unwrap();
    assert!(last.samples.is_empty() && last.spent.is_none() && !last.waits);
    assert!(!last.is_unanswered);
    let nobody = TurnId {
        session: 99,
        seq: 0,
    };
    assert!(rig.learner.turn_preview(nobody).await.unwrap().is_none());
    rig.stop().await;
}

fn columns(datum: &Datum) -> Vec<f32> {
    let weights = datum.parts().weights.as_ref().unwrap();
    let mut sums = vec![0.0; weights.width()];
    for row in weights.values().chunks(weights.width()) {
        for (sum, weight) in sums.iter_mut().zip(row) {
            *sum += weight;
        }
    }
    sums
}

/// The status reports it after it is recorded.
async fn newest_step(rig: &Rig) -> crate::StepReport {
    let step = async || {
        rig.learner.status().await.unwrap().agents[0]
            .last_step
            .clone()
    };
    rig.until("a step is told", async || step().await.is_some())
        .await;
    step().await.unwrap()
}

async fn two_talks(rig: &Rig, world: &World) {
    append(&rig.log, world, "a", &corrected_talk(1)).await;
    append(&rig.log, world, "b", &corrected_talk(2)).await;
}

/// The expected weight is w (log p_T - log p_S) over the student's four most probable ids, which the test's server
/// gives probabilities of a half, a sixth ...
fn of_teacher(likeliest: f32) -> f32 {
    let p = [27.0, 9.0, 3.0, 1.0].map(|x| x / 45.0_f32);
    let sum: f32 = p.iter().sum();
    let of = |(k, p): (usize, &f32)| p / sum * (likeliest - k as f32 - p.ln()).clamp(-1.0, 1.0);
    p.iter().enumerate().map(of).sum()
}

#[tokio::test]
async fn hybrid_pushes_by_the_verdict_and_towards_the_hinted_teacher() {
    let (dir, world) = (folder(), World::default());
    let hybrid = json!({"rl": {"method": "hybrid", "w_rl": 1, "batch_size": 4, "warmup_steps": 0}});
    let rig = Rig::start(dir.path(), &world, config(&hybrid)).await;
    two_talks(&rig, &world).await;
    assert!(rig.trained(4).await);
    let mut marks = world.passes()[0].clone();
    marks.sort_unstable();
    assert_eq!(marks, [10, 11, 20, 21]);
    for datum in world.cross_entropies() {
        let columns = columns(&datum);
        let is_failed = datum.parts().model_input_tokens[0] % 10 == 0;
        // The verdict contributes r / B, in the last column.
        let push = if is_failed { -0.25 } else { 0.25 };
        let (last, others) = columns.split_last().unwrap();
        assert!((last - push).abs() < 1e-4, "{columns:?}");
        assert_eq!(others.len(), if is_failed { 4 } else { 0 });
        if is_failed {
            let sum: f32 = others.iter().sum();
            // The hint's first word is in no prompt.
            let expected = of_teacher(-2.0) / 4.0;
            assert!((sum - expected).abs() < 1e-3, "{sum} for {expected}");
        }
    }
    // The student is asked with its adapter on its own prompt, the base model on a prompt that contains the wish.
    let looked_at = world.looked_at();
    assert_eq!(looked_at.iter().filter(|(adapter, _)| *adapter).count(), 4);
    let told = looked_at.iter().filter(|(adapter, _)| !adapter);
    let label = "question 1\n\n[user's hint / instruction]\nToo long.";
    let is_so = told.clone().any(|(_, it)| it.starts_with(label));
    assert!(is_so, "{looked_at:?}");
    assert_eq!(told.count(), 2);
    rig.stop().await;
}

#[tokio::test]
async fn opd_alone_takes_what_somebody_said_something_about() {
    let (dir, world) = (folder(), World::default());
    let opd = json!({"rl": {"method": "opd", "batch_size": 2, "warmup_steps": 0}});
    let rig = Rig::start(dir.path(), &world, config(&opd)).await;
    two_talks(&rig, &world).await;
    assert!(rig.trained(2).await);
    assert_eq!(world.passes(), [[10, 20]]);
    let widths = world.cross_entropies();
    assert!(widths.iter().all(|width| columns(width).len() == 4));
    let step = newest_step(&rig).await;
    assert_eq!(step.batch.samples["opd"], 2);
    let spent = rig.log.funnel(None).await.unwrap().spent;
    let is_so = spent.contains_key("accepted: no method of rl.method has a use for it");
    assert!(is_so, "{spent:?}");
    rig.stop().await;
}

/// Each epoch is a step of the optimiser; the targets of the samples are computed once.
#[tokio::test]
async fn epochs_are_steps_on_one_batch() {
    let (dir, world) = (folder(), World::default());
    let twice = json!({"rl": {"method": "hybrid", "w_rl": 1, "epochs": 2, "batch_size": 4, "warmup_steps": 0}});
    let rig = Rig::start(dir.path(), &world, config(&twice)).await;
    two_talks(&rig, &world).await;
    assert!(rig.trained(4).await);
    assert_eq!(world.rates().len(), 2);
    assert_eq!(world.passes().len(), 2);
    assert_eq!(world.looked_at().len(), 6, "asked once");
    let step = newest_step(&rig).await;
    assert_eq!((step.n, step.step), (1, 2));
    rig.stop().await;
}

#[tokio::test]
async fn the_originals_method_trains_through_the_whole_loop() {
    let (dir, world) = (folder(), World::default());
    let original = json!({"rl": {"method": "metaclaw", "batch_size": 4, "warmup_steps": 0}});
    let rig = Rig::start(dir.path(), &world, config(&original)).await;
    two_talks(&rig, &world).await;
    assert!(rig.trained(4).await);
    let step = newest_step(&rig).await;
    assert_eq!(step.batch.samples["metaclaw"], 4);
    // There are two of each score, so the advantage is (r - 0) / 1.
    let advantage = step.batch.advantage;
    assert!((advantage.std - 1.0).abs() < 1e-4 && advantage.mean.abs() < 1e-4);
    rig.stop().await;
}

/// The anchor keeps the weights near the base model's replies to the wishes, on questions that belong to no turn.
#[tokio::test]
async fn an_anchor_holds_each_step_at_the_base_models_own_replies() {
    let (dir, world) = (folder(), World::default());
    let anchored =
        json!({"rl": {"method": "binary_rl", "anchor": 0.5, "batch_size": 4, "warmup_steps": 0}});
    let rig = Rig::start(dir.path(), &world, config(&anchored)).await;
    two_talks(&rig, &world).await;
    assert!(rig.trained(4).await);
    let step = newest_step(&rig).await;
    assert_eq!(
        (
            step.batch.samples["binary_rl"],
            step.batch.samples["anchor"]
        ),
        (4, 8)
    );
    assert_eq!(step.n_turns, 4, "they are no turns");
    let is_so = step.numbers.losses["anchor"] > 0.0;
    assert!(is_so, "{:?}", step.numbers.losses);
    let anchors = world.cross_entropies();
    assert_eq!(anchors.len(), 8);
    for anchor in anchors {
        let weights = columns(&anchor);
        assert_eq!(weights.len(), 20);
        // The test's student gives the first id a lower probability than the base model's 0.6.
        assert!(weights[0] > 0.0, "{weights:?}");
    }
    let told = world.looked_at();
    let is_so = told.iter().all(|(adapter, _)| !adapter);
    assert!(is_so, "the base is asked once for each");
    rig.stop().await;
}

#[tokio::test]
async fn no_more_steps_are_made_than_rl_max_steps() {
    let (dir, world) = (folder(), World::default());
    let two = json!({"rl": {"method": "binary_rl", "max_steps": 2}});
    let rig = Rig::start(dir.path(), &world, config(&two)).await;
    two_talks(&rig, &world).await;
    assert!(rig.trained(4).await);
    rig.talk(&world, &[3]).await;
    rig.phase("all steps are made", |phase| {
        matches!(phase, crate::Phase::Finished { n_steps: 2, .. })
    })
    .await;
    let refused = rig.learner.train_now(None).await.unwrap_err();
    assert!(
        refused.to_string().contains("rl.max_steps is 2"),
        "{refused}"
    );
    assert_eq!(world.rates().len(), 2);
    rig.stop().await;
}
