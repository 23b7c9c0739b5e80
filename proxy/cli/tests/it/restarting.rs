//! A proxy in the background that is killed: requests are late, and none fails.

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};

use crate::harness::{TestHome, Upstream, exchange, until};

const START: [&str; 5] = ["start", "-d", "--port", "0", "--no-wire"];

/// What the running proxy says of itself.
fn run_file(home: &TestHome) -> Result<Value> {
    let text = std::fs::read_to_string(home.path().join("run.json"))?;
    Ok(serde_json::from_str(&text)?)
}

fn process(run: &Value) -> Result<Pid> {
    let pid = run["pid"].as_i64().context("no pid")?;
    Pid::from_raw(pid.try_into()?).context("no process has number 0")
}

async fn chat(run: &Value) -> Result<String> {
    let url = run["base_url"].as_str().context("no address")?;
    let url = url.trim_end_matches("/v1");
    let message = json!({"role": "user", "content": "hello"});
    let body = json!({"model": "default", "max_tokens": 8, "messages": [message]}).to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    exchange(url, &(head + &body)).await
}

#[tokio::test]
async fn a_killed_proxy_is_started_again_and_the_next_request_waits_for_it() {
    let upstream = Upstream::new().await.unwrap();
    let home = TestHome::before(&upstream).unwrap();
    home.ask(&START).await.unwrap();
    let first = run_file(&home).unwrap();
    for n_killed in 1..=3 {
        let run = run_file(&home).unwrap();
        let pid = process(&run).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        let reply = chat(&run).await.unwrap();
        assert!(reply.starts_with("HTTP/1.1 200 "), "{n_killed}: {reply}");
        let again = run_file(&home).unwrap();
        assert_ne!(process(&again).unwrap(), pid);
        assert_eq!(again["base_url"], first["base_url"]);
    }
    let log = std::fs::read_to_string(home.path().join("metaclaw.log")).unwrap();
    assert!(log.contains("the proxy was ended by signal 9"), "{log}");

    // An end that is asked for is one: the port is closed.
    let last = run_file(&home).unwrap();
    home.ask(&["stop"]).await.unwrap();
    until(async || Ok(chat(&last).await.is_err()))
        .await
        .unwrap();
    assert!(test_kill_process(process(&last).unwrap()).is_err());
}

#[tokio::test]
async fn after_an_upgrade_the_proxy_is_started_again_from_the_new_program() {
    let upstream = Upstream::new().await.unwrap();
    // With a trainer, which nothing asks for here, the home has a copy of the program.
    let home = TestHome::before(&upstream)
        .unwrap()
        .with_trainer("exit 1")
        .unwrap();
    home.ask(&START).await.unwrap();
    let run = run_file(&home).unwrap();
    let program = home.path().join("bin/metaclaw");
    let new = home.path().join("bin/new");
    std::fs::copy(&program, &new).unwrap();
    std::fs::rename(&new, &program).unwrap();

    kill_process(process(&run).unwrap(), Signal::KILL).unwrap();
    let reply = chat(&run).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    let again = process(&run_file(&home).unwrap()).unwrap().as_raw_nonzero();
    let runs = std::fs::read_link(format!("/proc/{again}/exe")).unwrap();
    assert_eq!(runs, program.canonicalize().unwrap());
    home.ask(&["stop"]).await.unwrap();
}

#[tokio::test]
async fn a_proxy_that_cannot_start_is_not_started_again() {
    let upstream = Upstream::new().await.unwrap();
    let home = TestHome::before(&upstream).unwrap();
    // The log of turns cannot be opened: a file has its folder's name.
    std::fs::write(home.path().join("turns"), "").unwrap();
    let refusal = home.refusal(&START).await.unwrap();
    assert!(refusal.contains("it ended at once"), "{refusal}");
    let log = std::fs::read_to_string(home.path().join("metaclaw.log")).unwrap();
    assert!(!log.contains("it is started again"), "{log}");
}
