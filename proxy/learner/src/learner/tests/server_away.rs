//! Tests with a training server that refuses all use, and with one that cannot be reached for an hour.

use std::{sync::mpsc, time::Instant};

use serde_json::json;

use super::*;

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

    /// The clock runs normally again.
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

/// An hour passes, and the server is asked in each minute.
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
        append(&rig.log, &world, "a", &corrected_talk(1)).await;
        append(&rig.log, &world, "b", &corrected_talk(2)).await;
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
    append(&rig.log, &world, "a", &corrected_talk(1)).await;
    append(&rig.log, &world, "b", &corrected_talk(2)).await;
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

/// Runs until this many turns are trained.
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
        append(&rig.log, &world, "a", &corrected_talk(1)).await;
        append(&rig.log, &world, "b", &corrected_talk(2)).await;
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
