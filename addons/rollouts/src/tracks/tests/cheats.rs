//! A model that tries to be rewarded for nothing: each of its tries scores 0 in the shipped tasks.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    super::Track,
    examples::{folder, solution},
    scripted::{Scripted, needs_sandbox, run, run_in},
};
use crate::{sandbox::WORK_FOLDER, task::tasks};

#[derive(Deserialize)]
struct Cheats {
    in_tasks: Vec<Cheat>,
    honest: Vec<String>,
    dishonest: Vec<String>,
}

#[derive(Deserialize)]
struct Cheat {
    name: String,
    script: String,
}

fn cheats() -> Cheats {
    let text = include_str!("cheats.yaml").replace("@WORK@", WORK_FOLDER);
    serde_saphyr::from_str(&text).unwrap()
}

/// Plays those cheats in those tasks for which `is_meant` says so, by their numbers.
async fn assert_that_cheats_fail(
    track: Track,
    file: &str,
    is_meant: impl Fn(usize, usize) -> bool,
) {
    needs_sandbox!();
    let folder = folder(track);
    let (cheats, mut rewarded) = (cheats(), Vec::new());
    for (place, task) in tasks(&folder.join(file)).unwrap().into_iter().enumerate() {
        let id = task.id;
        let mut task = Value::Object(task.fields);
        // What does not end is no success either.
        task["check_timeout_s"] = json!(5);
        for (number, cheat) in cheats.in_tasks.iter().enumerate() {
            if is_meant(place, number) {
                let replies = vec![Scripted::bash(&cheat.script), Scripted::done()];
                let done = run_in(&folder, track, &task, replies).await;
                let score = done.result.map(|it| it.score);
                if !matches!(score, Ok(it) if it < 0.01) {
                    rewarded.push(format!("{id}: {}: {score:?}", cheat.name));
                }
            }
        }
        // The same limits let the solution pass.
        if is_meant(place, 0) {
            let solved = run_in(&folder, track, &task, solution(&task)).await;
            assert!(solved.score() > 0.99, "{id}");
        }
    }
    assert_eq!(rewarded, Vec::<String>::new());
}

#[tokio::test]
async fn some_cheats_score_nothing_in_some_tasks() {
    assert_that_cheats_fail(Track::Swe, "tasks.jsonl", |place, number| {
        place * 3 == number
    })
    .await;
    assert_that_cheats_fail(Track::Terminal, "tasks.jsonl", |place, number| {
        place * 5 == number
    })
    .await;
}

#[tokio::test]
#[ignore = "needs 150 s, cargo xtask test --all runs it"]
async fn no_cheat_scores_in_a_shipped_task_of_repositories() {
    assert_that_cheats_fail(Track::Swe, "tasks.jsonl", |_, _| true).await;
}

#[tokio::test]
#[ignore = "needs 80 s, cargo xtask test --all runs it"]
async fn no_cheat_scores_in_a_shipped_task_of_the_shell() {
    for file in ["tasks.jsonl", "eval.jsonl"] {
        assert_that_cheats_fail(Track::Terminal, file, |_, _| true).await;
    }
}

