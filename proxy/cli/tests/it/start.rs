//! Tests of start, chat, status and stop; twice in one home; killed and started again.

use std::{os::unix::fs::PermissionsExt, time::Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::harness::{Home, Upstream, gone, has, n_of, started, until};

#[tokio::test]
async fn a_day_with_the_proxy() {
    let (_upstream, home, proxy) = started().await;
    assert_eq!(proxy.chat("s1", &["Hello"]).await, "answer to 1");
    let said = ["Hello", "answer to 1", "Thanks."];
    assert_eq!(proxy.chat("s1", &said).await, "answer to 3");

    let status = home.json(&["status", "--json"]).await;
    assert_eq!(status["running"], true);
    assert_eq!(status["about"]["mode"], "skills_only");
    let turns = home
        .json_until(&["turns", "list", "--json"], |it| n_of(it) == 2)
        .await;
    assert_eq!(turns[0]["session"], "s1");
    assert_eq!(turns[0]["answered"], "answer to 3");
    let id = turns[1]["id"].as_str().unwrap();
    let whole = home.ask(&["turns", "show", id]).await;
    assert!(
        whole.ends_with("[user] Hello\n[reply] answer to 1"),
        "{whole}"
    );
    assert!(whole.contains("served    scripted by llm"), "{whole}");
    let lines = home.ask(&["turns", "export"]).await;
    assert_eq!(lines.lines().count(), 2);
    let shown = home.ask(&["status"]).await;
    assert!(shown.starts_with("MetaClaw: running  (PID="), "{shown}");

    let mode = |name: &str| {
        std::fs::metadata(home.path().join(name))
            .unwrap()
            .permissions()
            .mode()
    };
    assert_eq!(mode("run.json") & 0o777, 0o600);
    let stopped = home.ask(&["stop"]).await;
    assert!(stopped.starts_with("MetaClaw: stopped"), "{stopped}");
    assert!(proxy.ended().await.success());
    assert!(!home.path().join("run.json").exists());

    let after = home.run(&["status"]).await;
    assert_eq!(after.status.code(), Some(3));
    let turns = home.json(&["turns", "list", "--json"]).await;
    assert_eq!(
        turns.as_array().unwrap().len(),
        2,
        "read from the files where nothing runs"
    );
    let lines = home.ask(&["turns", "export"]).await;
    assert_eq!(lines.lines().count(), 2);
}

#[tokio::test]
async fn the_owner_judges_a_reply_and_may_think_again() {
    let (_upstream, home, proxy) = started().await;
    proxy.chat("s", &["Hello"]).await;
    let feedback = async |body: serde_json::Value| proxy.send("/v1/feedback", "s", &body).await;
    let good = json!({"reply_id": "chatcmpl-1", "score": 1});
    let taken = async || feedback(good.clone()).await;
    until("the verdict", taken, |it| it.contains("200 OK")).await;
    let text = "Please always answer in one short sentence.";
    let again = feedback(json!({"session": "s", "score": -1, "text": text})).await;
    assert!(again.contains("\"overruled\":1"), "{again}");
    let turns = home.json(&["turns", "list", "--json"]).await;
    assert_eq!(turns[0]["score"], -1, "{turns}");
    let shown = home.ask(&["turns", "show", "1-0"]).await;
    assert!(shown.contains(text), "{shown}");
    let wishes = home.ask(&["wishes", "list"]).await;
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
    has(&wrong, ["score 7 is not allowed: -1, 0 or 1"]);
    proxy.kill().await;
}

#[tokio::test]
async fn one_home_has_one_proxy() {
    let (_upstream, home, proxy) = started().await;
    let refusal = home.refusal(&["start"]).await;
    let pid = proxy.child.id().unwrap().to_string();
    insta::assert_snapshot!(refusal.replace(&pid, "PID"), @r#"metaclaw: `metaclaw start` already runs in HOME (process PID): `metaclaw stop` ends it, `metaclaw start --port N` starts another beside it"#);
    assert_eq!(proxy.chat("s", &["still there?"]).await, "answer to 1");
}

#[tokio::test]
async fn a_terminal_that_is_closed_ends_it_in_good_order() {
    let (_upstream, home, proxy) = started().await;
    proxy.chat("s", &["Hello"]).await;
    proxy.signal(Signal::HUP);
    assert!(proxy.ended().await.success());
    assert!(!home.path().join("run.json").exists());
    let turns = home.json(&["turns", "list", "--json"]).await;
    assert_eq!(turns.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_kill_loses_no_turn_that_was_answered() {
    let (_upstream, home, proxy) = started().await;
    for session in ["a", "b", "c"] {
        proxy.chat(session, &["Hello"]).await;
    }
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    proxy.kill().await;
    assert!(
        home.path().join("run.json").exists(),
        "a killed process leaves it"
    );

    let turns = home.json(&["turns", "list", "--json"]).await;
    assert_eq!(
        turns.as_array().unwrap().len(),
        3,
        "the left run.json fools nobody"
    );
    let proxy = home.start().await;
    proxy.chat("d", &["Hello"]).await;
    home.json_until(&["status", "--json"], |it| it["funnel"]["turns"] == 4)
        .await;
    proxy.kill().await;
}

#[tokio::test]
async fn it_goes_to_the_background_once_it_listens() {
    let upstream = Upstream::new();
    let home = Home::before(&upstream.url);
    let said = home.ask(&["start", "-d"]).await;
    assert!(said.contains("in the background: process"), "{said}");
    let status = home.json(&["status", "--json"]).await;
    assert_eq!(status["running"], true);
    let again = home.refusal(&["start", "-d"]).await;
    assert!(again.contains("already runs in HOME"), "{again}");
    home.ask(&["stop"]).await;
    let log = home.read("metaclaw.log");
    assert!(log.contains("metaclaw starts"), "{log}");
}

/// Before this test, warnings with `-d` were in the log only. Before this test, values from the environment were called
/// "the defaults".
#[tokio::test]
async fn in_the_background_warnings_are_printed_where_it_was_started() {
    let home = Home::new("mode: skills_only\nproxy: {port: 0}\nllmm: {api_key: k}\n");
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
    has(
        &said,
        ["settings  HOME/config.yaml, and from the environment: llm.api_base"],
    );
    home.ask(&["stop"]).await;
}

/// Before this test, the status reported no fault whatever happened, and no changed setting.
#[tokio::test]
async fn the_status_tells_what_upstreams_answer_and_that_the_file_is_another() {
    let address = gone();
    let home = Home::new(&format!(
        "mode: skills_only\nproxy: {{port: 0}}\nllm: {{api_base: '{address}/v1'}}\n"
    ));
    let proxy = home.start().await;
    assert!(proxy.get("/readyz").await.contains("200"));
    proxy.post("s", &["Hello"]).await;
    let status = home.ask(&["status"]).await;
    assert!(status.contains("asked:   llm fails: 127.0.0.1"), "{status}");
    assert!(status.contains("(0 answered, 1 failed)"), "{status}");
    assert!(proxy.get("/readyz").await.contains("503"));
    assert!(!status.contains("changed since"), "{status}");
    home.ask(&["config", "llm.model_id", "m"]).await;
    let status = home.ask(&["status"]).await;
    let changed = "settings: HOME/config.yaml changed since the start: `metaclaw stop` and `metaclaw start` use it";
    assert!(home.neutral(&status).contains(changed), "{status}");
    proxy.kill().await;
}

#[tokio::test]
async fn the_metrics_have_the_learners_counters() {
    let (_upstream, home, proxy) = started().await;
    home.ask(&["wishes", "add", "Be brief."]).await;
    let metrics = proxy.get_whole("/metrics").await;
    has(
        &metrics,
        [
            "metaclaw_lessons{state=\"in_force\"} 1",
            "metaclaw_verdicts_total{score=\"-1\"} 0",
            "metaclaw_judge_requests_total 0",
            "metaclaw_judge_queue_turns 0",
        ],
    );
    proxy.kill().await;
}

#[tokio::test]
async fn the_version_comes_at_once() {
    let home = Home::new("");
    home.ask(&["--version"]).await;
    let begun = Instant::now();
    let version = home.ask(&["--version"]).await;
    let took = begun.elapsed();
    assert_eq!(version, concat!("metaclaw ", env!("CARGO_PKG_VERSION")));
    // It takes 50 ms on an idle machine, and longer beside a build.
    assert!(took.as_millis() < 1_000, "{took:?}");
}

#[tokio::test]
async fn settings_are_shown_and_changed() {
    let home = Home::new("# mine\nmode: rl # for now\n");
    assert_eq!(home.ask(&["config", "mode"]).await, "rl");
    home.ask(&["config", "mode", "madmax"]).await;
    home.ask(&["config", "set", "rl.batch_size", "8"]).await;
    let file = home.read("config.yaml");
    assert_eq!(file, "# mine\nmode: auto # for now\nrl:\n  batch_size: 8\n");
    let shown = home
        .json(&["config", "get", "rl.batch_size", "--json"])
        .await;
    assert_eq!(shown["value"], 8);
    let example = home.ask(&["config", "example"]).await;
    assert!(example.contains("batch_size: 4"), "{example}");
}
