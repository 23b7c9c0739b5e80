//! A server that is killed: at the moments that matter, and at any.

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use metaclaw_tests::{
    external,
    home::{Home, Proxy},
    questions,
    trainer::{Start, Trainer},
    wait::until,
};
use serde_json::Value;

use super::{
    BATCH_SIZE, CONVERSATIONS, STEP_WITHIN, answers, answers_again, assert_log_and_server_agree,
    assert_no_use_trained_twice, home_of, known, manifests, saved, says, server, talk_briefly,
};

/// Random kills of a test run; METACLAW_TEST_KILLS says another number.
const KILLS: usize = 3;
/// Two short conversations, the steps of them and the start after a kill are mostly over within that time.
const WITHIN_MS: u64 = 12_000;

/// When the server is killed.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// Gradients are computed, or soon are.
    Stepping,
    /// The checkpoint is written: whether the proxy has heard of it is left to the clock.
    Checkpoint,
    Adapter,
}

impl Moment {
    /// Waits for it, in a step after those that have left `before`.
    async fn reached(self, home: &Home, folder: &Path, before: usize) {
        let is_now = async || match self {
            Self::Stepping => {
                let status = home.ask(&["status", "--json"]).await.unwrap();
                status["learner"]["phase"]["is"] == "stepping"
            }
            Self::Checkpoint => saved(folder, "checkpoints").len() > before,
            Self::Adapter => saved(folder, "adapters").len() > before,
        };
        let waited = until(STEP_WITHIN, is_now).await;
        waited.unwrap_or_else(|error| panic!("{self:?}: {error}: {}", home.log()));
    }
}

#[tokio::test]
#[ignore = "needs the binaries and the model, cargo xtask test --all runs it"]
async fn a_server_with_tinkers_api_that_is_killed_in_its_steps_trains_no_turn_twice() {
    let (mut trainer, start, folder) = server().await;
    let folder = folder.path();
    let home = home_of(&trainer.url)
        // Of steps, not of how good they were.
        .with_env("METACLAW__GATE__ENABLED", "false");
    let proxy = home.start().await.unwrap();
    answers_again(&home).await;
    let moments = [Moment::Stepping, Moment::Checkpoint, Moment::Adapter];
    for (before, moment) in moments.into_iter().enumerate() {
        let n = before as u64 + 1;
        talk_briefly(&proxy, n).await;
        moment.reached(&home, folder, before).await;
        trainer.kill().await;
        eprintln!("step {n} killed at {moment:?}");
        trainer = Trainer::start(&start).await;
        let is_made = |status: &Value| {
            let last = &status["learner"]["agents"][0]["last_step"];
            last["n"] == n && status["funnel"]["taken"] == 0
        };
        says(&home, "the step was made all the same", is_made).await;
        assert_no_use_trained_twice(folder, n);
        assert_log_and_server_agree(&home, folder).await;
        answers_again(&home).await;
    }
    let step = known(&home, "last_step").await;
    let adapter = step["adapter"].as_str().expect("an adapter").to_owned();
    assert_eq!(answers(&proxy).await, Some(adapter), "{step}");
    proxy.stop().await.unwrap();
    trainer.stop().await;
}

/// Talks, and kills the server so long after the first word.
async fn talk_while_it_is_killed(
    proxy: &Proxy,
    seed: u64,
    trainer: Trainer,
    start: &Start,
    after: Duration,
) -> Trainer {
    let killed = async {
        tokio::time::sleep(after).await;
        trainer.kill().await;
        Trainer::start(start).await
    };
    let ((), trainer) = tokio::join!(talk_briefly(proxy, seed), killed);
    trainer
}

/// Waits until every turn is judged and fewer are left than a step takes.
async fn quiet(home: &Home) {
    let is_quiet = |status: &Value| {
        let learner = &status["learner"];
        let n_left = learner["agents"][0]["n_binary_rl"].as_u64();
        learner["phase"]["is"] == "collecting"
            && learner["judging"]["waiting"] == 0
            && n_left.is_some_and(|n| n < BATCH_SIZE)
            && status["funnel"]["taken"] == 0
    };
    says(home, "nothing is under way or due", is_quiet).await;
}

#[tokio::test]
#[ignore = "needs the binaries and the model, cargo xtask test --all runs it"]
async fn a_server_with_tinkers_api_that_is_killed_at_random_loses_no_turn() {
    let (mut trainer, start, folder) = server().await;
    let folder = folder.path();
    let home = home_of(&trainer.url)
        .with_env("METACLAW__GATE__ENABLED", "false")
        // All of them are looked at in the end.
        .with_env("METACLAW__TRAINER__KEEP", "1000");
    let proxy = home.start().await.unwrap();
    answers_again(&home).await;
    let by_the_clock = || u64::from(SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos());
    let mut state = external::seed().unwrap_or_else(by_the_clock);
    println!("METACLAW_TEST_SEED={state}");
    let n_kills = external::kills().unwrap_or(KILLS);
    for kill in 1..=n_kills {
        let after = Duration::from_millis(questions::split_mix(&mut state) % WITHIN_MS);
        let seed = u64::try_from(kill).unwrap();
        trainer = talk_while_it_is_killed(&proxy, seed, trainer, &start, after).await;
        answers_again(&home).await;
        println!(
            "kill {kill} after {after:?}: {} steps",
            manifests(folder).len()
        );
    }
    quiet(&home).await;
    let n_said = CONVERSATIONS * n_kills;
    let n_kept = home.turns().await.len();
    assert!(n_kept >= n_said, "{n_kept} turns of {n_said} conversations");
    let n_steps = u64::try_from(manifests(folder).len()).unwrap();
    println!("{n_steps} steps of {n_kept} turns");
    assert!(n_steps > 0, "{}", home.log());
    assert_no_use_trained_twice(folder, n_steps);
    assert_log_and_server_agree(&home, folder).await;
    proxy.stop().await.unwrap();
    trainer.stop().await;
}
