//! Tests of failed calls within a step.
//!
//! Tests that kill the process with SIGKILL at every moment of the loop: judging, hearing, ids, batch, step,
//! checkpoint, gate, swap.
//!
//! Each process runs the same conversations and is killed at another moment; the next one continues with the same log
//! and training server.
//!
//! Tests with a training server that refuses all use, and with one that cannot be reached for an hour.

use std::{collections::BTreeMap, sync::mpsc, time::Instant};

use metaclaw_turns::Turn;

use super::{steps::behind, *};
use crate::testing::{Poison, crash};

#[tokio::test]
async fn what_the_trainer_refuses_is_said_and_tried_later_or_left_out() {
    let (_dir, world, rig) = begin(config(&json!({"mode": "auto"}))).await;
    rig.talk(&world, &[1]).await;
    rig.judged(2).await;
    // The calls are: checkpoints (for the head), create, checkpoints (for the step), forward_backward.
    world.fail(1, Failure::Refused);
    let error = rig.learner.train_now(None).await.unwrap_err();
    assert!(matches!(error, TrainError::Refused { .. }), "{error}");
    assert_eq!(rig.n(StateKind::Judged).await, 1, "free again");
    world.poison(10, Poison::Refused);
    assert_eq!(rig.learner.train_now(None).await, Ok(Vec::new()));
    let funnel = rig.log.funnel(None).await.unwrap();
    assert_eq!(
        funnel.spent.get("refused by the training server"),
        Some(&1),
        "{funnel:?}"
    );
    rig.stop().await;
}

#[tokio::test]
async fn nothing_is_trained_twice_or_lost_wherever_it_fails() {
    let failures = Failure::OF_ANY_CALL;
    // The first step makes at most 8 calls, the second 6; a second failure concerns what follows the first.
    let plan = |seed: usize| {
        let second = seed % 13 + 1 + seed % 5;
        vec![
            (seed % 13, failures[seed % 7]),
            (second, failures[(seed / 7 + 3) % 7]),
        ]
    };
    // Most of the time is pauses, so several cases run at once.
    for seeds in (0..91).collect::<Vec<_>>().chunks(13) {
        join_all(seeds.iter().map(|seed| survive(plan(*seed)))).await;
    }
}

/// Makes two steps of four turns while calls fail as planned, and restarts a killed client.
async fn survive(plan: Vec<(usize, Failure)>) {
    println!("failing {plan:?}");
    let (dir, world) = (folder(), World::default());
    for (n, failure) in plan {
        world.fail(n, failure);
    }
    let mut rig = Rig::start(dir.path(), &world, usual()).await;
    for number in 1..=4 {
        append(
            &rig.log,
            &world,
            &format!("s{number}"),
            &corrected_talk(number),
        )
        .await;
    }
    while !rig.trained(4).await {
        rig.stop().await;
        rig = Rig::start(dir.path(), &world, usual()).await;
    }
    assert_each_trained_once(&rig, &world).await;
    let found = rig.n(StateKind::Taken).await + rig.n(StateKind::Judged).await;
    assert_eq!(found, 0);
    rig.stop().await;
}

/// The number of killed processes; their moments are spread evenly over a run that is not killed.
const LIVES: usize = 60;
/// The number of processes that run at once, because they mostly wait for the disk.
const AT_ONCE: usize = 6;
/// The longest time that a restart may take.
const GOES_ON: Duration = Duration::from_secs(5);
/// The number of conversations; each has a turn that failed, one that was accepted and one without a verdict.
const TALKS: u32 = 4;

fn reused() -> LearnerConfig {
    config(&json!({"rl": {"reuse": 3, "consolidate": false}}))
}

/// What the test records over all processes: which adapters were served, in order.
type Served = Vec<String>;

async fn start(dir: &Path, world: &World) -> Rig {
    let library = library(dir);
    Rig::start_with(&dir.join("log"), world, reused(), Some(library)).await
}

async fn is_over(rig: &Rig) -> bool {
    let n = TALKS as usize;
    let funnel = rig.log.funnel(None).await.unwrap();
    let serving = rig.log.serving().await.unwrap().pop().map(|s| s.1);
    rig.n(StateKind::Trained).await == n
        && rig.n(StateKind::Taken).await == 0
        && funnel.with_ids == u64::from(3 * TALKS)
        && serving.is_some()
        && rig.swaps.lock().unwrap().last() == serving.as_ref()
}

