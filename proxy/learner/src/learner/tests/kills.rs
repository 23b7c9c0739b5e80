//! Tests that kill the process with SIGKILL at every moment of the loop: judging, hearing, ids, batch, step,
//! checkpoint, gate, swap.
//!
//! Each process runs the same conversations and is killed at another moment; the next one continues with the same log
//! and training server.

use std::collections::BTreeMap;

use metaclaw_turns::Turn;
use serde_json::json;
use tokio::time::Instant;

use super::{reuse::behind, *};
use crate::testing::crash;

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

/// Creates a learner that detects wishes.
async fn start(dir: &Path, world: &World) -> Rig {
    let (skills, wishes) = (SkillsConfig::default(), WishesConfig::default());
    let (library, _) = Library::open(dir.join("skills"), skills, wishes);
    Rig::start_with(&dir.join("log"), world, reused(), Some(library)).await
}

/// Returns whether all failed turns are trained, and everything else is settled.
async fn is_over(rig: &Rig) -> bool {
    let n = TALKS as usize;
    let funnel = rig.log.funnel(None).await.unwrap();
    let serving = rig.log.serving().await.unwrap().pop().map(|it| it.1);
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
        served.extend(rig.swaps.lock().unwrap().clone());
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
    served.extend(rig.swaps.lock().unwrap().clone());
    assert_no_version_goes_back(&world, &served);
    let serving = served.pop().unwrap();
    let turns: BTreeSet<String> = behind(&world, &serving)
        .into_iter()
        .map(|it| it.0)
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
