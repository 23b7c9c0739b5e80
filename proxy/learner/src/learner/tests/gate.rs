//! No adapter serves that did not pass the gate, whatever dies in between; and what follows for the next steps.
//!
//! Tests of what adapters are compared with: the base model's results and the owner's wishes.

use super::*;
use crate::testing::{Habit, Said, append_by, progress};

/// The full rate, of a small model.
const RATE: f64 = 5e-4;

/// How often the first candidate's tests score replies (the base model's, plain and with the wish twice; its own; what both
/// know), and how often they do of one that greets, whose surprise is looked at with the wish as well.
pub(super) const N_SCORED: usize = 8;
const N_SCORED_GREETING: usize = 5;

impl Rig {
    async fn declined(&self) -> Option<Declined> {
        let status = self.learner.status().await.unwrap();
        status.agents.into_iter().find_map(|agent| agent.declined)
    }

    /// Waits until so many adapters in a row were declined, and their samples set aside if they are.
    pub(super) async fn declined_in_a_row(&self, n: usize) -> Declined {
        let found = async || {
            let is_settled = self.n(StateKind::Taken).await == 0;
            let declined = self.declined().await;
            let declined = declined.filter(|declined| declined.in_a_row >= n && is_settled)?;
            let are_spent = n < 2 || self.n(StateKind::Judged).await == 0;
            are_spent.then_some(declined)
        };
        let found = progress::found_in_time(found).await;
        found.expect("they are declined")
    }

