//! The track `terminal`.

use metaclaw_test_kit::has;
use serde_json::json;

use super::{
    super::Track,
    scripted::{Scripted, needs_sandbox, run},
};

fn close(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-9, "{a} is not {b}");
}

#[tokio::test]
async fn commands_are_carried_out_and_the_check_gives_the_score() {
    needs_sandbox!();
    for stream in [false, true] {
        let task = json!({
            "id": "lines",
            "prompt": "Write the number of lines of data.txt to n.txt.",
            "files": { "data.txt": "a\nb\nc\n" },
            "setup": "echo d >> data.txt",
            "check": "test \"$(cat n.txt)\" = \"$(cat truth/n)\"",
            "check_files": { "truth/n": "4\n" },
            "stream": stream,
        });
        let script = vec![
            Scripted::bash("ls truth; wc -l < data.txt; false"),
            Scripted::bash("echo 4 > n.txt"),
            Scripted::done(),
        ];
        let done = run(Track::Terminal, &task, script).await;
        close(done.score(), 1.0);
        assert_eq!(done.requests.len(), 3);
        assert_eq!(done.requests[0]["tools"][0]["function"]["name"], "bash");
        assert_eq!(done.requests[0].get("stream").is_some(), stream);
        let shown = done.shown(1);
        assert_eq!(
            shown,
            "ls: cannot access 'truth': No such file or directory\n4\n[exit code 1]"
        );
        assert_eq!(done.shown(2), "[no output]");
        assert_eq!(
            done.requests[2]["messages"][2]["tool_calls"][0]["id"],
            "call-0"
        );
        assert_eq!(done.requests[2]["messages"][3]["tool_call_id"], "call-0");
        let lazy = run(Track::Terminal, &task, vec![Scripted::done()]).await;
        close(lazy.score(), 0.0);
    }
}

#[tokio::test]
async fn a_model_without_tool_calls_writes_code_blocks() {
    needs_sandbox!();
    let task = json!({
        "prompt": "Make the folder x.",
        "check": "[ -d x ] && echo 'score: 0.75'",
        "tools_in_prompt": true,
    });
    let block = Scripted::Text("So:\n```bash\nmkdir x; ls\n```".to_owned());
    let done = run(Track::Terminal, &task, vec![block, Scripted::done()]).await;
    close(done.score(), 0.75);
    assert_eq!(done.shown(1), "x");
    assert!(done.requests[0].get("tools").is_none());
    let system = done.requests[0]["messages"][0]["content"].as_str().unwrap();
    assert!(system.contains("{\"name\":\"bash\""), "{system}");
}

#[tokio::test]
async fn the_number_of_replies_is_bounded_and_what_was_done_counts() {
    needs_sandbox!();
    let task = json!({ "prompt": "x", "check": "[ $(wc -l < log) = 3 ]", "max_turns": 3 });
    let done = run(
        Track::Terminal,
        &task,
        vec![Scripted::bash("echo x >> log")],
    )
    .await;
    close(done.score(), 1.0);
    assert_eq!(done.requests.len(), 3);
}

#[tokio::test]
async fn bad_calls_are_told_to_the_model_and_a_full_context_ends_the_episode() {
    needs_sandbox!();
    let task = json!({ "prompt": "x", "check": "true" });
    let full = json!({ "error": { "message": "too long", "code": "context_length_exceeded" } });
    let script = vec![
        Scripted::Call("bash", json!({ "cmd": "ls" })),
        Scripted::Call("look", json!({})),
        Scripted::Error(400, full.clone()),
    ];
    let done = run(Track::Terminal, &task, script).await;
    close(done.score(), 1.0);
    assert!(
        done.shown(1).contains("missing field `command`"),
        "{}",
        done.shown(1)
    );
    assert!(
        done.shown(2).contains("there is no tool \"look\""),
        "{}",
        done.shown(2)
    );
    let at_once = run(Track::Terminal, &task, vec![Scripted::Error(400, full)]).await;
    assert!(at_once.result.unwrap_err().to_string().contains("too long"));
    assert_eq!(at_once.reward, None);
}

#[tokio::test]
async fn a_proxy_that_restarts_is_asked_again_and_one_that_refuses_fails_the_episode() {
    needs_sandbox!();
    let task = json!({ "prompt": "x", "check": "true" });
    let busy = Scripted::Error(503, json!({ "error": { "message": "starting" } }));
    let done = run(Track::Terminal, &task, vec![busy, Scripted::done()]).await;
    close(done.score(), 1.0);
    assert_eq!(done.requests.len(), 2);
    let closed = Scripted::Error(
        409,
        json!({ "error": { "message": "rollout r1 is closed" } }),
    );
    let failed = run(Track::Terminal, &task, vec![closed]).await;
    let words = failed.result.unwrap_err().to_string();
    has(&words, ["409", "rollout r1 is closed"]);
    assert_eq!(failed.reward, None);
}

#[tokio::test]
#[ignore = "needs 11 s, cargo xtask test --all runs it"]
async fn a_fork_bomb_a_full_disk_and_an_endless_command_score_nothing_and_end() {
    needs_sandbox!();
    let task = json!({
        "prompt": "Write ok.txt.",
        "check": "[ -s ok.txt ]",
        "check_files": { "needed.txt": "x".repeat(100_000) },
        "command_timeout_s": 2,
        "check_timeout_s": 5,
        "max_turns": 2,
        "sandbox": { "disk_mb": 8, "processes": 32 },
    });
    for command in [
        "bomb() { bomb | bomb & }; bomb",
        "cat /dev/zero > full; sleep 987651",
        "while :; do :; done",
    ] {
        let done = run(Track::Terminal, &task, vec![Scripted::bash(command)]).await;
        close(done.score(), 0.0);
        let rest = std::process::Command::new("pgrep")
            .args(["-f", "sleep 987651"])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&rest.stdout), "");
    }
}

#[tokio::test]
async fn a_task_that_cannot_be_used_is_refused_in_words() {
    for (task, expected) in [
        (json!({ "check": "true" }), "missing field `prompt`"),
        (json!({ "prompt": "x" }), "missing field `check`"),
        (
            json!({ "prompt": "x", "check": "true", "max_turns": "many" }),
            "max_turns: invalid type: string \"many\"",
        ),
        (
            json!({ "prompt": "x", "check": "true", "sandbox": { "disk": 1 } }),
            "sandbox.disk: unknown field `disk`",
        ),
    ] {
        let done = run(Track::Terminal, &task, vec![Scripted::done()]).await;
        let words = done.result.unwrap_err().to_string();
        assert!(words.contains(expected), "{words}");
    }
}

#[tokio::test]
async fn a_setup_that_fails_is_no_episode() {
    needs_sandbox!();
    let task = json!({ "prompt": "x", "check": "true", "setup": "echo no such tool; exit 3" });
    let done = run(Track::Terminal, &task, vec![Scripted::done()]).await;
    let words = done.result.unwrap_err().to_string();
    assert_eq!(
        words,
        "the setup of the task failed: Exited(3): no such tool"
    );
    assert_eq!(done.requests.len(), 0);
}
