//! No adapter serves that did not pass the gate, whatever dies in between; and what follows for the next steps.

use super::*;
use crate::testing::{Habit, Said, append_by, progress};

/// The full rate, of a small model.
const RATE: f64 = 5e-4;

/// How often the first candidate's tests score replies (the base model's, plain and with the wish twice; its own; what both
/// know), and how often they do of one that greets, whose surprise is looked at with the wish as well.
pub(super) const N_SCORED: usize = 8;
const N_SCORED_GREETING: usize = 5;

pub(super) fn usual() -> LearnerConfig {
    config(&serde_json::json!({}))
}

impl Rig {
    pub(super) async fn two_talks(&self, world: &World, first: u32) {
        for number in [first, first + 1] {
            let session = format!("g{number}");
            append(&self.log, world, &session, &corrected_talk(number)).await;
        }
    }

    /// What the gate declined of the default agent.
    async fn declined(&self) -> Option<Declined> {
        let status = self.learner.status().await.unwrap();
        status.agents.into_iter().find_map(|agent| agent.declined)
    }

    /// Waits until so many adapters in a row were declined, and their samples set aside if they are.
    pub(super) async fn declined_in_a_row(&self, n: usize) -> Declined {
        let found = async || {
            let is_settled = self.n(StateKind::Taken).await == 0;
            let declined = self.declined().await;
            let declined = declined.filter(|it| it.in_a_row >= n && is_settled)?;
            let are_spent = n < 3 || self.n(StateKind::Judged).await == 0;
            are_spent.then_some(declined)
        };
        let found = progress::found_in_time(found).await;
        found.expect("they are declined")
    }

    /// The report of the last step, once there is one.
    pub(super) async fn last_step(&self) -> StepReport {
        let step = progress::found_in_time(async || {
            let agents = self.learner.status().await.unwrap().agents;
            agents.into_iter().find_map(|agent| agent.last_step)
        });
        step.await.expect("a step")
    }

    pub(super) async fn served(&self) -> Vec<String> {
        let serving = self.log.serving().await.unwrap();
        serving.into_iter().map(|(_, adapter)| adapter).collect()
    }

    pub(super) fn swaps(&self) -> Vec<String> {
        self.swaps.lock().unwrap().clone()
    }
}

fn are(rates: &[f64], expected: &[f64]) {
    let near = |(rate, expected): (&f64, &f64)| (rate - expected).abs() < 1e-12;
    let same = rates.len() == expected.len() && rates.iter().zip(expected).all(near);
    assert!(same, "{rates:?}, not {expected:?}");
}

#[tokio::test]
async fn each_kind_of_ruin_is_declined_and_never_serves() {
    let ruins = [
        (Habit::Greets, "relevance"),
        (Habit::Raves, "fluency"),
        (Habit::Mumbles, "short"),
        (Habit::Repeats, "distinct"),
        (Habit::Hurries, "length"),
        (Habit::AsksBack, "questions"),
        (Habit::Babbles, "calls"),
        (Habit::Forgets, "capability"),
        (Habit::Doubts, "margin"),
        (Habit::Chats, "tools"),
    ];
    join_all(ruins.map(|(ruin, test)| is_declined(ruin, test))).await;
}