/// Runs a process that is killed at this moment, and those after it; returns how many moments the first one had.
async fn lived(ends_at: usize) -> usize {
    let (dir, world) = (folder(), World::default());
    let mut served = Served::new();
    let mut rig = start(dir.path(), &world).await;
    crash::begins(ends_at, &rig.cancel);
    for number in 1..=TALKS {
        let session = format!("s{number}");
        append(&rig.log, &world, &session, &corrected_talk(number)).await;
    }
    let mut n_moments = None;
    while !learned(&rig).await {
        n_moments.get_or_insert_with(crash::n_moments);
        served.extend(rig.swaps());
        rig.stop().await;
        crash::ends();
        let began = Instant::now();
        rig = start(dir.path(), &world).await;
        crash::begins(usize::MAX, &rig.cancel);
        rig.until("its first question", async || crash::n_moments() > 0)
            .await;
        assert!(began.elapsed() < GOES_ON, "after {:?}", began.elapsed());
    }
    let n_moments = n_moments.unwrap_or_else(crash::n_moments);
    assert_each_turn_once(&rig).await;
    assert_each_use_once(&world);
    served.extend(rig.swaps());
    assert_no_version_goes_back(&world, &served);
    let serving = served.pop().unwrap();
    let turns: BTreeSet<String> = behind(&world, &serving)
        .into_iter()
        .map(|used| used.0)
        .collect();
    assert_eq!(turns.len(), TALKS as usize, "each is in the weights");
    rig.stop().await;
    crash::ends();
    n_moments
}

/// Returns whether all failed turns are trained and the result is reported; `false` if the process was killed first.
async fn learned(rig: &Rig) -> bool {
    tokio::select! {
        () = rig.until("everything is learned", async || is_over(rig).await) => true,
        () = rig.cancel.cancelled() => false,
    }
}

/// Checks that no turn is lost or stored twice, each has one verdict where it can have one, and none is left in a step.
async fn assert_each_turn_once(rig: &Rig) {
    let mut turns: Vec<Turn> = Vec::new();
    for kind in [
        StateKind::Captured,
        StateKind::Judged,
        StateKind::Trained,
        StateKind::Spent,
    ] {
        for id in rig
            .log
            .in_state(&AgentId::default_agent(), kind)
            .await
            .unwrap()
        {
            turns.push(rig.log.get(id).await.unwrap().unwrap());
        }
    }
    let funnel = rig.log.funnel(None).await.unwrap();
    let n = u64::from(TALKS);
    assert_eq!(
        (turns.len() as u64, funnel.turns, funnel.judged),
        (3 * n, 3 * n, 2 * n)
    );
    for turn in turns {
        let is_last = turn.id.seq == 2;
        assert_eq!(turn.verdict.is_none(), is_last, "{turn:?}");
        assert!(turn.overruled.is_empty(), "two verdicts: {turn:?}");
        assert!(turn.tokens.is_some(), "its ids are lost: {turn:?}");
    }
}

/// Checks that no use of a turn is in two checkpoints of one lineage.
fn assert_each_use_once(world: &World) {
    let mut seen = BTreeMap::new();
    for (manifest, _) in world.checkpoints() {
        let turns = manifest["turns"].as_array().unwrap().iter();
        for (turn, used) in turns.zip(manifest["uses"].as_array().unwrap()) {
            let lineage = manifest["lineage"].to_string();
            let n = manifest["n"].clone();
            let before = seen.insert((lineage, turn.to_string(), used.to_string()), n);
            assert_eq!(before, None, "in two checkpoints: use {used} of {turn}");
        }
    }
}

/// Checks that a later adapter contains everything that an earlier one contained.
fn assert_no_version_goes_back(world: &World, served: &Served) {
    for pair in served.windows(2) {
        let [before, after] = [&pair[0], &pair[1]].map(|name| world.adapter(name).unwrap());
        assert!(after.starts_with(&before), "{served:?}");
    }
}

fn alone<T>(life: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(life)
}

#[test]
fn a_process_that_is_killed_at_any_moment_loses_nothing_and_does_nothing_twice() {
    let n = alone(lived(usize::MAX));
    assert!(n > LIVES, "{n} moments");
    let ends: Vec<usize> = (0..LIVES).map(|life| life * n / LIVES).collect();
    for some in ends.chunks(AT_ONCE) {
        std::thread::scope(|scope| {
            for ends_at in some {
                let name = format!("killed at moment {ends_at} of {n}");
                let live = move || {
                    alone(lived(*ends_at));
                };
                let thread = std::thread::Builder::new().name(name);
                thread.spawn_scoped(scope, live).unwrap();
            }
        });
    }
}

/// This is in real time, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const MINUTE: Duration = Duration::from_secs(60);

/// The runtime's clock, which only the test moves, because it would otherwise run ahead whenever a task waits for the
/// disk.
struct Clock(mpsc::Sender<()>);

impl Clock {
    fn stop() -> Self {
        let (end, ended) = mpsc::channel();
        // While this thread is busy, the clock does not run ahead.
        tokio::task::spawn_blocking(move || ended.recv());
        tokio::time::pause();
        Self(end)
    }

    fn go_on(self) {
        tokio::time::resume();
        drop(self.0);
    }
}

