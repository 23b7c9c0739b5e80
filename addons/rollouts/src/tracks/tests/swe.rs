//! The track `swe`: a scripted agent mends a repository, and tries what it may not do.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    super::Track,
    scripted::{AgentRun, Scripted, needs_sandbox, run, run_in},
};

const BUG: &str = "def add(a, b):\n    return a - b\n";
const TEST: &str = "import unittest\nfrom calc import add\nclass Adds(unittest.TestCase):\n    def test_two(self):\n        \
    self.assertEqual(add(2, 3), 5)\n    def test_zero(self):\n        self.assertEqual(add(4, 0), 4)\n";
const MEND: &str = "sed -i 's/a - b/a + b/' calc.py";

/// A repository whose newest commit but one has the bug, and whose newest commit mends it.
fn repository() -> TempDir {
    let folder = TempDir::new().unwrap();
    let git = |args: &[&str]| {
        let git = Command::new("git")
            .args(["-c", "user.name=a", "-c", "user.email=a@b"])
            .args(args)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(git.status.success(), "{git:?}");
    };
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    git(&["init", "-q"]);
    write("calc.py", BUG);
    fs::create_dir(folder.path().join("tests")).unwrap();
    write("tests/__init__.py", "");
    write("tests/test_calc.py", TEST);
    // A release of this repository has no tests.
    write(".gitattributes", "tests export-ignore\n");
    git(&["add", "-A"]);
    git(&["commit", "-qm", "buggy"]);
    git(&["tag", "base"]);
    write("calc.py", "def add(a, b):\n    return a + b  # SOLUTION\n");
    git(&["commit", "-qam", "the SOLUTION"]);
    folder
}

fn task(repository: &Path) -> Value {
    json!({
        "id": "calc",
        "prompt": "add(2, 3) is not 5.",
        "repository": repository,
        "commit": "base",
        "tests": ["tests"],
        "test_command": "python3 -m unittest \"$@\"",
        "fail_to_pass": ["tests.test_calc.Adds.test_two"],
        "pass_to_pass": ["tests.test_calc.Adds.test_zero"],
    })
}

async fn tried(task: &Value, commands: &[&str]) -> AgentRun {
    let mut script: Vec<Scripted> = commands.iter().map(|it| Scripted::bash(it)).collect();
    script.push(Scripted::done());
    run(Track::Swe, task, script).await
}

#[track_caller]
fn assert_score(run: &AgentRun, expected: f64) {
    assert!((run.score() - expected).abs() < 1e-9, "{}", run.score());
}

#[tokio::test]
async fn an_agent_that_mends_the_code_passes_and_one_that_does_not_fails() {
    needs_sandbox!();
    let repository = repository();
    let task = task(repository.path());
    let mended = tried(
        &task,
        &["cat calc.py", MEND, "python3 -m unittest -q 2>&1 | tail -1"],
    )
    .await;
    assert_score(&mended, 1.0);
    assert_eq!(mended.shown(1), BUG.trim_end());
    assert_eq!(mended.shown(3), "OK");
    assert_score(&tried(&task, &["ls"]).await, 0.0);
    let broken = tried(&task, &["echo 'def add(a, b): return 5' > calc.py"]).await;
    assert_score(&broken, 0.0);
}

#[tokio::test]
async fn the_history_is_hidden() {
    needs_sandbox!();
    let repository = repository();
    let seek = "git log --all --format=%s; git reflog | wc -l; git show base:calc.py; git fsck --lost-found; \
                grep -rs SOLUTION . .git /tmp /var /home /root | head; ls /proc/*/cwd 2>/dev/null | grep -c calc.py";
    let done = tried(&task(repository.path()), &[seek]).await;
    let shown = done.shown(1);
    assert!(shown.starts_with("The repository\n1\n"), "{shown}");
    assert!(!shown.contains("SOLUTION"), "{shown}");
    let outside = format!("cat {0}/calc.py; ls {0}", repository.path().display());
    let outside = tried(&task(repository.path()), &[&outside]).await;
    assert_eq!(
        outside.shown(1).matches("No such file").count(),
        2,
        "{}",
        outside.shown(1)
    );
}

