//! Tests of what a person sees of the learning: the digest, the view, the comparison, the log, and complete help.

use std::io::{Read as _, Write as _};

use serde_json::json;

use crate::{
    harness::{TestHome, Upstream, until},
    output::terminal,
};

const WISH: &str = "Please always answer in one sentence.";

/// A home with `upstream` in which a wish was said and detected.
async fn taught(upstream: &Upstream) -> anyhow::Result<(TestHome, crate::harness::Running)> {
    let home = TestHome::before(upstream)?;
    let proxy = home.start().await?;
    proxy
        .chat("s-1", &["What is rain, and where from?"])
        .await?;
    proxy.chat("s-2", &["Hello", "answer to 1", WISH]).await?;
    let is_heard = async || {
        let wishes = home.json(&["wishes", "list", "--json"]).await?;
        // It is written after the wish itself.
        Ok(wishes["lessons"][0]["wish"] == json!(WISH))
    };
    until(is_heard).await?;
    Ok((home, proxy))
}

#[tokio::test]
async fn the_digest_says_what_happened_whether_or_not_it_runs() {
    let upstream = Upstream::new().await.unwrap();
    let (home, proxy) = taught(&upstream).await.unwrap();
    let running = home.ask(&["report"]).await.unwrap();
    assert!(
        running.contains("2 turns in 2 sessions (_default 2)."),
        "{running}"
    );
    assert!(
        running.contains(&format!("- wish: {WISH} (undo 1)")),
        "{running}"
    );
    assert!(
        running.contains("Chat: 2 in (0 of them, 0 %, from the provider's cache), 4 out."),
        "{running}"
    );
    let json = home.json(&["report", "--json"]).await.unwrap();
    let n_stayed: u64 = json["funnel"][2]["stayed"]
        .as_object()
        .unwrap()
        .values()
        .filter_map(serde_json::Value::as_u64)
        .sum();
    assert_eq!(n_stayed, 2, "{json}");
    home.ask(&["stop"]).await.unwrap();
    assert!(proxy.ended().await.unwrap().success());
    assert_eq!(home.ask(&["report"]).await.unwrap(), running);
    let week = home.ask(&["report", "--days", "7"]).await.unwrap();
    assert!(week.contains("| day | turns |"), "{week}");
    let refused = home
        .refusal(&["report", "--day", "yesterday"])
        .await
        .unwrap();
    assert!(refused.contains("--day <YYYY-MM-DD>"), "{refused}");
}

#[tokio::test]
async fn a_lesson_is_seen_on_a_pipe_as_it_is_heard_and_the_view_ends_with_the_proxy() {
    use tokio::io::{AsyncBufReadExt as _, BufReader};
    let upstream = Upstream::new().await.unwrap();
    let home = TestHome::before(&upstream).unwrap();
    let proxy = home.start().await.unwrap();
    let mut learn = home.command(&["learn"]);
    let mut learn = learn.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(learn.stdout.take().unwrap()).lines();
    let first = lines.next_line().await.unwrap().unwrap();
    assert_eq!(
        first,
        "turns recorded 0 -> main 0 -> complete 0 -> judged 0  (no weights are trained)"
    );
    let spent = lines.next_line().await.unwrap().unwrap();
    assert_eq!(
        spent,
        "today 0 tokens of chat; 0 of learning (0 questions; 50000 left)"
    );
    proxy
        .chat("s", &["Hello", "answer to 1", WISH])
        .await
        .unwrap();
    let heard = lines.next_line().await.unwrap().unwrap();
    assert_eq!(heard, format!("wish: {WISH}  (undo 1)"));
    home.ask(&["stop"]).await.unwrap();
    assert!(proxy.ended().await.unwrap().success());
    assert_eq!(learn.wait().await.unwrap().code(), Some(3));
    let again = home.run(&["learn"]).await.unwrap();
    assert_eq!(again.status.code(), Some(3));
    assert_eq!(
        home.neutral(&String::from_utf8(again.stdout).unwrap()),
        "MetaClaw: not running in HOME\n"
    );
}

#[tokio::test]
async fn the_view_in_a_terminal_is_left_with_q_and_gives_the_terminal_back() {
    let upstream = Upstream::new().await.unwrap();
    let home = TestHome::before(&upstream).unwrap();
    let proxy = home.start().await.unwrap();
    proxy
        .chat(
            "s",
            &[
                "Hello",
                "answer to 1",
                "Please always say \u{1b}]0;PWNED\u{7}.",
            ],
        )
        .await
        .unwrap();
    let (mut seen, side) = terminal().unwrap();
    let mut learn = home.command(&["learn"]);
    learn.stdin(side.try_clone().unwrap()).stdout(side);
    let mut child = learn.spawn().unwrap();
    drop(learn);
    seen.write_all(b"xq").unwrap();
    assert!(child.wait().await.unwrap().success());
    let mut shown = Vec::new();
    // Reading ends with an error when the other end is closed.
    seen.read_to_end(&mut shown).ok();
    let shown = String::from_utf8_lossy(&shown);
    assert!(
        shown.contains("\u{1b}[?1049h") && shown.contains("\u{1b}[?1049l"),
        "{shown}"
    );
    assert!(!shown.contains("\u{1b}]0;"), "{shown}");
    home.ask(&["stop"]).await.unwrap();
    assert!(proxy.ended().await.unwrap().success());
}

