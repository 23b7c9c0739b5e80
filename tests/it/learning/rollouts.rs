//! Two steps of GRPO on the real engine, with the gate on: tool calls that a program of the test's own asks for over HTTP.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    sync::LazyLock,
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, stream};
use metaclaw_test_kit::until_within;
use metaclaw_tests::{client::Client, external, home::Home};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::home_without_wishes;

/// Episodes at once.
const AT_ONCE: usize = 8;
/// Tries of a task.
const TRIES: usize = 8;
/// Groups may be tried again with other tasks if none of a step differs.
const ROUNDS: usize = 3;

static CALLS: LazyLock<Calls> =
    LazyLock::new(|| serde_saphyr::from_str(include_str!("rollouts.yaml")).expect("tasks"));

/// The file rollouts.yaml.
#[derive(Debug, Deserialize)]
struct Calls {
    system: String,
    shown: Vec<(String, String)>, // pair: a request and its reply
    tasks: Vec<CallTask>,
    held_out: Vec<CallTask>,
}

/// A request, and the call that it asks for.
#[derive(Debug, Clone, Deserialize)]
struct CallTask {
    request: String,
    name: String,
    arguments: Value,
}

/// What an episode is opened with.
#[derive(Debug, Clone)]
struct CallEpisode {
    task: CallTask,
    group: String,
    attempt: usize,
    size: usize,
    held_out: bool,
    adapter: Option<String>,
}

/// Returns whether a reply is the call that a task asks for, and nothing else.
fn succeeds(task: &CallTask, reply: &Value) -> bool {
    let calls = reply["tool_calls"].as_array();
    let is_silent = reply["content"]
        .as_str()
        .is_none_or(|it| it.trim().is_empty());
    let is_it = |call: &Value| {
        let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
        let arguments = serde_json::from_str::<Value>(arguments).ok();
        call["function"]["name"] == task.name && arguments.as_ref() == Some(&task.arguments)
    };
    is_silent && calls.is_some_and(|calls| calls.len() == 1 && is_it(&calls[0]))
}

/// Asks for one reply.
async fn ask(client: &Client, messages: &[Value], max_tokens: u32) -> Value {
    let body = json!({
        "model": "default", "messages": messages, "max_tokens": max_tokens, "temperature": 1,
    });
    let reply = client
        .post("/v1/chat/completions", &body)
        .send()
        .await
        .unwrap();
    let mut reply: Value = reply.json().await.unwrap();
    reply["choices"][0]["message"].take()
}

/// Runs one episode of two turns; returns its outcome.
async fn run(client: &Client, episode: CallEpisode) -> f64 {
    let CallEpisode { task, .. } = &episode;
    let opened = client.post(
        "/v1/rollouts",
        &json!({
            "task": task.request, "group": episode.group, "group_size": episode.size, "attempt": episode.attempt,
            "held_out": episode.held_out, "adapter": episode.adapter,
        }),
    );
    let opened = opened.send().await.unwrap();
    assert_eq!(opened.status(), 201, "{}", opened.text().await.unwrap());
    let opened: Value = opened.json().await.unwrap();
    let base_url = opened["base_url"].as_str().unwrap();
    let key = format!("Bearer {}", opened["api_key"].as_str().unwrap());
    let own = Client::with_headers(
        base_url.trim_end_matches("/v1"),
        &[("authorization", key.as_str())],
    );
    let mut messages = vec![json!({"role": "system", "content": CALLS.system})];
    for (request, call) in &CALLS.shown {
        messages.push(json!({"role": "user", "content": request}));
        messages.push(json!({"role": "assistant", "content": call}));
    }
    messages.push(json!({"role": "user", "content": task.request}));
    let reply = ask(&own, &messages, 40).await;
    let outcome = if succeeds(task, &reply) { 1.0 } else { -1.0 };
    messages.push(reply);
    messages.push(json!({"role": "user", "content": "Thank you!"}));
    ask(&own, &messages, 8).await;
    let closed = json!({"rollout": opened["id"], "score": outcome});
    let closed = client.post("/v1/feedback", &closed).send().await.unwrap();
    assert!(
        closed.status().is_success(),
        "{}",
        closed.text().await.unwrap()
    );
    outcome
}

/// Runs episodes, some at once; returns the share of those that succeeded.
async fn run_all(client: &Client, episodes: Vec<CallEpisode>) -> f64 {
    let n = episodes.len();
    let runs = episodes.into_iter().map(|episode| run(client, episode));
    let outcomes: Vec<f64> = stream::iter(runs).buffer_unordered(AT_ONCE).collect().await;
    outcomes.iter().filter(|it| **it > 0.0).count() as f64 / n as f64
}

/// Runs the held-out tasks once each.
async fn try_held_out(client: &Client, adapter: Option<String>, name: &str) -> f64 {
    let of = |task: &CallTask| CallEpisode {
        group: format!("{name}/{}", task.request),
        task: task.clone(),
        attempt: 0,
        size: 1,
        held_out: true,
        adapter: adapter.clone(),
    };
    run_all(client, CALLS.held_out.iter().map(of).collect()).await
}

/// Runs groups of the tasks of one round.
async fn try_groups(client: &Client, name: &str, tasks: &[CallTask]) -> f64 {
    let of = |task: &CallTask| {
        let (group, task) = (format!("{name}/{}", task.request), task.clone());
        (0..TRIES).map(move |attempt| CallEpisode {
            task: task.clone(),
            group: group.clone(),
            attempt,
            size: TRIES,
            held_out: false,
            adapter: None,
        })
    };
    run_all(client, tasks.iter().flat_map(of).collect()).await
}