#[tokio::test]
async fn the_files_of_a_check_are_out_of_reach_and_python_starts_without_the_models_files() {
    needs_sandbox!();
    let check = "python3 -c '
import copy, json, mimetypes, pickle, platform, subprocess, sys
truth = json.load(open(\"truth/n.json\"))
sys.exit(open(\"n.txt\").read().strip() != str(truth[\"n\"]))'";
    let task = json!({
        "prompt": "Write the number of lines of data.txt to n.txt.",
        "files": { "data.txt": "a\nb\nc\n" },
        "check": check,
        "check_files": { "truth/n.json": "{\"n\": 3}\n", "n.sha": "3\n" },
        "check_timeout_s": 5,
    });
    let cheats = cheats();
    let honest = cheats.honest.iter().map(|command| (command, 1.0));
    let dishonest = cheats.dishonest.iter().map(|command| (command, 0.0));
    for (command, expected) in honest.chain(dishonest) {
        let done = run(
            Track::Terminal,
            &task,
            vec![Scripted::bash(command), Scripted::done()],
        )
        .await;
        assert!(
            (done.score() - expected).abs() < 1e-9,
            "{command}: {}",
            done.score()
        );
    }
}

/// Test commands that run the model's program in the process of the tests. What the model's modules do there cannot all
/// be prevented, but they do not end the run, configure it or take the place of Python's.
#[tokio::test]
async fn a_test_command_of_ones_own_counts_only_if_it_fails_for_a_test_that_does_not_exist() {
    needs_sandbox!();
    let repository = tempfile::TempDir::new().unwrap();
    let write = |name: &str, text: &str| {
        let path = repository.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("calc.py", "def add(a, b):\n    return a - b\n");
    write("setup.cfg", "[mine]\n");
    write("tests/__init__.py", "");
    write(
        "tests/test_calc.py",
        "import unittest\nfrom calc import add\nclass Adds(unittest.TestCase):\n    def test_two(self):\n        \
         self.assertEqual(add(2, 3), 5)\n",
    );
    let mend = "sed -i 's/a - b/a + b/' calc.py";
    let ends = "echo 'import os; os._exit(0)' >> calc.py";
    let ends_in_use = "printf 'import os\\ndef add(a, b): os._exit(0)\\n' > calc.py";
    let unittest = "python3 -m unittest \"$@\"";
    let configured = "grep -q mine setup.cfg && [ ! -e conftest.py ] && [ ! -e lib/pytest.ini ] && \
                      python3 -m unittest \"$@\"";
    for (test_command, command, expected) in [
        (unittest, mend, Ok(1.0)),
        (unittest, "true", Ok(0.0)),
        (unittest, ends, Ok(0.0)),
        (unittest, ends_in_use, Ok(0.0)),
        (
            unittest,
            "echo 'raise SystemExit(0)' | tee unittest.py argparse.py > re.py",
            Ok(0.0),
        ),
        (configured, mend, Ok(1.0)),
        (
            configured,
            "mkdir lib; sed -i 's/a - b/a + b/' calc.py; echo > setup.cfg; echo > conftest.py; echo > lib/pytest.ini",
            Ok(1.0),
        ),
        (
            "true",
            mend,
            Err("ends with code 0 for a test that does not exist"),
        ),
        (
            "echo \"$@\"; [ -d tests ]",
            "true",
            Err("ends with code 0 for a test that does not exist"),
        ),
    ] {
        let task = json!({
            "prompt": "add(2, 3) is not 5.",
            "repository": repository.path(),
            "tests": ["tests"],
            "test_command": test_command,
            "fail_to_pass": ["tests.test_calc.Adds.test_two"],
        });
        let done = run(
            Track::Swe,
            &task,
            vec![Scripted::bash(command), Scripted::done()],
        )
        .await;
        match (done.result.map(|it| it.score), expected) {
            (Ok(score), Ok(expected)) => {
                assert!(
                    (score - expected).abs() < 1e-9,
                    "{test_command}, {command}: {score}"
                );
            }
            (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
            (got, _) => panic!("{test_command}, {command}: {got:?}"),
        }
    }
}

#[tokio::test]
async fn tests_in_a_process_of_their_own_use_the_objects_of_the_program_and_all_have_to_pass() {
    needs_sandbox!();
    let repository = tempfile::TempDir::new().unwrap();
    for (name, text) in [
        ("shop.py", include_str!("apart/shop.py")),
        ("stock/__init__.py", "VALUE = {1, 2}\n"),
        (
            "stock/part.py",
            "from . import VALUE\ndef get(): return VALUE\n",
        ),
        ("tests/test_shop.py", include_str!("apart/test_shop.py")),
    ] {
        let path = repository.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let all = [
        "objects",
        "errors",
        "arguments",
        "values",
        "output_and_patches",
    ];
    for (tests, command, expected) in [
        (&all[..], "true", 1.0),
        (&all[..], "sed -i 's/hello/hallo/' shop.py", 0.0),
        (&["skipped"], "true", 0.0),
        (&["expected"], "true", 0.0),
        (&["objects", "skipped"], "true", 0.0),
        (&["values", "missing"], "true", 0.0),
    ] {
        let name = |it: &&str| format!("tests.test_shop.ShopTest.test_{it}");
        let task = json!({
            "prompt": "Do nothing.",
            "repository": repository.path(),
            "tests": ["tests"],
            "test_command": "exec python3 -I \"$METACLAW_UNITTEST\" \"$@\"",
            "fail_to_pass": tests.iter().map(name).collect::<Vec<_>>(),
        });
        let replies = vec![Scripted::bash(command), Scripted::done()];
        let score = run(Track::Swe, &task, replies).await.score();
        assert!(
            (score - expected).abs() < 1e-9,
            "{tests:?}, {command}: {score}"
        );
    }
}