#[tokio::test]
async fn there_is_no_network() {
    needs_sandbox!();
    let repository = repository();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let command = format!(
        "grep -o '^ *[^ ]*:' /proc/net/dev | tr -d ' :' | sort | tr '\\n' ' '; echo; \
         for at in 127.0.0.1/{port} 1.1.1.1/53; do \
             (exec 3<> /dev/tcp/$at) 2> /dev/null && echo connected || echo cannot; \
         done; \
         python3 -c 'import socket; socket.create_connection((\"example.com\", 80))' 2>&1 | tail -1"
    );
    let done = tried(&task(repository.path()), &[&command]).await;
    let lines: Vec<&str> = done.shown(1).lines().collect();
    // The listener of this test is on another loopback device.
    assert_eq!(lines[0].trim(), "lo", "{lines:?}");
    assert_eq!(&lines[1..3], ["cannot", "cannot"], "{lines:?}");
    assert!(
        lines[3].contains("resolution") || lines[3].contains("not known"),
        "{lines:?}"
    );
}

#[tokio::test]
async fn test_files_cannot_be_changed() {
    needs_sandbox!();
    let repository = repository();
    let task = task(repository.path());
    let polite = tried(
        &task,
        &["echo pass > tests/test_calc.py", "git status --short"],
    )
    .await;
    assert!(
        polite.shown(1).contains("Permission denied"),
        "{}",
        polite.shown(1)
    );
    assert_eq!(polite.shown(2), "[no output]");
    let easy = "import unittest\nclass Adds(unittest.TestCase):\n    def test_two(self): pass\n    def test_zero(self): pass\n";
    let rewrite = format!(
        "printf '{}' > tests/test_calc.py",
        easy.replace('\n', "\\n")
    );
    for attempts in [
        vec![
            "chmod -R u+w tests",
            &rewrite,
            "python3 -m unittest -q 2>&1 | tail -1",
        ],
        vec![
            "chmod -R u+w tests; mv tests old; mkdir tests; touch tests/__init__.py",
            &rewrite,
        ],
        vec![
            "chmod -R u+w tests; mv tests old; cp -r old fake; ln -s fake tests",
            &rewrite,
        ],
        vec!["chmod -R u+w tests; rm -r tests; echo > tests"],
        // It changes them again and again, in the hope that one change comes after they are restored.
        vec![
            "cp -r tests /tmp/x; chmod -R u+w tests",
            &rewrite,
            "(while sleep 0.01; do cp tests/test_calc.py $HOME/tests/; done) >/dev/null 2>&1 & true",
        ],
        vec![
            "chmod u+w tests; echo 'raise SystemExit(0)' > tests/unittest.py; cp tests/unittest.py tests/conftest.py",
        ],
    ] {
        let done = tried(&task, &attempts).await;
        assert_score(&done, 0.0);
    }
    let honest = tried(&task, &["chmod -R u+w tests", &rewrite, MEND]).await;
    assert_score(&honest, 1.0);
}