/// Two corrections whose adapters all come to this.
async fn is_declined(ruin: Habit, test: &str) {
    let (dir, world) = (folder(), World::default());
    world.train_into(&[], ruin);
    let rig = Rig::start(dir.path(), &world, usual()).await;
    rig.two_talks(&world, 1).await;
    let declined = rig.declined_in_a_row(3).await;
    assert!(
        declined.why.contains(&format!("{test} ")),
        "{ruin:?}: {declined:?}"
    );
    assert_eq!(
        (rig.served().await, rig.swaps()),
        (Vec::new(), Vec::new()),
        "{ruin:?}"
    );
    // Each time from where the first one started, at half the rate.
    are(&world.rates(), &[RATE / 3.0, RATE / 6.0, RATE / 12.0]);
    assert!(
        world
            .checkpoints()
            .iter()
            .all(|(manifest, _)| manifest["parent"].is_null())
    );
    // Then the samples are set aside, and no more is tried for a while.
    let spent = rig.log.funnel(None).await.unwrap().spent;
    let by_gate = |(why, n): (&String, &u64)| {
        let name = why.strip_prefix("declined by the gate 3 times in a row: ")?;
        Some((name.to_owned(), *n))
    };
    let by_gate: Vec<(String, u64)> = spent.iter().filter_map(by_gate).collect();
    assert_eq!(by_gate.iter().map(|(_, n)| n).sum::<u64>(), 2, "{spent:?}");
    assert!(declined.rests_until_ms.is_some());
    rig.stop().await;
    // A restart forgets nothing of it.
    let rig = Rig::start(dir.path(), &world, usual()).await;
    assert_eq!(rig.declined().await.as_ref(), Some(&declined));
    assert_eq!((rig.served().await, rig.swaps()), (Vec::new(), Vec::new()));
    rig.stop().await;
}

#[tokio::test]
async fn a_rest_ends_with_eight_new_verdicts() {
    let (dir, world) = (folder(), World::default());
    world.train_into(&[Habit::Greets; 3], Habit::Fine);
    let rig = Rig::start(dir.path(), &world, usual()).await;
    rig.two_talks(&world, 1).await;
    rig.declined_in_a_row(3).await;
    rig.stop().await;
    let rig = Rig::start(dir.path(), &world, usual()).await;
    rig.two_talks(&world, 3).await;
    let rests = async || {
        let phase = rig.learner.status().await.unwrap().phase;
        matches!(phase, Phase::Resting { why, .. } if why.contains("relevance"))
    };
    rig.until("it rests", rests).await;
    assert_eq!(world.rates().len(), 3, "with four of eight verdicts");
    rig.two_talks(&world, 5).await;
    assert!(rig.trained(2).await);
    let serves = rig.served().await.remove(0);
    assert_eq!(world.adapter(&serves).unwrap()[..2], [30, 40]);
    assert_eq!(rig.declined().await, None, "one has passed since");
    rig.stop().await;
}

#[tokio::test]
async fn after_one_that_is_declined_the_next_starts_from_what_serves() {
    let (dir, world) = (folder(), World::default());
    world.train_into(&[Habit::Fine, Habit::Greets], Habit::Fine);
    let rig = Rig::start(dir.path(), &world, usual()).await;
    rig.two_talks(&world, 1).await;
    assert!(rig.trained(2).await);
    let first = rig.served().await.remove(0);
    let step = rig.last_step().await;
    let report = step.gate.unwrap();
    assert!(step.serves && report.passed(), "{report:?}");
    let names: Vec<&str> = report.tests.iter().map(|test| test.name.as_str()).collect();
    let all = [
        "relevance",
        "fluency",
        "short",
        "distinct",
        "length",
        "questions",
        "calls",
        "capability",
        "margin",
        "tools",
        "broken_calls",
        "preference",
    ];
    assert_eq!(names, all);
    rig.two_talks(&world, 3).await;
    assert!(rig.trained(4).await);
    let last = rig.served().await.remove(0);
    assert_eq!(world.adapter(&last).unwrap(), [10, 20, 30, 40], "each once");
    let parents: Vec<serde_json::Value> = world
        .checkpoints()
        .iter()
        .map(|(it, _)| it["parent"].clone())
        .collect();
    assert_eq!(
        parents,
        [
            serde_json::Value::Null,
            first.clone().into(),
            first.clone().into()
        ]
    );
    are(&world.rates(), &[RATE / 3.0, RATE * 2.0 / 3.0, RATE / 3.0]);
    assert_eq!(rig.swaps(), [first, last]);
    let outcomes = rig.log.steps(&AgentId::default_agent()).await.unwrap();
    let declined = outcomes
        .iter()
        .filter(|step| matches!(step.outcome, Some(StepOutcome::Declined { .. })));
    assert_eq!(declined.count(), 1);
    rig.stop().await;
}