    pub(super) async fn last_step(&self) -> StepReport {
        let step = progress::found_in_time(async || {
            let agents = self.learner.status().await.unwrap().agents;
            agents.into_iter().find_map(|agent| agent.last_step)
        });
        step.await.expect("a step")
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
    rig.talk(&world, &[1, 2]).await;
    let declined = rig.declined_in_a_row(2).await;
    let is_so = declined.why.contains(&format!("{test} "));
    assert!(is_so, "{ruin:?}: {declined:?}");
    assert_eq!(
        (rig.served().await, rig.swaps()),
        (Vec::new(), Vec::new()),
        "{ruin:?}"
    );
    assert_eq!(world.loaded(), Vec::<String>::new(), "{ruin:?}: no memory");
    // The second time from where the first one started, at half the rate.
    are(&world.rates(), &[RATE / 3.0, RATE / 6.0]);
    assert!(
        world
            .checkpoints()
            .iter()
            .all(|(manifest, _)| manifest["parent"].is_null())
    );
    // Then the samples are set aside, and no more is tried for a while.
    let spent = rig.log.funnel(None).await.unwrap().spent;
    let by_gate = |(why, n): (&String, &u64)| {
        let name = why.strip_prefix("declined by the gate: ")?;
        Some((name.to_owned(), *n))
    };
    let by_gate: Vec<(String, u64)> = spent.iter().filter_map(by_gate).collect();
    assert_eq!(by_gate.iter().map(|(_, n)| n).sum::<u64>(), 2, "{spent:?}");
    assert!(declined.rests_until_ms.is_some());
    assert_eq!(declined.rest_verdicts, 8);
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
    world.train_into(&[Habit::Greets; 2], Habit::Fine);
    let rig = Rig::start(dir.path(), &world, usual()).await;
    rig.talk(&world, &[1, 2]).await;
    rig.declined_in_a_row(2).await;
    rig.stop().await;
    let rig = Rig::start(dir.path(), &world, usual()).await;
    rig.talk(&world, &[3, 4]).await;
    rig.phase(
        "it rests",
        |phase| matches!(phase, Phase::Resting { why, .. } if why.contains("relevance")),
    )
    .await;
    assert_eq!(world.rates().len(), 2, "with four of eight verdicts");
    rig.talk(&world, &[5, 6]).await;
    assert!(rig.trained(2).await);
    let serves = rig.served().await.remove(0);
    assert_eq!(world.adapter(&serves).unwrap()[..2], [30, 40]);
    assert_eq!(rig.declined().await, None, "one has passed since");
    rig.stop().await;
}

/// A wish that the model cannot keep: before this test, three adapters were made for each eight verdicts, of the same turns
/// at the same rate.
#[tokio::test]
async fn what_is_declined_again_and_again_is_tried_ever_less_often() {
    let (_dir, world, rig) = begin(usual()).await;
    world.train_into(&[], Habit::Greets);
    for (sessions, n) in [(1..3, 2), (3..7, 3), (7..15, 4), (15..31, 5), (31..61, 5)] {
        rig.talk(&world, &sessions.clone().collect::<Vec<_>>())
            .await;
        rig.judged(u64::from(sessions.end - 1) * 2).await;
        let is_so = async || {
            let declined = rig.declined().await;
            declined.is_some_and(|it| it.in_a_row == n && it.rests_until_ms.is_some())
        };
        rig.until("so many are declined", is_so).await;
        assert_eq!(world.rates().len(), n, "after {sessions:?}");
    }
    let parts = [3.0, 6.0, 12.0, 24.0, 24.0];
    are(&world.rates(), &parts.map(|part| RATE / part));
    let mut made: Vec<Vec<u32>> = world.checkpoints().into_iter().map(|(_, it)| it).collect();
    made.dedup();
    assert_eq!(
        made.len(),
        4,
        "only the first batch has two rates: {made:?}"
    );
    rig.stop().await;
}

#[tokio::test]
async fn after_one_that_is_declined_the_next_starts_from_what_serves() {
    let (dir, world) = (folder(), World::default());
    world.train_into(&[Habit::Fine, Habit::Greets], Habit::Fine);
    let rig = Rig::start(dir.path(), &world, usual()).await;
    rig.talk(&world, &[1, 2]).await;
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
    rig.talk(&world, &[3, 4]).await;
    assert!(rig.trained(4).await);
    let last = rig.served().await.remove(0);
    assert_eq!(world.adapter(&last).unwrap(), [10, 20, 30, 40], "each once");
    let parents: Vec<Value> = world
        .checkpoints()
        .iter()
        .map(|(it, _)| it["parent"].clone())
        .collect();
    assert_eq!(
        parents,
        [Value::Null, first.clone().into(), first.clone().into()]
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
    rig.talk(&world, &[1, 2]).await;
    assert!(!rig.trained(2).await, "killed {n}");
    assert_eq!((rig.served().await, rig.swaps()), (Vec::new(), Vec::new()));
    rig.stop().await;
    let rig = Rig::start(dir.path(), &world, usual()).await;
    if habit == Habit::Fine {
        assert!(rig.trained(2).await);
        assert_each_trained_once(&rig, &world).await;
        assert_eq!(world.checkpoints().len(), 1, "the step is not made again");
    } else {
        rig.declined_in_a_row(2).await;
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
    rig.talk(&world, &[1, 2]).await;
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
    rig.talk(&world, &[1, 2]).await;
    rig.phase("it rests", |phase| matches!(phase, Phase::Resting { .. }))
        .await;
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
    rig.talk(&world, &[1, 2]).await;
    rig.phase(
        "it says why",
        |phase| matches!(phase, Phase::WaitingForTrainer { why } if why.contains("gate.enabled")),
    )
    .await;
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
    let off = config(&json!({"gate": {"enabled": false}}));
    let rig = Rig::start(dir.path(), &world, off).await;
    rig.talk(&world, &[1, 2]).await;
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
    let off = config(&json!({"gate": {"enabled": false}}));
    let rig = Rig::start(dir.path(), &world, off).await;
    // More often than a failure is counted.
    world.fail_loads(Some(Failure::Answers(503, None)));
    rig.talk(&world, &[1, 2]).await;
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
    let (dir, world, rig) = begin(usual()).await;
    rig.talk(&world, &[1, 2]).await;
    assert!(rig.trained(2).await);
    rig.talk(&world, &[3, 4]).await;
    assert!(rig.trained(4).await);
    let [first, second] = rig.swaps().try_into().unwrap();
    rig.stop().await;
    let seldom = config(&json!({"rl": {"batch_size": 1_000}}));
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
    rig.talk(&world, &[5, 6]).await;
    assert!(rig.trained(6).await);
    let weights = world.adapter(&rig.served().await[0]).unwrap();
    assert_eq!(weights[..2], [10, 20], "on from the first one");
    assert!(!weights.contains(&30), "and not the second: {weights:?}");
    rig.stop().await;
}

fn n_drawn(world: &World, text: &str) -> usize {
    let prompts = world.prompts();
    prompts.iter().filter(|p| p.contains(text)).count()
}

/// A tool prompt that the world's base model answers correctly, and one that it does not.
const ANSWERED: &str = "Tom is 9 years old.";
const NOT_ANSWERED: &str = "todo.txt";

#[tokio::test]
async fn what_the_base_model_comes_to_is_asked_once_and_after_a_restart_not_again() {
    let (dir, world, rig) = begin(usual()).await;
    rig.talk(&world, &[1, 2]).await;
    assert!(rig.trained(2).await);
    assert_eq!(world.most_streams(), 16, "the sixteen questions at once");
    let asked = |world: &World| [ANSWERED, NOT_ANSWERED].map(|text| n_drawn(world, text));
    assert_eq!(asked(&world), [2, 1], "the adapter passes with the first");
    let scored = world.n_forward();
    assert_eq!(scored, N_SCORED);
    rig.stop().await;
    let rig = Rig::start(dir.path(), &world, usual()).await;
    rig.talk(&world, &[3, 4]).await;
    assert!(rig.trained(4).await);
    assert_eq!(asked(&world), [3, 1]);
    let again = world.n_forward() - scored;
    // The probes, and its replies to the questions, with the wish and without.
    let (teachers, known) = (2, 5);
    assert_eq!(again, N_SCORED + teachers - known, "what the base knows");
    rig.stop().await;
    let file = dir.path().join("learning/gate.json");
    std::fs::write(&file, "{").unwrap();
    let rig = Rig::start(dir.path(), &world, usual()).await;
    rig.talk(&world, &[5, 6]).await;
    assert!(rig.trained(6).await);
    assert_eq!(asked(&world), [5, 2], "it could not be read");
    rig.stop().await;
    // Another base model is measured separately.
    world.set_base("other", "0ther");
    let rig = Rig::start(dir.path(), &world, usual()).await;
    rig.talk(&world, &[7, 8]).await;
    assert!(rig.trained(8).await);
    assert_eq!(asked(&world), [7, 3]);
    rig.stop().await;
}

/// An adapter that fails at what the base model answers may succeed at others, so all prompts are asked before it is
/// declined.
#[tokio::test]
async fn tools_that_are_lost_are_looked_for_among_the_others() {
    let (dir, world) = (folder(), World::default());
    world.train_into(&[], Habit::Chats);
    let rig = Rig::start(dir.path(), &world, usual()).await;
    rig.talk(&world, &[1, 2]).await;
    let declined = rig.declined_in_a_row(1).await;
    let why = "tools 0.00 of 16 prompts with tools answered well, 16 asked, at least 1.00";
    assert_eq!(declined.why, why);
    rig.stop().await;
}

fn asked_with(world: &World, wish: &str) -> BTreeSet<String> {
    let end = format!("?\n\n{wish}");
    let prompts = world.prompts().into_iter();
    let asked = prompts.filter_map(|prompt| Some(prompt.split_once(&end)?.0.to_owned()));
    asked.collect()
}

/// The adapter was declined for its length, compared with a base model without wishes.
#[tokio::test]
async fn a_batch_of_good_verdicts_is_held_against_what_was_taught_before() {
    let (dir, world) = (folder(), World::default());
    // There are so many steps that each batch is asked other questions.
    let verdicts = config(&json!({"rl": {"method": "binary_rl", "batch_size": 4, "epochs": 4}}));
    let rig = Rig::start(dir.path(), &world, verdicts.clone()).await;
    rig.talk(&world, &[1, 2]).await;
    assert!(rig.trained(4).await, "two complaints, two that please");
    assert_eq!(asked_with(&world, "Too long.").len(), 16);
    let please = async |rig: &Rig, first: u32| {
        for number in first..first + 4 {
            let talk = [
                said("Why?", "So.", 10 * number),
                said("Thanks.", "Fine.", 1),
            ];
            append(&rig.log, &world, &format!("p{number}"), &talk).await;
        }
    };
    please(&rig, 3).await;
    assert!(rig.trained(8).await);
    assert_eq!(asked_with(&world, "Too long.").len(), 32, "of its lineage");
    rig.stop().await;
    world.set_base("other", "0ther");
    let rig = Rig::start(dir.path(), &world, verdicts).await;
    please(&rig, 7).await;
    assert!(rig.trained(12).await);
    let n_told = world
        .prompts()
        .iter()
        .filter(|prompt| prompt.contains("?\n\nToo long."))
        .count();
    assert_eq!(n_told, 48, "of the agent's last turns, in a fresh lineage");
    rig.stop().await;
}

/// The base model answers differently with the owner's wish and without it, and both answers pass.
#[tokio::test]
async fn a_wish_stands_in_the_prompts_of_the_reference() {
    let (dir, world) = (folder(), World::default());
    let lessons = folder();
    let library = library(lessons.path());
    library
        .add_wish(&AgentId::default_agent(), "Answer in French.")
        .unwrap();
    // This wish differs from the complaint in the conversations, which would replace it. Only one step is made, because
    // a second one asks other questions.
    let once = config(&json!({"rl": {"consolidate": false}}));
    let rig = Rig::start_with(dir.path(), &world, once, Some(library)).await;
    rig.talk(&world, &[1, 2]).await;
    assert!(rig.trained(2).await);
    // The questions are drawn again after another wish.
    let questions = asked_with(&world, "Answer in French.");
    let found = questions.len();
    assert_eq!(found, 16, "the reference asks these: {questions:?}");
    rig.stop().await;
}
