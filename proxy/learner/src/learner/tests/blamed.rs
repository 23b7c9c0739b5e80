//! Tests of calls that fail because of one agent, one turn or one adapter: only that is set aside, and the loop goes on.

use metaclaw_turns::Step;

use super::*;
use crate::testing::{Damage, Poison};

/// The calls of a first step: checkpoints, create, checkpoints, forward_backward, optim_step, save_checkpoint,
/// save_adapter.
const SAVE: usize = 5;

fn work() -> AgentId {
    "work".parse().unwrap()
}

fn batches_of(n: usize) -> LearnerConfig {
    config(&json!({"rl": {"batch_size": n}}))
}

impl Rig {
    async fn settled(&self) {
        let settled = async || self.n(StateKind::Taken).await == 0;
        self.until("no step is open", settled).await;
    }

    /// How many turns were set aside as this says; what was accepted is never trained on.
    async fn set_aside(&self) -> Vec<(String, u64)> {
        let spent = self.log.funnel(None).await.unwrap().spent;
        let ordinary = [
            "the reply was good, and no wish is in force to learn from it",
            "no rule fits",
        ];
        let spent = spent.into_iter();
        spent
            .filter(|(why, _)| !ordinary.contains(&why.as_str()))
            .collect()
    }

    async fn serves(&self) -> String {
        let serving = self.log.serving().await.unwrap();
        let own = |(agent, _): &(AgentId, String)| *agent == AgentId::default_agent();
        serving
            .into_iter()
            .find(own)
            .map_or_else(String::new, |(_, adapter)| adapter)
    }

    async fn weights(&self, world: &World) -> Vec<u32> {
        world.adapter(&self.serves().await).unwrap()
    }
}

async fn left_open(dir: &Path, world: &World) {
    let rig = Rig::start(dir, world, usual()).await;
    world.fail(SAVE, Failure::ClientKilledAfter);
    rig.talk(world, &[1, 2]).await;
    assert!(!rig.trained(2).await, "killed");
    rig.stop().await;
}

async fn one_step(dir: &Path, world: &World) -> String {
    let rig = Rig::start(dir, world, usual()).await;
    rig.talk(world, &[1, 2]).await;
    assert!(rig.trained(2).await);
    let adapter = rig.serves().await;
    rig.stop().await;
    adapter
}

/// Any refusal while settling ended each look for every agent.
#[tokio::test]
async fn a_step_that_cannot_be_settled_stops_no_other_agent() {
    type Spoil = fn(&World);
    let spoil: [(&str, Spoil); 4] = [
        ("another base", |world| world.set_base("other", "f00d")),
        ("damaged", |world| world.damage("-000001", Damage::Told)),
        ("unreadable", |world| {
            world.damage("-000001", Damage::Untold);
        }),
        ("gone", World::delete_checkpoints),
    ];
    for (what, spoil) in spoil {
        println!("{what}");
        let (dir, world) = (folder(), World::default());
        left_open(dir.path(), &world).await;
        spoil(&world);
        let rig = Rig::start(dir.path(), &world, usual()).await;
        rig.talk_of(&work(), &world, &[5, 6]).await;
        assert!(rig.trained_by(&work(), 2).await);
        rig.settled().await;
        // And it goes on itself, from nothing.
        rig.talk(&world, &[3, 4]).await;
        assert!(rig.trained(2).await);
        rig.stop().await;
    }
}

/// A rank that the server has no more refused the run in which the step would have been settled.
#[tokio::test]
async fn a_rank_that_the_server_refuses_leaves_no_step_open() {
    let (dir, world) = (folder(), World::default());
    left_open(dir.path(), &world).await;
    world.set_max_rank(8);
    let rig = Rig::start(dir.path(), &world, usual()).await;
    rig.settled().await;
    assert_eq!(rig.n(StateKind::Trained).await, 0);
    rig.stop().await;
    let low = config(&json!({"rl": {"lora_rank": 4}}));
    let rig = Rig::start(dir.path(), &world, low).await;
    assert!(rig.trained(2).await, "with a rank that it has");
    rig.stop().await;
}

/// A checkpoint that the next step cannot start from was tried for ever.
#[tokio::test]
async fn a_parent_that_is_refused_begins_a_fresh_lineage() {
    let (dir, world) = (folder(), World::default());
    let first = one_step(dir.path(), &world).await;
    world.damage(&first, Damage::Told);
    let rig = Rig::start(dir.path(), &world, usual()).await;
    assert_eq!(rig.serves().await, first, "until there is another");
    rig.talk(&world, &[3, 4]).await;
    assert!(rig.trained(4).await);
    assert_eq!(rig.weights(&world).await, [30, 40]);
    assert_eq!(rig.set_aside().await, []);
    let said = rig.learner.status().await.unwrap().agents[0]
        .began_anew
        .clone();
    let why = format!("the training server cannot use its checkpoint {first}");
    assert_eq!(said.map(|said| said.why), Some(why));
    let swaps = rig.swaps();
    assert_eq!(swaps, [first, rig.serves().await]);
    rig.stop().await;
}