#[tokio::test]
async fn what_is_killed_while_it_is_tested_is_tested_again() {
    let fine = (0..N_SCORED).map(|n| killed(Habit::Fine, n, Failure::ClientKilledBefore));
    join_all(fine).await;
    let after = (0..N_SCORED).map(|n| killed(Habit::Fine, n, Failure::ClientKilledAfter));
    join_all(after).await;
    join_all((0..N_SCORED_GREETING).map(|n| killed(Habit::Greets, n, Failure::ClientKilledBefore)))
        .await;
}

/// The client is killed as replies are scored for the `n`th time.
async fn killed(habit: Habit, n: usize, how: Failure) {
    let (dir, world) = (folder(), World::default());
    world.train_into(&[], habit);
    world.fail_scoring(n, &[how]);
    let rig = Rig::start(dir.path(), &world, usual()).await;
    rig.two_talks(&world, 1).await;
    assert!(!rig.trained(2).await, "killed {n}");
    assert_eq!((rig.served().await, rig.swaps()), (Vec::new(), Vec::new()));
    rig.stop().await;
    let rig = Rig::start(dir.path(), &world, usual()).await;
    if habit == Habit::Fine {
        assert!(rig.trained(2).await);
        assert_each_trained_once(&rig, &world).await;
        assert_eq!(world.checkpoints().len(), 1, "the step is not made again");
    } else {
        rig.declined_in_a_row(3).await;
        assert_eq!((rig.served().await, rig.swaps()), (Vec::new(), Vec::new()));
    }
    rig.stop().await;
}

/// The trainer is killed, or does not answer, between two questions of the gate.
#[tokio::test]
async fn a_trainer_that_comes_back_is_asked_again() {
    let (dir, world) = (folder(), World::default());
    world.fail_scoring(
        7,
        &[Failure::Killed, Failure::LostBefore, Failure::ErrorAfter],
    );
    let rig = Rig::start(dir.path(), &world, usual()).await;
    rig.two_talks(&world, 1).await;
    assert!(rig.trained(2).await);
    assert_each_trained_once(&rig, &world).await;
    rig.stop().await;
}

/// A server that refuses to score is no reason to serve what nobody tested.
#[tokio::test]
async fn what_cannot_be_tested_does_not_serve() {
    let (dir, world) = (folder(), World::default());
    world.fail_scoring(2, &[Failure::Refused]);
    let rig = Rig::start(dir.path(), &world, usual()).await;
    rig.two_talks(&world, 1).await;
    let phase = async || rig.learner.status().await.unwrap().phase;
    let rests = async || matches!(phase().await, Phase::Resting { .. });
    rig.until("it rests", rests).await;
    assert_eq!((rig.served().await, rig.swaps()), (Vec::new(), Vec::new()));
    assert_eq!(rig.n(StateKind::Judged).await, 2, "free again");
    assert_eq!(rig.declined().await, None, "of no sample's doing");
    let reports = rig.learner.train_now(None).await.unwrap();
    assert!(reports[0].serves, "the next time it answers");
    rig.stop().await;
}

/// It would train, release its turns, and train again.
#[tokio::test]
async fn nothing_is_trained_where_nothing_can_be_tested() {
    let (dir, world) = (folder(), World::default());
    world.set_scores(false);
    let rig = Rig::start(dir.path(), &world, usual()).await;
    rig.two_talks(&world, 1).await;
    let phase = async || rig.learner.status().await.unwrap().phase;
    let told = async || matches!(phase().await, Phase::WaitingForTrainer { why } if why.contains("gate.enabled"));
    rig.until("it says why", told).await;
    let asked = rig.learner.train_now(None).await.unwrap_err();
    assert!(asked.to_string().contains("gate.enabled"), "{asked}");
    assert!(world.asked().is_none() && world.told().is_empty());
    assert_eq!(rig.n(StateKind::Judged).await, 2);
    world.set_scores(true);
    assert!(rig.trained(2).await, "another server, later");
    rig.stop().await;
}