/// Does what the gate wants, until the step is made.
async fn do_what_the_gate_wants(client: &Client) -> std::convert::Infallible {
    let mut done = Value::Null;
    loop {
        let wanted = client.get_json("/v1/rollouts/wanted?agent=_default").await;
        let wanted = wanted.unwrap();
        if wanted["held_out"].as_u64().unwrap() > 0 && wanted != done {
            let adapter = wanted["adapter"].as_str().map(str::to_owned);
            let name = format!("gate of {}", adapter.as_deref().unwrap_or("what serves"));
            let success = try_held_out(client, adapter, &name).await;
            println!("{name}: {success:.2} of the held-out tasks");
            done = wanted;
        }
        sleep(Duration::from_millis(250)).await;
    }
}

/// Asks for a step, as `metaclaw rollout run` does. None is made if no group differs.
async fn step(home: &Home, client: &Client) -> Option<Value> {
    let asked = async { home.ask(&["train-step", "--json"]).await.unwrap() };
    let made = tokio::select! {
        made = asked => made,
        never = do_what_the_gate_wants(client) => match never {},
    };
    let steps = made
        .as_array()
        .cloned()
        .unwrap_or_else(|| vec![made.clone()]);
    steps
        .into_iter()
        .find(|step| step["losses"]["rollouts"].is_number())
}

/// The gate has measured what can suffer, and its word decides. Which word that is depends on what was sampled.
fn assert_gated(step: &Value) {
    let tests = step["gate"]["tests"].as_array().unwrap();
    let verdict = |name: &str| {
        let test = tests.iter().find(|test| test["name"] == name);
        test.and_then(|it| it["passed"].as_bool())
    };
    for name in ["capability", "tools", "tasks"] {
        assert!(verdict(name).is_some(), "{name}: {tests:#?}");
    }
    let passed = tests.iter().all(|test| test["passed"] != false);
    assert_eq!(step["serves"], passed, "{step}");
}

#[tokio::test]
#[ignore = "needs the binaries and the model, cargo xtask test runs it"]
async fn two_steps_of_grpo_train_tool_calls_and_the_gate_tests_them() {
    // So small a rate that two steps on single groups lose nothing else.
    let home = home_without_wishes()
        .with_env("METACLAW__MODE", "auto")
        .with_env("METACLAW__RL__LEARNING_RATE", "0.0001");
    let home = with_wandb(home);
    let proxy = home.start().await.unwrap();
    let client = proxy.client();
    let began = Instant::now();
    let base = try_held_out(&client, None, "before").await;
    println!(
        "base: {base:.2} of the held-out tasks, {:.0?}",
        began.elapsed()
    );
    let mut rounds = CALLS.tasks.chunks(4).cycle();
    for n in 1..=2 {
        let mut made = None;
        for round in 0..ROUNDS {
            let tasks = rounds.next().unwrap();
            let success = try_groups(&client, &format!("step {n}.{round}"), tasks).await;
            println!(
                "step {n}: {success:.2} of the rollouts, {:.0?}",
                began.elapsed()
            );
            made = step(&home, &client).await;
            if made.is_some() {
                break;
            }
        }
        let step = made.unwrap_or_else(|| panic!("no group differed: {}", home.log()));
        println!("step {n}, {:.0?}: {step:#}", began.elapsed());
        assert!(
            step["grad_norm"].as_f64().is_some_and(|it| it > 0.0),
            "{step}"
        );
        let rollouts = &step["batch"]["rollouts"];
        assert!(rollouts["n"].as_u64().unwrap() >= TRIES as u64, "{step}");
        // The tries of a task and the turns of a rollout share their beginnings.
        let [read, computed] = ["n_tokens", "n_computed"].map(|it| step[it].as_u64().unwrap());
        assert!(
            computed * 4 < read,
            "{computed} of {read} tokens are computed"
        );
        assert_gated(&step);
    }
    println!("two steps took {:.0?}", began.elapsed());
    proxy.stop().await.unwrap();
    if external::wandb().is_some() {
        // The client ends after the proxy.
        let n_runs = async || live_runs(&home);
        until_within(Duration::from_secs(60), "the run of wandb", n_runs, |it| {
            *it > 0
        })
        .await;
    }
}

/// Has the learner find the client of Weights & Biases, which keeps everything on this machine.
fn with_wandb(home: Home) -> Home {
    let Some(python) = external::wandb() else {
        return home;
    };
    let bin = home.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let script = format!("#!/bin/sh\nexec {} \"$@\"\n", python.display());
    fs::write(bin.join("python3"), script).unwrap();
    fs::set_permissions(bin.join("python3"), fs::Permissions::from_mode(0o755)).unwrap();
    home.with_env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
        .with_env("WANDB_API_KEY", "0".repeat(40))
        .with_env("WANDB_MODE", "offline")
}

/// Returns how many runs the client has kept with a step of rollouts in them.
fn live_runs(home: &Home) -> usize {
    let folder = home.path().join("learning/wandb");
    let runs = fs::read_dir(folder).into_iter().flatten().flatten();
    let files = runs.flat_map(|run| fs::read_dir(run.path()).into_iter().flatten().flatten());
    let has_success = |file: &fs::DirEntry| {
        let record = fs::read(file.path()).unwrap_or_default();
        record.windows(15).any(|it| it == b"rollout/success")
    };
    files.filter(has_success).count()
}
