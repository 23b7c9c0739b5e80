//! Tests of the output that shows a person what was learned: the report, the comparison, the log, and complete help.

use crate::harness::{Home, Upstream, has, started};

const WISH: &str = "Please always answer in one sentence.";

async fn taught(upstream: &Upstream) -> (Home, crate::harness::Running) {
    let home = Home::before(&upstream.url);
    let proxy = home.start().await;
    proxy.chat("s-1", &["What is rain, and where from?"]).await;
    proxy.chat("s-2", &["Hello", "answer to 1", WISH]).await;
    // The lesson is written a moment before the wish itself.
    home.json_until(&["wishes", "list", "--json"], |it| it["wishes"][0] == WISH)
        .await;
    (home, proxy)
}

#[tokio::test]
async fn the_report_says_what_happened_whether_or_not_it_runs() {
    let upstream = Upstream::new();
    let (home, proxy) = taught(&upstream).await;
    let running = home.ask(&["report"]).await;
    has(&running, ["2 turns in 2 sessions (_default 2)."]);
    has(&running, [format!("- wish: {WISH} (undo 1)")]);
    has(
        &running,
        ["Chat: 2 in (0 of them, 0 %, from the provider's cache), 4 out."],
    );
    let json = home.json(&["report", "--json"]).await;
    assert_eq!(json["upstreams"]["llm"]["turns"], 2, "{json}");
    home.stop(proxy).await;
    assert_eq!(home.ask(&["report"]).await, running);
    let week = home.ask(&["report", "--days", "7"]).await;
    assert!(week.contains("| day | turns |"), "{week}");
    let refused = home.refusal(&["report", "--day", "yesterday"]).await;
    assert!(refused.contains("--day <YYYY-MM-DD>"), "{refused}");
}

#[tokio::test]
async fn questions_are_asked_with_and_without_and_nothing_is_kept_of_it() {
    let upstream = Upstream::new();
    let (home, proxy) = taught(&upstream).await;
    let before = upstream.n_asked();
    let output = home.run(&["compare"]).await;
    assert!(output.status.success(), "{output:?}");
    let (out, aside) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    assert_eq!(
        upstream.n_asked(),
        before + 2,
        "one question fits: a wish and a greeting do not"
    );
    assert!(out.contains("> What is rain, and where from?"), "{out}");
    // The upstream reports how many messages it got: the lessons are one more system message.
    has(&out, ["answer to 1", "answer to 2"]);
    assert!(aside.starts_with("asking scripted at "), "{aside}");
    assert!(aside.contains("spent: 2 tokens in, 4 out"), "{aside}");
    let given = home
        .json(&["compare", "--json", "--", "What is snow?"])
        .await;
    assert_eq!(given[0]["question"], "What is snow?");
    assert_eq!(given[0]["answers"][1][0], "lessons");
    let turns = home.json(&["turns", "list", "--json"]).await;
    assert_eq!(turns.as_array().unwrap().len(), 2, "{turns}");
    home.ask(&["undo"]).await;
    let refused = home.refusal(&["compare", "--", "What is snow?"]).await;
    has(&refused, ["both answers would be the same"]);
    home.stop(proxy).await;
    let refused = home.refusal(&["compare"]).await;
    assert_eq!(
        refused,
        "metaclaw: metaclaw does not run in HOME: `metaclaw start` starts it"
    );
}

#[tokio::test]
async fn the_log_of_the_background_is_shown() {
    let upstream = Upstream::new();
    let home = Home::before(&upstream.url);
    let refused = home.refusal(&["logs"]).await;
    assert!(
        refused.starts_with("metaclaw: there is no HOME/metaclaw.log: `metaclaw start -d`"),
        "{refused}"
    );
    home.ask(&["start", "-d"]).await;
    home.ask(&["stop"]).await;
    let logs = home.ask(&["logs"]).await;
    assert!(logs.contains("metaclaw starts"), "{logs}");
    let last = home.ask(&["logs", "-n", "1"]).await;
    assert_eq!(last.lines().count(), 1);
    let errors = home.ask(&["logs", "--level", "error"]).await;
    assert_eq!(errors, "");
}

#[tokio::test]
async fn each_shell_gets_completions_and_help_has_examples() {
    let home = Home::new("mode: skills_only\n");
    for (shell, mark) in [
        ("bash", "complete -F"),
        ("zsh", "#compdef metaclaw"),
        ("fish", "complete -c metaclaw"),
    ] {
        let script = home.ask(&["completions", shell]).await;
        assert!(
            script.contains(mark) && script.contains("train-step"),
            "{shell}"
        );
    }
    let help = home.ask(&["undo", "--help"]).await;
    assert!(help.contains("Examples:\n  metaclaw undo\n"), "{help}");
    let refused = home.refusal(&["learn"]).await;
    assert!(refused.contains("tip: `metaclaw ui` shows"), "{refused}");
    let help = home.ask(&["--help"]).await;
    assert!(help.contains("Exit codes:\n  0    success"), "{help}");
}

#[tokio::test]
async fn a_reader_that_leaves_early_is_no_error() {
    let (_upstream, home, proxy) = started().await;
    let long = "x".repeat(300_000);
    proxy.chat("s", &[&long]).await;
    home.stop(proxy).await;
    for arguments in [
        &["turns", "show", "1-0", "--full"][..],
        &["turns", "export"],
    ] {
        let mut child = home.command(arguments);
        child
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        let mut child = child.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().await.unwrap();
        assert!(output.status.success(), "{arguments:?} {output:?}");
        assert!(output.stderr.is_empty(), "{arguments:?} {output:?}");
    }
}

/// Before this test, a second shell did not know of the demo's home.
#[tokio::test]
async fn a_status_of_nothing_says_where_it_looked_and_finds_the_demo() {
    let upstream = Upstream::new();
    let demo = Home::before(&upstream.url);
    let home = Home::new("mode: skills_only\n");
    std::fs::create_dir(home.path().join("cache")).unwrap();
    std::os::unix::fs::symlink(demo.path(), home.path().join("cache/demo-home")).unwrap();
    let said = async |command: &str| {
        let output = home.run(&[command]).await;
        home.neutral(&String::from_utf8(output.stdout).unwrap())
    };
    for command in ["status", "ui"] {
        assert_eq!(
            said(command).await,
            "MetaClaw: not running in HOME: `metaclaw start -d` starts it\n"
        );
    }
    let proxy = demo.start().await;
    assert_eq!(
        said("status").await,
        "MetaClaw: not running in HOME: `metaclaw start -d` starts it\nthe demo runs: METACLAW_HOME=HOME/cache/demo-home before a command is about that one\n"
    );
    demo.stop(proxy).await;
}
