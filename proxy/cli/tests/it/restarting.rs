//! A proxy in the background that is killed: requests are late, and none fails.

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};

use crate::harness::{Home, Upstream};

const START: [&str; 5] = ["start", "-d", "--port", "0", "--no-wire"];

fn run_file(home: &Home) -> Value {
    let text = home.read("run.json");
    serde_json::from_str(&text).unwrap()
}

fn process(run: &Value) -> Pid {
    let pid = run["pid"].as_i64().expect("no pid");
    Pid::from_raw(pid.try_into().unwrap()).expect("no process has number 0")
}

async fn chat(run: &Value) -> std::io::Result<String> {
    let url = run["base_url"].as_str().expect("no address");
    let url = url.trim_end_matches("/v1");
    let message = json!({"role": "user", "content": "hello"});
    let body = json!({"model": "default", "max_tokens": 8, "messages": [message]});
    metaclaw_test_kit::post(url, "/v1/chat/completions", "", &body).await
}

#[tokio::test]
async fn a_killed_proxy_is_started_again_and_the_next_request_waits_for_it() {
    let upstream = Upstream::new();
    let home = Home::before(&upstream.url);
    home.ask(&START).await;
    let first = run_file(&home);
    for n_killed in 1..=3 {
        let run = run_file(&home);
        let pid = process(&run);
        kill_process(pid, Signal::KILL).unwrap();
        let reply = chat(&run).await.unwrap();
        assert!(reply.starts_with("HTTP/1.1 200 "), "{n_killed}: {reply}");
        let again = run_file(&home);
        assert_ne!(process(&again), pid);
        assert_eq!(again["base_url"], first["base_url"]);
    }
    let log = home.read("metaclaw.log");
    assert!(log.contains("the proxy was ended by signal 9"), "{log}");

    // An end that is asked for is one: the port is closed.
    let last = run_file(&home);
    home.ask(&["stop"]).await;
    assert!(chat(&last).await.is_err());
    assert!(test_kill_process(process(&last)).is_err());
}

#[tokio::test]
async fn after_an_upgrade_the_proxy_is_started_again_from_the_new_program() {
    let upstream = Upstream::new();
    // With a trainer, which nothing asks for here, the home has a copy of the program.
    let home = Home::before(&upstream.url).with_trainer("exit 1");
    home.ask(&START).await;
    let run = run_file(&home);
    let program = home.path().join("bin/metaclaw");
    let new = home.path().join("bin/new");
    std::fs::copy(&program, &new).unwrap();
    std::fs::rename(&new, &program).unwrap();

    kill_process(process(&run), Signal::KILL).unwrap();
    let reply = chat(&run).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    let again = process(&run_file(&home)).as_raw_nonzero();
    let runs = std::fs::read_link(format!("/proc/{again}/exe")).unwrap();
    assert_eq!(runs, program.canonicalize().unwrap());
    home.ask(&["stop"]).await;
}

#[tokio::test]
async fn a_proxy_that_cannot_start_is_not_started_again() {
    let upstream = Upstream::new();
    let home = Home::before(&upstream.url);
    // The log of turns cannot be opened: a file has its folder's name.
    home.write("turns", "");
    let refusal = home.refusal(&START).await;
    assert!(refusal.contains("it ended at once"), "{refusal}");
    let log = home.read("metaclaw.log");
    assert!(!log.contains("it is started again"), "{log}");
}