#[tokio::test]
async fn a_line_of_swe_bench_is_read_with_its_repository_and_without_its_solution() {
    needs_sandbox!();
    let repository = repository();
    let settings = TempDir::new().unwrap();
    let bundle = settings.path().join("calc.bundle");
    let made = Command::new("git")
        .args(["bundle", "create", "-q"])
        .arg(&bundle)
        .arg("--all")
        .current_dir(repository.path())
        .status();
    assert!(made.unwrap().success());
    let base = Command::new("git")
        .args(["rev-parse", "base"])
        .current_dir(repository.path())
        .output()
        .unwrap();
    let patch = "diff --git a/tests/test_calc.py b/tests/test_calc.py\n--- a/tests/test_calc.py\n+++ b/tests/test_calc.py\n\
        @@ -6,2 +6,4 @@ class Adds(unittest.TestCase):\n     def test_zero(self):\n         self.assertEqual(add(4, 0), 4)\n\
        +    def test_hidden(self):\n+        self.assertEqual(add(-1, 1), 0)\n";
    let mut line = json!({
        "instance_id": "a__calc-1",
        "id": "a__calc-1",
        "repo": "a/calc",
        "version": "1.0",
        "base_commit": String::from_utf8_lossy(&base.stdout).trim(),
        "problem_statement": "add(2, 3) is not 5.",
        "hints_text": "",
        "patch": "the SOLUTION",
        "test_patch": patch,
        "FAIL_TO_PASS": "[\"tests.test_calc.Adds.test_hidden\"]",
        "PASS_TO_PASS": "[\"tests.test_calc.Adds.test_zero\"]",
    });
    let repositories = json!({
        "a/calc": { "repository": "elsewhere" },
        "a/calc@1.0": { "repository": bundle, "test_command": "python3 -m unittest \"$@\"" },
    });
    let map = settings.path().join("repositories.json");
    fs::write(map, repositories.to_string()).unwrap();
    let played = |line: &Value, script| {
        let line = line.clone();
        let folder = settings.path().to_owned();
        async move { run_in(&folder, Track::Swe, &line, script).await }
    };
    let look = Scripted::bash(
        "cat tests/test_calc.py; grep -rs 'SOLUTION\\|hidden' /work /tmp /var /etc /run /proc/1/environ -l",
    );
    let script = vec![look, Scripted::bash(MEND), Scripted::done()];
    let done = played(&line, script).await;
    assert_score(&done, 1.0);
    let all = json!(done.requests).to_string();
    assert!(
        !all.contains("SOLUTION") || all.matches("SOLUTION").count() == 2,
        "{all}"
    );
    assert!(!done.shown(1).contains("test_hidden"), "{}", done.shown(1));
    let lazy = played(&line, vec![Scripted::done()]).await;
    assert_score(&lazy, 0.0);
    line["repo"] = json!("a/other");
    let unknown = played(&line, vec![Scripted::done()]).await;
    let words = unknown.result.unwrap_err().to_string();
    assert!(
        words.ends_with("it does not name repo \"a/other\""),
        "{words}"
    );
}

#[tokio::test]
async fn an_agent_that_fills_the_disk_or_leaves_bombs_scores_nothing() {
    needs_sandbox!();
    let repository = repository();
    let mut task = task(repository.path());
    task["sandbox"] = json!({ "disk_mb": 8, "processes": 32 });
    task["command_timeout_s"] = json!(2);
    for attempts in [
        vec!["head -c 30M /dev/urandom > full"],
        vec!["truncate -s 100G sparse"],
        vec!["bomb() { bomb | bomb & }; bomb"],
    ] {
        assert_score(&tried(&task, &attempts).await, 0.0);
    }
    // The model's files can be copied, and then the tests have no room.
    task["hidden_tests"] = json!({ "tests/large.txt": "x".repeat(2 << 20) });
    assert_score(
        &tried(&task, &["head -c 7M /dev/urandom > almost"]).await,
        0.0,
    );
}

#[tokio::test]
async fn a_repository_that_is_not_there_is_refused_in_words() {
    let folder = TempDir::new().unwrap();
    let base = task(folder.path());
    let changed = |name: &str, value: Value| {
        let mut task = base.clone();
        task[name] = value;
        task
    };
    for (task, expected) in [
        (
            changed("repository", json!("nowhere")),
            "there is no such folder, git repository or bundle",
        ),
        (
            base.clone(),
            "it is a folder without git, so it has no commits",
        ),
        (
            changed("test_command", Value::Null),
            "test_command is missing",
        ),
        (changed("fail_to_pass", json!([])), "fail_to_pass is empty"),
        (
            changed("fail_to_pass", json!("test_a")),
            "\"test_a\" is no list of tests in JSON",
        ),
    ] {
        let done = run(Track::Swe, &task, vec![Scripted::done()]).await;
        let words = done.result.unwrap_err().to_string();
        assert!(words.contains(expected), "{words}");
    }
}
