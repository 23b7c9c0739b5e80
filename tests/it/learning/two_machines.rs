//! docs/operating/two-machines.md as a test: the script and the files of examples/two-machines, on one machine and without TLS.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Stdio};

use metaclaw_tests::{external, home::Home, wait::until};
use serde_json::json;
use tokio::process::{Child, Command};

use super::{STEP_WITHIN, known};

const KEY: &str = "of-the-box";

fn example(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../examples/two-machines")
        .join(name)
}

/// The environment file as somebody fills it in.
fn filled_in(folder: &Path) -> String {
    let text = fs::read_to_string(example("training_server.env")).unwrap();
    let settings = [
        ("MODEL", external::model().display().to_string()),
        ("METACLAW_API_KEY", KEY.to_owned()),
        ("METACLAW_PORT", "0".to_owned()),
        (
            "METACLAW_CHECKPOINT_DIR",
            folder.join("checkpoints").display().to_string(),
        ),
    ];
    let fill = |line: &str| {
        let plain = line.trim_start_matches('#');
        let is_set = |(name, _): &&(&str, String)| plain.starts_with(&format!("{name}="));
        let set = settings.iter().find(is_set);
        set.map_or_else(
            || line.to_owned(),
            |(name, value)| format!("{name}={value}"),
        )
    };
    text.lines().map(|line| fill(line) + "\n").collect()
}

/// Starts the script, and waits for its one line: where the server listens.
async fn start(folder: &Path, env: &str) -> (Child, String) {
    fs::write(folder.join("box.env"), env).unwrap();
    let said = folder.join("ready.json");
    let child = Command::new("sh")
        .arg(example("start_training_server.sh"))
        .arg(folder.join("box.env"))
        .arg("--threads=1")
        .env(
            "METACLAW_TRAINER",
            external::bin_dir().join("metaclaw-trainer"),
        )
        .stdin(Stdio::null())
        .stdout(fs::File::create(&said).unwrap())
        .stderr(fs::File::create(folder.join("trainer.log")).unwrap())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let is_ready = async || fs::read_to_string(&said).is_ok_and(|text| text.ends_with('\n'));
    until(STEP_WITHIN, is_ready).await.unwrap();
    let said: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&said).unwrap()).unwrap();
    let address = said["address"].as_str().expect("an address");
    (child, format!("http://{address}"))
}

/// Stands for the training server: it says what it was given.
const TELLS: &str = r#"#!/bin/sh
echo "$METACLAW_API_KEY:$METACLAW_PORT:$METACLAW_CHECKPOINT_DIR" "$@"
"#;

#[tokio::test]
async fn what_is_exported_wins_over_the_file_and_no_model_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("trainer");
    fs::write(&program, TELLS).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    let unfilled = fs::read_to_string(example("training_server.env")).unwrap();
    let filled =
        "METACLAW_API_KEY=file\nMETACLAW_PORT=1\nMETACLAW_CHECKPOINT_DIR=/f\nMODEL='/a b'\n";
    let key = ("METACLAW_API_KEY", "own");
    let all = [
        key,
        ("METACLAW_PORT", "2"),
        ("METACLAW_CHECKPOINT_DIR", "/o"),
    ];
    for (file, exported, said) in [
        (
            &*unfilled,
            &[key][..],
            "own:8000: --host 127.0.0.1 --port 9",
        ),
        (
            filled,
            &[],
            "file:1:/f --model /a b --host 127.0.0.1 --port 9",
        ),
        (
            filled,
            &all,
            "own:2:/o --model /a b --host 127.0.0.1 --port 9",
        ),
    ] {
        let box_env = folder.path().join("box.env");
        fs::write(&box_env, file).unwrap();
        let mut script = Command::new("sh");
        script.arg(example("start_training_server.sh")).arg(box_env);
        script
            .args(["--port", "9"])
            .env("METACLAW_TRAINER", &program);
        for (name, _) in all {
            script.env_remove(name);
        }
        let told = script.envs(exported.iter().copied()).output().await;
        let told = String::from_utf8(told.unwrap().stdout).unwrap();
        assert_eq!(told.trim_end(), said);
    }
}

#[tokio::test]
#[ignore = "needs the binaries and the model, cargo xtask test --all runs it"]
async fn the_files_of_the_page_make_a_box_that_serves_and_learns() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let empty = fs::read_to_string(example("training_server.env")).unwrap();
    fs::write(folder.join("empty.env"), empty).unwrap();
    let refused = Command::new("sh")
        .arg(example("start_training_server.sh"))
        .arg(folder.join("empty.env"))
        .env_remove("METACLAW_API_KEY")
        .output();
    let refused = refused.await.unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("METACLAW_API_KEY"), "{said}");

    let (trainer, url) = start(folder, &filled_in(folder)).await;
    let config = fs::read_to_string(example("laptop.yaml")).unwrap();
    let config = config.replace("https://box.home", &url);
    assert!(config.contains(&url), "{config}");
    let home = Home::new(&external::bin_dir(), &config)
        .with_env("METACLAW__RL__REMOTE_API_KEY", KEY)
        .with_env("METACLAW__MODE", "rl")
        .with_env("METACLAW__RL__METHOD", "binary_rl")
        .with_env("METACLAW__RL__BATCH_SIZE", "2")
        .with_env("METACLAW__RL__MAX_STEPS", "1")
        .with_env("METACLAW__JUDGE__KIND", "rules")
        .with_env(
            "METACLAW__JUDGE__RULES",
            json!([{"on": "reply", "min_words": 1, "score": 1}]).to_string(),
        )
        // Of the way, not of how good a step was.
        .with_env("METACLAW__GATE__ENABLED", "false");
    let proxy = home.start().await.unwrap();
    // The server has its model by its own flag: the proxy knows no name of it.
    let answers = async || {
        let question = [json!({"role": "user", "content": "What is tea?"})];
        let (client, asked) = (proxy.client(), json!({"max_tokens": 8}));
        let reply = client.stream(&question, &asked).await;
        reply.is_ok_and(|reply| !reply.text.is_empty())
    };
    until(STEP_WITHIN, answers).await.unwrap();
    super::talk(&proxy.client(), 1, 3).await;
    let step = known(&home, "last_step").await;
    assert_eq!(
        (&step["n"], &step["serves"]),
        (&json!(1), &json!(true)),
        "{step}"
    );
    let adapter = step["adapter"].as_str().map(str::to_owned);
    assert_eq!(super::answers(&proxy).await, adapter, "{step}");
    proxy.stop().await.unwrap();
    drop(trainer);
}