/// Where the server only fails at it, each look ended in the same agent's step.
#[tokio::test]
async fn a_parent_that_cannot_be_read_stops_no_other_agent() {
    let (dir, world) = (folder(), World::default());
    let first = one_step(dir.path(), &world).await;
    world.damage(&first, Damage::Untold);
    let rig = Rig::start(dir.path(), &world, usual()).await;
    rig.talk(&world, &[3, 4]).await;
    let taken = async || rig.n(StateKind::Taken).await > 0;
    rig.until("a step is open", taken).await;
    rig.talk_of(&work(), &world, &[5, 6]).await;
    assert!(rig.trained_by(&work(), 2).await);
    // It may be the server's trouble: another time. Then it is the checkpoint's.
    let agent = AgentId::default_agent();
    let again = rig.learner.train_now(Some(agent)).await;
    assert!(rig.trained(4).await, "{again:?}");
    assert_eq!(rig.weights(&world).await, [30, 40]);
    rig.stop().await;
}

/// A batch with a datum that the server fails at was made again for ever.
#[tokio::test]
async fn what_the_server_fails_at_is_set_aside_alone() {
    for poison in [
        Poison::Panics,
        Poison::TooSlow,
        Poison::Kills,
        Poison::Refused,
    ] {
        println!("{poison:?}");
        let (dir, world) = (folder(), World::default());
        world.poison(20, poison);
        let rig = Rig::start(dir.path(), &world, batches_of(4)).await;
        rig.talk(&world, &[1, 2, 3, 4]).await;
        assert!(rig.trained(3).await);
        assert_eq!(rig.weights(&world).await, [10, 30, 40]);
        let passes = world.passes();
        assert!(passes.contains(&vec![20]), "alone: {passes:?}");
        assert!(passes.contains(&vec![0]), "and something harmless");
        let expected = match poison {
            Poison::Refused => "refused by the training server",
            _ => "the training server fails at it",
        };
        assert_eq!(rig.set_aside().await, [(expected.to_owned(), 1)]);
        rig.stop().await;
    }
}

/// With nothing beside it that tells a bad datum from a bad server.
#[tokio::test]
async fn a_lone_datum_is_set_aside_where_the_server_can_train_at_all() {
    let auto = || config(&json!({"mode": "auto"}));
    for is_sick in [false, true] {
        let (dir, world) = (folder(), World::default());
        world.poison(10, Poison::Panics);
        if is_sick {
            // Of the learner's own, to see whether anything goes.
            world.poison(0, Poison::Panics);
        }
        let rig = Rig::start(dir.path(), &world, auto()).await;
        rig.talk(&world, &[1]).await;
        rig.judged(2).await;
        let asked = rig.learner.train_now(None).await;
        if is_sick {
            let is_so = matches!(asked, Err(TrainError::Refused { .. }));
            assert!(is_so, "{asked:?}");
            assert_eq!(rig.set_aside().await, []);
            assert_eq!(rig.n(StateKind::Judged).await, 1, "free again");
        } else {
            assert_eq!(asked, Ok(Vec::new()));
            let expected = [("the training server fails at it".to_owned(), 1)];
            assert_eq!(rig.set_aside().await, expected);
        }
        rig.stop().await;
    }
}

/// One bad datum spent its whole batch.
#[tokio::test]
async fn a_datum_that_the_server_names_is_set_aside_alone() {
    let cases = [
        (Poison::Named, "refused by the training server"),
        (
            Poison::TooLong,
            "longer than the training server has memory for",
        ),
        (Poison::NoGradient, "its gradient is no number"),
    ];
    for (poison, why) in cases {
        println!("{poison:?}");
        let (dir, world) = (folder(), World::default());
        world.poison(30, poison);
        let rig = Rig::start(dir.path(), &world, batches_of(4)).await;
        rig.talk(&world, &[1, 2, 3, 4]).await;
        assert!(rig.trained(3).await);
        assert_eq!(rig.set_aside().await, [(why.to_owned(), 1)]);
        assert_eq!(rig.weights(&world).await, [10, 20, 40]);
        rig.stop().await;
    }
}

/// Weights that are no numbers ate every sample that met them.
#[tokio::test]
async fn weights_that_are_no_numbers_cost_no_sample() {
    let (dir, world) = (folder(), World::default());
    let first = one_step(dir.path(), &world).await;
    world.damage(&first, Damage::NotFinite);
    let rig = Rig::start(dir.path(), &world, usual()).await;
    rig.talk(&world, &[3, 4]).await;
    assert!(rig.trained(4).await);
    assert_eq!(rig.set_aside().await, []);
    assert_eq!(rig.weights(&world).await, [30, 40]);
    let swaps = rig.swaps();
    let last = rig.serves().await;
    assert_eq!(swaps, [first.as_str(), "base", &last], "withdrawn at once");
    rig.stop().await;
}

