//! Sixty-four episodes at once on the demo model, while first the trainer and then the proxy is killed: none is lost,
//! none is mixed up with another, and the counts add up.

use std::{collections::BTreeMap, time::Duration};

use metaclaw_test_kit::until_within;
use metaclaw_tests::{
    external,
    home::{Home, signal, trainers_of},
};
use metaclaw_turns::Turn;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{rollouts, written};
use crate::chat::laptop_home;

const TASKS: usize = 8;
const TRIES: usize = 8;
const EPISODES: usize = TASKS * TRIES;
/// Each episode says two things.
const TURNS: usize = 2;
/// How long a part of the episodes may take; on two cores all take about a minute.
const WITHIN: Duration = Duration::from_secs(300);
/// How often a run is called again that a kill has ended.
const CALLS: usize = 6;

async fn n_scored(home: &Home) -> usize {
    let listed = rollouts(home).await;
    listed.iter().filter(|it| it["state"] == "scored").count()
}

async fn wait_for(home: &Home, n: usize) {
    until_within(
        WITHIN,
        "ends of episodes",
        async || n_scored(home).await,
        |it| *it >= n,
    )
    .await;
}

/// Calls the run until it ends well, as its user would.
async fn run(home: &Home, file: &str) -> Value {
    let mut last = String::new();
    for _ in 0..CALLS {
        match home.ask(&["rollout", "run", file, "--json"]).await {
            Ok(ran) => return ran,
            Err(error) => last = format!("{error:#}"),
        }
    }
    panic!("{CALLS} calls do not end it: {last}");
}

#[tokio::test]
#[ignore = "needs the binaries, the model and Python, cargo xtask test --all runs it"]
async fn sixty_four_at_once_survive_kills_of_the_trainer_and_of_the_proxy() {
    let home = laptop_home();
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/it/rollouts/two_turns.py");
    let python = external::python();
    let command = [python.to_str().expect("UTF-8"), program];
    let file = json!({"agent": "worker", "tasks": "tasks.jsonl", "command": command,
        "reward": "exit_code", "at_once": EPISODES, "timeout": "4 min",
        "group_size": TRIES, "tasks_per_step": TASKS, "resample": 0});
    let tasks: Vec<Value> = (0..TASKS)
        .map(|n| json!({"id": format!("task-{n}")}))
        .collect();
    let file = written(&home, &file.to_string(), &tasks);
    let file = file.to_str().expect("UTF-8").to_owned();
    let proxy = home.start().await.unwrap();
    let port = proxy.port();
    let kills = async {
        wait_for(&home, EPISODES / 8).await;
        for trainer in trainers_of(home.path()) {
            signal(trainer, Signal::KILL).unwrap();
        }
        wait_for(&home, EPISODES / 4).await;
        proxy.kill().await.unwrap();
        home.start_on(port).await.unwrap()
    };
    let (ran, proxy) = tokio::join!(run(&home, &file), kills);
    let listed = rollouts(&home).await;
    let turns = home.turns().await;
    assert_none_lost(&ran, &listed);
    assert_none_crossed(&listed, &turns);
    proxy.stop().await.unwrap();
}

/// Every try of a task has one episode with a score, and every episode ended in one way.
fn assert_none_lost(ran: &Value, listed: &[Value]) {
    let mut scored: BTreeMap<&str, usize> = BTreeMap::new();
    let mut by_state: BTreeMap<&str, usize> = BTreeMap::new();
    for rollout in listed {
        let state = rollout["state"].as_str().unwrap();
        *by_state.entry(state).or_default() += 1;
        if state == "scored" {
            *scored.entry(rollout["task"].as_str().unwrap()).or_default() += 1;
        }
    }
    assert_eq!(scored.len(), TASKS, "{by_state:?}");
    assert!(scored.values().all(|n| *n == TRIES), "{scored:?}");
    let count = |state: &str| by_state.get(state).copied().unwrap_or_default();
    let funnel = &ran["funnel"];
    let opened = usize::try_from(funnel["opened"].as_u64().unwrap()).unwrap();
    // All succeed, so nothing can be learned from them.
    for whole in ["scored", "without_difference"] {
        assert_eq!(funnel[whole], EPISODES, "{funnel}: {by_state:?}");
    }
    let ended = count("failed") + count("unfinished") + EPISODES;
    assert_eq!(ended, opened, "{funnel}: {by_state:?}");
    // One that was opened while the proxy was killed, so that nobody was told of it, ends at its deadline.
    let of_nobody = listed.iter().filter(|it| it["state"] == "open");
    assert_eq!(
        count("open"),
        listed.len() - opened,
        "{funnel}: {by_state:?}"
    );
    assert!(
        of_nobody.map(|it| &it["n_turns"]).all(|n| *n == 0),
        "nobody talks in it"
    );
}

/// Every turn is of the episode whose id it says, and an episode with a score has all of its turns.
fn assert_none_crossed(listed: &[Value], turns: &[Turn]) {
    let mut n_turns: BTreeMap<String, usize> = BTreeMap::new();
    for turn in turns {
        let mark = turn.served.rollout.as_ref().expect("a rollout's turn");
        let said = turn.request.messages[0].text();
        assert_eq!(said, format!("Please say {}.", mark.id));
        *n_turns.entry(mark.id.to_string()).or_default() += 1;
    }
    for rollout in listed.iter().filter(|it| it["state"] == "scored") {
        let id = rollout["id"].as_str().unwrap();
        assert_eq!(n_turns.get(id), Some(&TURNS), "{rollout}");
        assert_eq!(rollout["n_turns"], TURNS, "{rollout}");
    }
}
