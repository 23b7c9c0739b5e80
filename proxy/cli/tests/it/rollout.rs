//! `metaclaw rollout run` and `serve`: real programs talk to a real proxy before a scripted upstream.

use std::{path::Path, process::Stdio, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    time::timeout,
};

use crate::harness::{Home, Upstream, has};

/// Succeeds if the reply contains the task's answer. The upstream answers "answer to 1".
const AGENT: &str = r#"
import json, os, sys, urllib.request
task = json.load(open(os.environ["METACLAW_TASK"]))
body = {"model": "policy", "max_tokens": 9, "messages": [{"role": "user", "content": task["question"]}]}
request = urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(),
    {"content-type": "application/json", "authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
reply = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
print(reply)
sys.exit(0 if task["answer"] in reply else 1)
"#;

const TASKS: &str = "{\"id\": \"good\", \"question\": \"one?\", \"answer\": \"to 1\"}\n{\"id\": \"bad\", \"question\": \"two?\", \"answer\": \"to 2\"}\n";

fn write(home: &Home, more: &str) -> String {
    let path = |name: &str| home.path().join(name);
    std::fs::write(path("agent.py"), AGENT).unwrap();
    std::fs::write(path("tasks.jsonl"), TASKS).unwrap();
    let file = format!("tasks: tasks.jsonl\ngroup_size: 2\nresample: 0\n{more}\n");
    std::fs::write(path("tasks.yaml"), file).unwrap();
    path("tasks.yaml").to_string_lossy().into_owned()
}

#[tokio::test]
async fn tasks_are_measured_and_each_episode_is_in_the_log() {
    let upstream = Upstream::new();
    let home = Home::before(&upstream.url);
    let file = write(&home, "command: [python3, agent.py]");
    let refused = home.refusal(&["rollout", "run", &file]).await;
    assert!(refused.contains("`metaclaw start -d` first"), "{refused}");
    let dry = home.ask(&["rollout", "run", &file, "--dry-run"]).await;
    has(&dry, ["command:  python3 agent.py", "OPENAI_BASE_URL="]);

    let _proxy = home.start().await;
    let run = ["rollout", "run", &file, "--eval", "--tries", "2", "--json"];
    let measured = home.json(&run).await;
    let measured = &measured["measurements"][0];
    assert_eq!(
        (&measured["n_tasks"], &measured["n_tries"]),
        (&2.into(), &4.into()),
        "{measured}"
    );
    assert_eq!(measured["pass"][0]["estimate"], 0.5);
    assert_eq!(upstream.n_asked(), 4);
    let listed = home.ask(&["rollout", "list"]).await;
    assert_eq!(
        (
            listed.matches(" good ").count(),
            listed.matches(" bad ").count()
        ),
        (2, 2),
        "{listed}"
    );

    // Each task has the same end in every try, so there is nothing to learn.
    let ran = home.ask(&["rollout", "run", &file, "--run", "train"]).await;
    assert!(ran.contains("nothing was trained"), "{ran}");
}

#[tokio::test]
async fn the_programs_run_in_another_process_that_serves_them() {
    let upstream = Upstream::new();
    let home = Home::before(&upstream.url).with_variable("METACLAW_ENVIRONMENT_KEY", "k");
    let served = Home::bare().with_variable("METACLAW_ENVIRONMENT_KEY", "k");
    let file = write(&served, "command: [python3, agent.py]");
    let mut serving = served
        .command(&["rollout", "serve", &file, "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let out = serving.stdout.take().expect("a pipe");
    let line = BufReader::new(out)
        .lines()
        .next_line()
        .await
        .unwrap()
        .expect("no line");
    let url = line.split_whitespace().find(|it| it.starts_with("http://"));
    let url = url.unwrap().trim_end_matches(',');
    let file = write(&home, &format!("environments: ['{url}']"));
    let _proxy = home.start().await;
    let measured = home
        .json(&["rollout", "run", &file, "--eval", "--tries", "1", "--json"])
        .await;
    assert_eq!(measured["measurements"][0]["pass"][0]["estimate"], 0.5);
    let output = std::fs::read_dir(served.path().join("rollouts/serve/output"))
        .unwrap()
        .count();
    assert_eq!(output, 2, "the programs ran there");
    let pid = serving
        .id()
        .and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
    kill_process(pid.expect("it has ended"), Signal::INT).unwrap();
    assert!(serving.wait().await.unwrap().success());
}

/// How long the twenty tasks of an example may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Shows and measures an example, as its README does. The upstream answers with a text that solves no task.
async fn run_example(home: &Home, track: &str, n_tasks: usize) {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/rollouts");
    let file = format!("{example}/{track}/run.yaml");
    let dry = home.ask(&["rollout", "run", &file, "--dry-run"]).await;
    assert!(dry.contains(&format!("rollout agent {track}")), "{dry}");
    let run = ["rollout", "run", &file, "--eval", "--tries", "1", "--json"];
    let output = timeout(PATIENCE, home.command(&run).output())
        .await
        .unwrap()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    let measured: Value = serde_json::from_slice(&output.stdout).expect(&told);
    let measurement = &measured["measurements"][0];
    assert_eq!(measurement["n_tasks"], n_tasks, "{measured}");
    assert_eq!(measurement["n_tries"], n_tasks, "{measured}");
    assert_eq!(measurement["pass"][0]["estimate"], 0.0, "{measured}");
    // The run that trains, on one group of two.
    let folder = home.path().join(track);
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .arg(Path::new(example).join(track))
        .arg(&folder)
        .status()
        .unwrap();
    assert!(copied.success());
    let file = folder.join("run.yaml");
    let whole = std::fs::read_to_string(&file).unwrap();
    let is_size =
        |line: &&str| line.starts_with("group_size") || line.starts_with("tasks_per_step");
    let rest: Vec<&str> = whole
        .lines()
        .filter(|line| !is_size(line) && !line.starts_with("eval_"))
        .collect();
    let small = "\ngroup_size: 2\ntasks_per_step: 1\nsteps: 1\nresample: 0\n";
    std::fs::write(&file, rest.join("\n") + small).unwrap();
    let file = file.to_str().expect("UTF-8");
    let name = format!("{track}-train");
    let ran = home.ask(&["rollout", "run", file, "--run", &name]).await;
    assert!(ran.contains("episodes: 2 opened = 2 scored"), "{ran}");
}

#[tokio::test]
#[ignore = "needs 10 s, cargo xtask test --all runs it"]
async fn the_examples_of_tracks_are_shown_measured_and_trained_on() {
    if std::process::Command::new("bwrap")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("skipped: bubblewrap is not installed");
        return;
    }
    let upstream = Upstream::new();
    let mut server = tokio::process::Command::new("python3")
        .arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../examples/rollouts/gui/server.py"
        ))
        .args(["--port", "0"])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let out = server.stdout.take().expect("a pipe");
    // Without Chromium there is no address, and the example of the track `gui` is left out.
    let address = BufReader::new(out).lines().next_line().await.unwrap();
    let named = address.as_deref().unwrap_or_default();
    let home = Home::before(&upstream.url).with_variable("METACLAW_GUI_SERVER", named);
    let _proxy = home.start().await;
    run_example(&home, "terminal", 5).await;
    run_example(&home, "toolcall", 5).await;
    run_example(&home, "swe", 20).await;
    if address.is_some() {
        run_example(&home, "gui", 20).await;
        let pid = server
            .id()
            .and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
        kill_process(pid.expect("it has ended"), Signal::INT).unwrap();
        server.wait().await.unwrap();
    }
}