/// A write that was under way when the client was killed landed over what its successor had saved.
#[tokio::test]
async fn what_is_written_late_is_in_no_lineage() {
    let of_call = |call: usize| (1..16).map(move |late| written_late(call, late));
    join_all(of_call(SAVE)).await;
    join_all(of_call(SAVE + 1)).await;
}

/// Two batches; the client was killed while the first was saved.
async fn written_late(call: usize, late: usize) {
    println!("call {call} is done {late} calls later");
    let (dir, world, rig) = begin(batches_of(2)).await;
    world.fail(call, Failure::WrittenLate(late));
    rig.talk(&world, &[1, 2]).await;
    assert!(!rig.trained(2).await, "killed");
    rig.stop().await;
    // Where the checkpoint was not there, its turns are in another batch now.
    let (first, all) = if call == SAVE { (3, 5) } else { (2, 4) };
    let rig = Rig::start(dir.path(), &world, batches_of(3)).await;
    rig.talk(&world, &[3]).await;
    assert!(rig.trained(first).await);
    rig.stop().await;
    let rig = Rig::start(dir.path(), &world, batches_of(2)).await;
    rig.talk(&world, &[4, 5]).await;
    assert!(rig.trained(all).await);
    let mut weights = rig.weights(&world).await;
    weights.sort_unstable();
    assert_eq!(weights, [10, 20, 30, 40, 50][..all]);
    rig.stop().await;
}

/// An adapter that was there by its name was served, though it was another attempt's.
#[tokio::test]
async fn an_adapter_of_another_attempt_is_not_served() {
    let (dir, world, rig) = begin(usual()).await;
    world.fail(SAVE + 1, Failure::ClientKilledAfter);
    rig.talk(&world, &[1, 2]).await;
    assert!(!rig.trained(2).await, "killed");
    rig.stop().await;
    world.delete_checkpoints();
    world.keep_adapters();
    let rig = Rig::start(dir.path(), &world, batches_of(3)).await;
    rig.talk(&world, &[3]).await;
    assert!(rig.trained(3).await);
    assert_eq!(rig.weights(&world).await, [10, 20, 30]);
    rig.stop().await;
}

/// A file that was renamed was another base model.
#[tokio::test]
async fn a_base_model_under_another_name_is_the_same() {
    let (dir, world) = (folder(), World::default());
    one_step(dir.path(), &world).await;
    let rig = Rig::start(dir.path(), &world, usual()).await;
    rig.talk(&world, &[3]).await;
    rig.judged(6).await;
    world.set_base("renamed", "0badcafe");
    rig.talk(&world, &[4]).await;
    assert!(rig.trained(4).await);
    assert_eq!(rig.weights(&world).await, [10, 20, 30, 40]);
    rig.stop().await;
}

/// Another model under the same name refused the lineage for ever.
#[tokio::test]
async fn another_base_model_under_the_same_name_is_another() {
    let (dir, world) = (folder(), World::default());
    one_step(dir.path(), &world).await;
    let rig = Rig::start(dir.path(), &world, usual()).await;
    rig.talk(&world, &[3]).await;
    rig.judged(6).await;
    world.set_base("base", "f00d");
    rig.talk(&world, &[4, 5]).await;
    assert!(rig.trained(4).await);
    assert_eq!(rig.weights(&world).await, [40, 50]);
    let other = ("sampled from another base model".to_owned(), 1);
    assert_eq!(rig.set_aside().await, [other]);
    rig.stop().await;
}

/// An adapter that answers what is no number never serves, and nothing goes on from it: its samples are tried again.
#[tokio::test]
async fn an_adapter_that_answers_no_numbers_does_not_serve() {
    let (dir, world) = (folder(), World::default());
    let first = one_step(dir.path(), &world).await;
    world.damage("-000002", Damage::NotFinite);
    let rig = Rig::start(dir.path(), &world, usual()).await;
    rig.talk(&world, &[3, 4]).await;
    assert!(rig.trained(4).await);
    assert_ne!(rig.serves().await, first);
    assert_eq!(rig.weights(&world).await, [10, 20, 30, 40]);
    let swaps = rig.swaps();
    assert_eq!(swaps, [first, rig.serves().await]);
    let declined = |step: &Step| matches!(&step.outcome, Some(StepOutcome::Declined { why, .. }) if why.contains("no"));
    let steps = rig.log.steps(&AgentId::default_agent()).await.unwrap();
    assert_eq!(steps.into_iter().filter(declined).count(), 1);
    rig.stop().await;
}
