//! `metaclaw train` on the real engine: the held-out loss falls, the adapter passes the gate and serves, and a training
//! that is killed goes on.

use std::{path::Path, process::Stdio};

use metaclaw_tests::{client::Client, home::Home};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::home_without_wishes;

const COLOURS: [&str; 4] = ["red", "blue", "green", "black"];
const THINGS: [&str; 6] = ["a cup", "a door", "a boat", "a hat", "a chair", "a lamp"];

/// A habit that is learned from few examples: 24 chats.
fn chats() -> String {
    let mut rows = String::new();
    for colour in COLOURS {
        for thing in THINGS {
            let asked = format!("I have {thing}. It is {colour}. What do I have?");
            let said = format!("You have {thing}, and it is {colour}.");
            rows +=
                &line(&json!({"messages": [message("user", &asked), message("assistant", &said)]}));
        }
    }
    rows
}

/// Six pairs of replies.
fn pairs() -> String {
    let pair = |thing: &&str| {
        let (chosen, rejected) = (format!("It is {thing}."), "I do not know.".to_owned());
        line(
            &json!({"prompt": format!("I have {thing}. What is it?"), "chosen": chosen, "rejected": rejected}),
        )
    };
    THINGS.iter().map(pair).collect()
}

fn message(role: &str, content: &str) -> Value {
    json!({"role": role, "content": content})
}

fn line(row: &Value) -> String {
    format!("{row}\n")
}

/// Writes `chats.jsonl` and `pairs.jsonl`.
pub(super) fn write(folder: &Path) {
    std::fs::write(folder.join("chats.jsonl"), chats()).unwrap();
    std::fs::write(folder.join("pairs.jsonl"), pairs()).unwrap();
}

/// What a command prints that is run where the data is; and whether it succeeds.
async fn run(home: &Home, args: &[&str]) -> (bool, String) {
    let mut command = home.command(args);
    let output = command.current_dir(home.path()).output().await.unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let failed = String::from_utf8_lossy(&output.stderr);
    eprintln!("metaclaw {}\n{said}{failed}", args.join(" "));
    (output.status.success(), format!("{said}{failed}"))
}

/// The same of a command that has to succeed.
pub(super) async fn printed(home: &Home, args: &[&str]) -> String {
    let (is_fine, said) = run(home, args).await;
    assert!(is_fine, "{args:?}: {said}");
    said
}

pub(super) fn events(said: &str) -> Vec<Value> {
    let lines = said.lines().filter(|line| line.starts_with('{'));
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test]
#[ignore = "needs the binaries and the model, cargo xtask test --all runs it"]
async fn a_data_set_lowers_the_held_out_loss_and_its_adapter_serves_if_the_gate_lets_it() {
    // The rate of so small a model is too high for data of one kind: the gate would decline what it makes.
    let home = home_without_wishes().with_env("METACLAW__RL__LEARNING_RATE", "0.0001");
    let proxy = home.start().await.unwrap();
    write(home.path());
    let plan = printed(&home, &["train", "chats.jsonl", "--dry-run"]).await;
    assert!(plan.contains("nothing was trained"), "{plan}");

    let train = ["train", "chats.jsonl", "--agent", "main", "--epochs", "2"];
    // The gate's own replies are drawn, so that either verdict is possible.
    let (serves, told) = run(&home, &[&train[..], &["--held-out", "0.2"]].concat()).await;
    let verdict = if serves {
        "main is served with main-"
    } else {
        "declined by the gate: "
    };
    assert!(told.contains(verdict), "{told}");
    let again = [&train[..], &["--held-out", "0.2", "--json"]].concat();
    let again = events(&run(&home, &again).await.1);
    let report = again.last().unwrap();
    let [before, after] =
        ["held_out_before", "held_out_after"].map(|it| report[it].as_f64().unwrap());
    assert!(after < 0.7 * before, "{before} -> {after}");
    // What was declined is tested again, and may pass then.
    let serves_now = report["serves"] == true;
    assert!(serves_now || !serves, "{again:?}");
    // Nothing was trained again.
    assert!(again.iter().all(|event| event["is"] != "step"), "{again:?}");

    let listed = home.ask(&["adapters", "list", "--json"]).await.unwrap();
    let adapter = report["adapter"].as_str().unwrap();
    let is_served = |it: &Value| it["name"] == adapter && it["agents"] == json!(["main"]);
    let is_served = listed.as_array().unwrap().iter().any(is_served);
    assert_eq!(is_served, serves_now, "{listed}");
    let shown = printed(&home, &["adapters", "show", adapter]).await;
    assert!(shown.contains("chats.jsonl, epoch"), "{shown}");
    let client = Client::with_headers(&proxy.base_url, &[("x-agent-id", "main")]);
    let question = [message(
        "user",
        "I have a cup. It is white. What do I have?",
    )];
    let sampling = json!({"temperature": 0, "max_tokens": 24});
    let reply = client.stream(&question, &sampling);
    let reply = reply.await.unwrap();
    let is_taught = reply.text.starts_with("You have a cup");
    assert!(is_taught || !serves_now, "{reply:?}");

    let dpo = ["train", "pairs.jsonl", "--beta", "0.2", "--no-serve"];
    let told = printed(&home, &dpo).await;
    assert!(
        told.contains("by dpo") && told.contains("it serves nobody"),
        "{told}"
    );
    std::fs::write(home.path().join("bad.jsonl"), "{\"messages\": 3}\n").unwrap();
    let (is_fine, said) = run(&home, &["train", "bad.jsonl"]).await;
    assert!(
        !is_fine && said.contains("bad.jsonl, line 1: messages is a number"),
        "{said}"
    );
    proxy.stop().await.unwrap();
}

#[tokio::test]
#[ignore = "needs the binaries and the model, cargo xtask test --all runs it"]
async fn a_training_from_a_data_set_that_is_killed_goes_on_after_its_last_epoch() {
    let home = home_without_wishes();
    let proxy = home.start().await.unwrap();
    write(home.path());
    let train = [
        "train",
        "chats.jsonl",
        "--agent",
        "main",
        "--no-serve",
        "--json",
    ];
    let mut command = home.command(&train);
    command.current_dir(home.path()).stdout(Stdio::piped());
    let mut training = command.spawn().unwrap();
    let mut lines = BufReader::new(training.stdout.take().unwrap()).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        let event: Value = serde_json::from_str(&line).unwrap();
        // In the middle of the second epoch of three.
        if event["is"] == "step" && event["epoch"] == 2 {
            break;
        }
    }
    proxy.kill().await.unwrap();
    assert!(!training.wait().await.unwrap().success());

    let proxy = home.start().await.unwrap();
    let events = events(&printed(&home, &train).await);
    let of = |kind: &str| events.iter().find(|event| event["is"] == kind);
    assert_eq!(of("continues").unwrap()["epochs_done"], 1, "{events:?}");
    let report = of("ended").unwrap();
    assert_eq!(report["epochs"], 3);
    assert!(
        report["adapter"].is_string() && report["gate"].is_null(),
        "{report}"
    );
    proxy.stop().await.unwrap();
}