#[tokio::test]
async fn with_the_gate_off_nothing_is_tested() {
    let (dir, world) = (folder(), World::default());
    world.train_into(&[], Habit::Greets);
    let off = config(&serde_json::json!({"gate": {"enabled": false}}));
    let rig = Rig::start(dir.path(), &world, off).await;
    rig.two_talks(&world, 1).await;
    assert!(rig.trained(2).await);
    assert_eq!(rig.served().await.len(), 1);
    assert_eq!(world.n_forward(), 0);
    rig.stop().await;
}

/// The server that answers chats is away when a step is done.
#[tokio::test]
#[ignore = "needs 23 s, cargo xtask test --all runs it"]
async fn an_adapter_that_nobody_can_try_waits_and_serves_afterwards() {
    let (dir, world) = (folder(), World::default());
    let off = config(&serde_json::json!({"gate": {"enabled": false}}));
    let rig = Rig::start(dir.path(), &world, off).await;
    // More often than a failure is counted.
    world.fail_loads(Some(Failure::Answers(503, None)));
    rig.two_talks(&world, 1).await;
    let phase = async || rig.learner.status().await.unwrap().phase;
    let is_told = async || matches!(phase().await, Phase::WaitingForTrainer { why } if why.starts_with("load: 503"));
    let told = async || world.n_failed_loads() >= 8 && is_told().await;
    rig.until("it says why", told).await;
    assert_eq!((rig.served().await, rig.swaps()), (Vec::new(), Vec::new()));
    assert_eq!(rig.log.open_steps().await.unwrap().len(), 1);
    world.fail_loads(None);
    assert!(rig.trained(2).await);
    assert_eq!((rig.served().await.len(), rig.swaps().len()), (1, 1));
    assert_eq!(world.passes().len(), 1, "the step was made once");
    rig.stop().await;
}

/// Two adapters, of which the second pleases nobody: the first serves again, and what follows goes on from there.
#[tokio::test]
async fn what_makes_verdicts_worse_is_taken_back() {
    let (dir, world) = (folder(), World::default());
    let rig = Rig::start(dir.path(), &world, usual()).await;
    rig.two_talks(&world, 1).await;
    assert!(rig.trained(2).await);
    rig.two_talks(&world, 3).await;
    assert!(rig.trained(4).await);
    let [first, second] = rig.swaps().try_into().unwrap();
    rig.stop().await;
    let seldom = config(&serde_json::json!({"rl": {"batch_size": 1_000}}));
    let rig = Rig::start(dir.path(), &world, seldom.clone()).await;
    for number in 0..30 {
        let talk = [
            said("Why?", "So it is.", 700),
            said("Thanks.", "Fine.", 701),
        ];
        append_by(&first, &rig.log, &world, &format!("p{number}"), &talk).await;
    }
    let long = "word ".repeat(60);
    let complaints: Vec<Said> = (0..13).map(|n| said("Too long.", &long, 800 + n)).collect();
    append_by(&second, &rig.log, &world, "c", &complaints).await;
    let is_back = async || rig.served().await == std::slice::from_ref(&first);
    rig.until("the first serves again", is_back).await;
    let status = rig.learner.status().await.unwrap();
    let told = status.agents[0].taken_back.clone().unwrap();
    assert_eq!((&told.adapter, told.to.as_ref()), (&second, Some(&first)));
    assert!(told.why.ends_with("bad, of 38 before 4"), "{}", told.why);
    assert_eq!(rig.swaps(), [second, first.clone()]);
    rig.stop().await;
    let rig = Rig::start(dir.path(), &world, usual()).await;
    assert_eq!(
        rig.swaps(),
        std::slice::from_ref(&first),
        "a restart as well"
    );
    rig.two_talks(&world, 5).await;
    assert!(rig.trained(6).await);
    let weights = world.adapter(&rig.served().await[0]).unwrap();
    assert_eq!(weights[..2], [10, 20], "on from the first one");
    assert!(!weights.contains(&30), "and not the second: {weights:?}");
    rig.stop().await;
}