#[tokio::test]
async fn questions_are_asked_with_and_without_and_nothing_is_kept_of_it() {
    let upstream = Upstream::new().await.unwrap();
    let (home, proxy) = taught(&upstream).await.unwrap();
    let before = upstream.n_asked();
    let output = home.run(&["compare"]).await.unwrap();
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
    assert!(
        out.contains("answer to 1") && out.contains("answer to 2"),
        "{out}"
    );
    assert!(aside.starts_with("asking scripted at "), "{aside}");
    assert!(aside.contains("spent: 2 tokens in, 4 out"), "{aside}");
    let given = home
        .json(&["compare", "--json", "--", "What is snow?"])
        .await
        .unwrap();
    assert_eq!(given[0]["question"], "What is snow?");
    assert_eq!(given[0]["answers"][1][0], "lessons");
    let turns = home.json(&["turns", "list", "--json"]).await.unwrap();
    assert_eq!(turns.as_array().unwrap().len(), 2, "{turns}");
    home.ask(&["undo"]).await.unwrap();
    let refused = home
        .refusal(&["compare", "--", "What is snow?"])
        .await
        .unwrap();
    assert!(
        refused.contains("both answers would be the same"),
        "{refused}"
    );
    home.ask(&["stop"]).await.unwrap();
    assert!(proxy.ended().await.unwrap().success());
    let refused = home.refusal(&["compare"]).await.unwrap();
    assert_eq!(
        refused,
        "metaclaw: metaclaw does not run in HOME: `metaclaw start` starts it"
    );
}

#[tokio::test]
async fn the_log_of_the_background_is_shown() {
    let upstream = Upstream::new().await.unwrap();
    let home = TestHome::before(&upstream).unwrap();
    let refused = home.refusal(&["logs"]).await.unwrap();
    assert!(
        refused.starts_with("metaclaw: there is no HOME/metaclaw.log: `metaclaw start -d`"),
        "{refused}"
    );
    home.ask(&["start", "-d"]).await.unwrap();
    home.ask(&["stop"]).await.unwrap();
    let logs = home.ask(&["logs"]).await.unwrap();
    assert!(logs.contains("metaclaw starts"), "{logs}");
    let last = home.ask(&["logs", "-n", "1"]).await.unwrap();
    assert_eq!(last.lines().count(), 1);
    let errors = home.ask(&["logs", "--level", "error"]).await.unwrap();
    assert_eq!(errors, "");
}

#[tokio::test]
async fn each_shell_gets_completions_and_help_has_examples() {
    let home = TestHome::new("mode: skills_only\n").unwrap();
    for (shell, mark) in [
        ("bash", "complete -F"),
        ("zsh", "#compdef metaclaw"),
        ("fish", "complete -c metaclaw"),
    ] {
        let script = home.ask(&["completions", shell]).await.unwrap();
        assert!(
            script.contains(mark) && script.contains("train-step"),
            "{shell}"
        );
    }
    let help = home.ask(&["undo", "--help"]).await.unwrap();
    assert!(help.contains("Examples:\n  metaclaw undo\n"), "{help}");
    let help = home.ask(&["--help"]).await.unwrap();
    assert!(help.contains("Exit codes:\n  0    it was done"), "{help}");
}

#[tokio::test]
async fn a_reader_that_leaves_early_is_no_error() {
    let upstream = Upstream::new().await.unwrap();
    let home = TestHome::before(&upstream).unwrap();
    let proxy = home.start().await.unwrap();
    let long = "x".repeat(300_000);
    proxy.chat("s", &[&long]).await.unwrap();
    home.ask(&["stop"]).await.unwrap();
    assert!(proxy.ended().await.unwrap().success());
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
    let upstream = Upstream::new().await.unwrap();
    let demo = TestHome::before(&upstream).unwrap();
    let home = TestHome::new("mode: skills_only\n").unwrap();
    std::fs::create_dir(home.path().join("cache")).unwrap();
    std::os::unix::fs::symlink(demo.path(), home.path().join("cache/demo-home")).unwrap();
    let said = async || {
        let output = home.run(&["status"]).await?;
        anyhow::Ok(home.neutral(&String::from_utf8(output.stdout)?))
    };
    assert_eq!(said().await.unwrap(), "MetaClaw: not running in HOME\n");
    let proxy = demo.start().await.unwrap();
    assert_eq!(
        said().await.unwrap(),
        "MetaClaw: not running in HOME\nthe demo runs: METACLAW_HOME=HOME/cache/demo-home before a command is about that one\n"
    );
    demo.ask(&["stop"]).await.unwrap();
    assert!(proxy.ended().await.unwrap().success());
}