/// Waits while the runtime's clock advances by some seconds.
async fn soon(what: &str, is_so: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < PATIENCE, "never came: {what}");
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
    }
}

async fn an_hour(world: &World) {
    for minute in 0..60 {
        let before = world.n_health();
        tokio::time::advance(MINUTE).await;
        let is_asked = async || world.n_health() > before;
        soon(&format!("a look in minute {minute}"), is_asked).await;
    }
}

#[tokio::test]
async fn a_server_that_refuses_to_be_used_is_not_asked_again_and_again() {
    for (status, code) in [
        (401, None),
        (402, None),
        (404, Some("model_not_offered")),
        (429, None),
    ] {
        let (dir, world) = (folder(), World::default());
        world.fail_health(Some(Failure::Answers(status, code)));
        let rig = Rig::start(dir.path(), &world, again(1)).await;
        rig.talk(&world, &[1, 2]).await;
        let is_told = async || {
            let phase = rig.learner.status().await.unwrap().phase;
            matches!(phase, Phase::Refused { why, .. } if why.contains(&status.to_string()))
        };
        rig.until("it says who refuses", is_told).await;
        assert_eq!(world.n_health(), 1);
        // Each verdict makes the learner check again.
        for n in 3..8 {
            append(&rig.log, &world, &format!("s{n}"), &corrected_talk(n)).await;
            rig.judged(2 * u64::from(n)).await;
        }
        rig.until("it still says so", is_told).await;
        assert_eq!(world.n_health(), 1, "{status}");
        let asked = rig.learner.train_now(None).await.unwrap_err();
        assert!(matches!(asked, TrainError::NoTrainer { .. }), "{asked}");
        assert_eq!(world.n_health(), 2, "its owner asks");
        world.fail_health(None);
        let reports = rig.learner.train_now(None).await.unwrap();
        assert_eq!(reports.len(), 1, "{reports:?}");
        rig.stop().await;
    }
}

#[tokio::test]
async fn what_waits_while_nobody_can_be_reached_for_an_hour_is_trained_afterwards() {
    let (dir, world) = (folder(), World::default());
    world.set_away(true);
    let rig = Rig::start(dir.path(), &world, again(1)).await;
    rig.talk(&world, &[1, 2]).await;
    rig.judged(4).await;
    let clock = Clock::stop();
    an_hour(&world).await;
    let is_told = async || {
        let phase = rig.learner.status().await.unwrap().phase;
        matches!(phase, Phase::WaitingForTrainer { .. })
    };
    soon("it says so", is_told).await;
    assert_eq!(rig.n(StateKind::Judged).await, 2, "turns wait");
    assert_eq!(rig.spent(0).await, []);
    assert!(rig.log.open_steps().await.unwrap().is_empty());
    world.set_away(false);
    trained(&rig, 2).await;
    clock.go_on();
    assert_each_trained_once(&rig, &world).await;
    rig.stop().await;
}

async fn trained(rig: &Rig, n: usize) {
    let is_trained = async || rig.n(StateKind::Trained).await == n;
    soon("a step", is_trained).await;
}

/// The test covers each call of a step, with the call carried out and not carried out.
#[tokio::test]
async fn a_step_in_which_the_network_goes_for_an_hour_is_made_once() {
    let lasts = [Failure::LostBefore, Failure::LostAfter];
    for (n, last) in (0..8).flat_map(|n| lasts.map(|last| (n, last))) {
        println!("call {n}: {last:?}");
        let (dir, world) = (folder(), World::default());
        let settings = config(&json!({"rl": {"reuse": 1}, "gate": {"enabled": false}}));
        let rig = Rig::start(dir.path(), &world, settings).await;
        world.leave_at(n, last);
        rig.talk(&world, &[1, 2]).await;
        let is_there = async || world.is_away() || rig.n(StateKind::Trained).await == 2;
        rig.until("the network goes", is_there).await;
        let clock = Clock::stop();
        if rig.n(StateKind::Trained).await < 2 {
            an_hour_of_a_step(&rig, &world).await;
        }
        world.set_away(false);
        trained(&rig, 2).await;
        clock.go_on();
        assert_each_trained_once(&rig, &world).await;
        rig.stop().await;
    }
}

/// For an hour, an open step is tried again and again, or none can begin: nothing is trained.
async fn an_hour_of_a_step(rig: &Rig, world: &World) {
    let passes = world.passes();
    for _ in 0..60 {
        let before = world.n_asked();
        tokio::time::advance(MINUTE).await;
        let is_asked = async || world.n_asked() > before;
        soon("a try", is_asked).await;
        assert_eq!(world.passes(), passes);
    }
    assert_eq!(rig.n(StateKind::Trained).await, 0);
    let n_waiting = rig.n(StateKind::Judged).await + rig.n(StateKind::Taken).await;
    assert_eq!(n_waiting, 2);
}
