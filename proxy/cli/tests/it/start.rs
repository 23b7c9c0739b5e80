//! Tests of start, chat, status and stop; twice in one home; killed and started again.

use std::{os::unix::fs::PermissionsExt, time::Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::harness::{TestHome, Upstream, until};

#[tokio::test]
async fn a_day_with_the_proxy() {
    let upstream = Upstream::new().await.unwrap();
    let home = TestHome::before(&upstream).unwrap();
    let proxy = home.start().await.unwrap();
    assert_eq!(proxy.chat("s1", &["Hello"]).await.unwrap(), "answer to 1");
    let said = ["Hello", "answer to 1", "Thanks."];
    assert_eq!(proxy.chat("s1", &said).await.unwrap(), "answer to 3");

    let status = home.json(&["status", "--json"]).await.unwrap();
    assert_eq!(status["running"], true);
    assert_eq!(status["about"]["mode"], "skills_only");
    let both = async || {
        let turns = home.json(&["turns", "list", "--json"]).await?;
        Ok(turns.as_array().is_some_and(|turns| turns.len() == 2))
    };
    until(both).await.unwrap();
    let turns = home.json(&["turns", "list", "--json"]).await.unwrap();
    assert_eq!(turns[0]["session"], "s1");
    assert_eq!(turns[0]["answered"], "answer to 3");
    let id = turns[1]["id"].as_str().unwrap();
    let whole = home.ask(&["turns", "show", id]).await.unwrap();
    assert!(
        whole.ends_with("[user] Hello\n[reply] answer to 1"),
        "{whole}"
    );
    assert!(whole.contains("served    scripted by llm"), "{whole}");
    let lines = home.ask(&["turns", "export"]).await.unwrap();
    assert_eq!(lines.lines().count(), 2);
    let shown = home.ask(&["status"]).await.unwrap();
    assert!(shown.starts_with("MetaClaw: running  (PID="), "{shown}");

    let mode = |name: &str| {
        std::fs::metadata(home.path().join(name))
            .unwrap()
            .permissions()
            .mode()
    };
    assert_eq!(mode("run.json") & 0o777, 0o600);
    let stopped = home.ask(&["stop"]).await.unwrap();
    assert!(stopped.starts_with("MetaClaw: stopped"), "{stopped}");
    assert!(proxy.ended().await.unwrap().success());
    assert!(!home.path().join("run.json").exists());

    let after = home.run(&["status"]).await.unwrap();
    assert_eq!(after.status.code(), Some(3));
    let turns = home.json(&["turns", "list", "--json"]).await.unwrap();
    assert_eq!(
        turns.as_array().unwrap().len(),
        2,
        "read from the files where nothing runs"
    );
    let lines = home.ask(&["turns", "export"]).await.unwrap();
    assert_eq!(lines.lines().count(), 2);
}

#[tokio::test]
async fn the_owner_judges_a_reply_and_may_think_again() {
    let upstream = Upstream::new().await.unwrap();
    let home = TestHome::before(&upstream).unwrap();
    let proxy = home.start().await.unwrap();
    proxy.chat("s", &["Hello"]).await.unwrap();
    let feedback =
        async |body: serde_json::Value| proxy.send("/v1/feedback", "s", &body).await.unwrap();
    let good = json!({"reply_id": "chatcmpl-1", "score": 1});
    let taken = async || Ok(feedback(good.clone()).await.contains("200 OK"));
    until(taken).await.unwrap();
    let text = "Please always answer in one short sentence.";
    let again = feedback(json!({"session": "s", "score": -1, "text": text})).await;
    assert!(again.contains("\"overruled\":1"), "{again}");
    let turns = home.json(&["turns", "list", "--json"]).await.unwrap();
    assert_eq!(turns[0]["score"], -1, "{turns}");
    let shown = home.ask(&["turns", "show", "1-0"]).await.unwrap();
    assert!(shown.contains(text), "{shown}");
    let wishes = home.ask(&["wishes", "list"]).await.unwrap();
    assert!(wishes.contains("one short sentence"), "{wishes}");
    for unknown in [
        json!({"turn": "9-0", "score": 1}),
        json!({"session": "x", "score": 1}),
    ] {
        let answer = feedback(unknown).await;
        assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    }
    let unknown = feedback(json!({"reply_id": "chatcmpl-9", "score": 1})).await;
    assert!(unknown.starts_with("HTTP/1.1 404"), "{unknown}");
    // Before this test, the file came back as long as it was.
    let long = "x".repeat(1 << 20);
    for (reply_id, score, status) in [(&*long, json!(1), 404), ("chatcmpl-1", json!(long), 400)] {
        let quoted = feedback(json!({"reply_id": reply_id, "score": score})).await;
        assert!(
            quoted.starts_with(&format!("HTTP/1.1 {status}")),
            "{} bytes",
            quoted.len()
        );
        assert!(
            quoted.contains("xxx…") && quoted.len() < 1_000,
            "{} bytes",
            quoted.len()
        );
    }
    let wrong = feedback(json!({"reply_id": "chatcmpl-1", "score": 7})).await;
    assert!(
        wrong.contains("score 7 is not allowed: -1, 0 or 1"),
        "{wrong}"
    );
    proxy.kill().await.unwrap();
}

#[tokio::test]
async fn one_home_has_one_proxy() {
    let upstream = Upstream::new().await.unwrap();
    let home = TestHome::before(&upstream).unwrap();
    let proxy = home.start().await.unwrap();
    let refusal = home.refusal(&["start"]).await.unwrap();
    let pid = proxy.child.id().unwrap().to_string();
    insta::assert_snapshot!(refusal.replace(&pid, "PID"), @r#"metaclaw: `metaclaw start` already runs in HOME (process PID): `metaclaw stop` ends it, `metaclaw start --port N` starts another beside it"#);
    assert_eq!(
        proxy.chat("s", &["still there?"]).await.unwrap(),
        "answer to 1"
    );
}

#[tokio::test]
async fn a_terminal_that_is_closed_ends_it_in_good_order() {
    let upstream = Upstream::new().await.unwrap();
    let home = TestHome::before(&upstream).unwrap();
    let proxy = home.start().await.unwrap();
    proxy.chat("s", &["Hello"]).await.unwrap();
    proxy.signal(Signal::HUP).unwrap();
    assert!(proxy.ended().await.unwrap().success());
    assert!(!home.path().join("run.json").exists());
    let turns = home.json(&["turns", "list", "--json"]).await.unwrap();
    assert_eq!(turns.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_kill_loses_no_turn_that_was_answered() {
    let upstream = Upstream::new().await.unwrap();
    let home = TestHome::before(&upstream).unwrap();
    let proxy = home.start().await.unwrap();
    for session in ["a", "b", "c"] {
        proxy.chat(session, &["Hello"]).await.unwrap();
    }
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    proxy.kill().await.unwrap();
    assert!(
        home.path().join("run.json").exists(),
        "a killed process leaves it"
    );

    let turns = home.json(&["turns", "list", "--json"]).await.unwrap();
    assert_eq!(
        turns.as_array().unwrap().len(),
        3,
        "the left run.json fools nobody"
    );
    let proxy = home.start().await.unwrap();
    proxy.chat("d", &["Hello"]).await.unwrap();
    let all_there = async || {
        let status = home.json(&["status", "--json"]).await?;
        Ok(status["funnel"]["turns"] == 4)
    };
    until(all_there).await.unwrap();
    proxy.kill().await.unwrap();
}

#[tokio::test]
async fn it_goes_to_the_background_once_it_listens() {
    let upstream = Upstream::new().await.unwrap();
    let home = TestHome::before(&upstream).unwrap();
    let said = home.ask(&["start", "-d"]).await.unwrap();
    assert!(said.contains("in the background: process"), "{said}");
    let status = home.json(&["status", "--json"]).await.unwrap();
    assert_eq!(status["running"], true);
    let again = home.refusal(&["start", "-d"]).await.unwrap();
    assert!(again.contains("already runs in HOME"), "{again}");
    home.ask(&["stop"]).await.unwrap();
    let log = std::fs::read_to_string(home.path().join("metaclaw.log")).unwrap();
    assert!(log.contains("metaclaw starts"), "{log}");
}

/// Before this test, warnings with `-d` were in the log only. Before this test, values from the environment were called
/// "the defaults".
#[tokio::test]
async fn in_the_background_warnings_are_printed_where_it_was_started() {
    let home = TestHome::new("mode: skills_only\nproxy: {port: 0}\nllmm: {api_key: k}\n").unwrap();
    let skills = home.path().join("skills");
    std::fs::create_dir_all(skills.join("lower")).unwrap();
    std::fs::write(skills.join("lower/skill.md"), "x").unwrap();
    let mut start = home.command(&["start", "-d"]);
    start.env("METACLAW_LLM_API_BASE", "http://127.0.0.1:9/v1");
    start.env("METACLAW__LLM__API_BASE", "http://127.0.0.1:9/v1");
    let output = start.output().await.unwrap();
    let said = home.neutral(&String::from_utf8(output.stdout).unwrap());
    let warnings: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("  warning"))
        .collect();
    insta::assert_snapshot!(warnings.join("\n"), @r"
    warning   unknown key llmm in HOME/config.yaml: did you mean llm?
    warning   METACLAW_LLM_API_BASE in the environment has no effect: METACLAW__LLM__API_BASE, with two underscores each time, stands for llm.api_base
    warning   HOME/skills/lower/skill.md: is not read: it must be called SKILL.md
    ");
    assert!(
        said.contains("settings  HOME/config.yaml, and from the environment: llm.api_base"),
        "{said}"
    );
    home.ask(&["stop"]).await.unwrap();
}

/// Before this test, the status reported no fault whatever happened, and no changed setting.
#[tokio::test]
async fn the_status_tells_what_upstreams_answer_and_that_the_file_is_another() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    drop(taken);
    let home = TestHome::new(&format!(
        "mode: skills_only\nproxy: {{port: 0}}\nllm: {{api_base: 'http://{address}/v1'}}\n"
    ))
    .unwrap();
    let proxy = home.start().await.unwrap();
    assert!(proxy.get("/readyz").await.unwrap().contains("200"));
    proxy.post("s", &["Hello"]).await.unwrap();
    let status = home.ask(&["status"]).await.unwrap();
    assert!(status.contains("asked:   llm fails: 127.0.0.1"), "{status}");
    assert!(status.contains("(0 answered, 1 failed)"), "{status}");
    assert!(proxy.get("/readyz").await.unwrap().contains("503"));
    assert!(!status.contains("changed since"), "{status}");
    home.ask(&["config", "llm.model_id", "m"]).await.unwrap();
    let status = home.ask(&["status"]).await.unwrap();
    let changed = "settings: HOME/config.yaml changed since the start: restart to use it";
    assert!(home.neutral(&status).contains(changed), "{status}");
    proxy.kill().await.unwrap();
}

#[tokio::test]
async fn the_metrics_have_the_learners_counters() {
    let upstream = Upstream::new().await.unwrap();
    let home = TestHome::before(&upstream).unwrap();
    let proxy = home.start().await.unwrap();
    home.ask(&["wishes", "add", "Be brief."]).await.unwrap();
    let metrics = proxy.get_whole("/metrics").await.unwrap();
    for line in [
        "metaclaw_lessons{state=\"in_force\"} 1",
        "metaclaw_verdicts_total{score=\"-1\"} 0",
        "metaclaw_judge_requests_total 0",
        "metaclaw_judge_queue_turns 0",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    proxy.kill().await.unwrap();
}

#[tokio::test]
async fn the_version_comes_at_once() {
    let home = TestHome::new("").unwrap();
    home.ask(&["--version"]).await.unwrap();
    let begun = Instant::now();
    let version = home.ask(&["--version"]).await.unwrap();
    let took = begun.elapsed();
    assert_eq!(version, concat!("metaclaw ", env!("CARGO_PKG_VERSION")));
    // It takes 50 ms on an idle machine, and longer beside a build.
    assert!(took.as_millis() < 1_000, "{took:?}");
}

#[tokio::test]
async fn settings_are_shown_and_changed() {
    let home = TestHome::new("# mine\nmode: rl # for now\n").unwrap();
    assert_eq!(home.ask(&["config", "mode"]).await.unwrap(), "rl");
    home.ask(&["config", "mode", "madmax"]).await.unwrap();
    home.ask(&["config", "set", "rl.batch_size", "8"])
        .await
        .unwrap();
    let file = std::fs::read_to_string(home.path().join("config.yaml")).unwrap();
    assert_eq!(file, "# mine\nmode: auto # for now\nrl:\n  batch_size: 8\n");
    let shown = home
        .json(&["config", "get", "rl.batch_size", "--json"])
        .await
        .unwrap();
    assert_eq!(shown["value"], 8);
    let example = home.ask(&["config", "example"]).await.unwrap();
    assert!(example.contains("batch_size: 4"), "{example}");
}
