//! Homes that the Python MetaClaw's own wizard made and its own proxy used, of versions 0.3.3 and 0.4.1: migrated, started,
//! and asked.
//!
//! `migrate/README.md` says how the homes were made.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use metaclaw_tests::{
    client::Client,
    external,
    home::Home,
    upstream::{Play, Upstream},
};
use serde_json::{Value, json};

use crate::chat::laptop_home;

const ANSWER: &str = "Fix the door's height.";

/// The upstream that the homes were made with.
const OLD_UPSTREAM: &str = "http://127.0.0.1:18181/v1";

/// Copies an old home, whose upstream becomes this one.
fn old_home(version: &str, to: &Path, upstream: &Upstream) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("it/migrate/home-{version}"));
    copy(&from, to);
    let config = to.join("config.yaml");
    let text = fs::read_to_string(&config).expect("a config");
    let url = format!("{}/v1", upstream.base_url);
    assert!(text.contains(OLD_UPSTREAM), "{text}");
    fs::write(&config, text.replace(OLD_UPSTREAM, &url)).expect("written");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).expect("copied");
        }
    }
}

/// Every file below a folder with its content.
fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        if entry.path().is_dir() {
            found.extend(tree(&entry.path()));
        } else {
            found.insert(entry.path(), fs::read(entry.path()).expect("a file"));
        }
    }
    found
}

/// The names of everything with this outcome, after their kinds.
fn names(report: &Value, outcome: &str) -> Vec<String> {
    let items = report["items"].as_array().expect("items");
    let of_outcome = items.iter().filter(|it| it["outcome"] == outcome);
    of_outcome
        .map(|it| format!("{} {}", it["kind"], it["name"]).replace('"', ""))
        .collect()
}

/// Migrates a home, starts the proxy, and asks it for what one of the old skills is for.
async fn works(version: &str, expected: &[&str]) {
    let upstream = Upstream::start(Play::Text(ANSWER));
    let folder = tempfile::tempdir().expect("a folder");
    let old = folder.path().join("old");
    old_home(version, &old, &upstream);
    let before = tree(&old);
    let home = Home::new(&external::bin_dir(), "");
    let from = old.to_string_lossy();
    let arguments = ["migrate", &*from, "--json"];
    let shown = home
        .command(&["migrate", &from, "--dry-run"])
        .output()
        .await;
    println!(
        "{}",
        String::from_utf8_lossy(&shown.expect("it runs").stdout)
    );
    let report = home.ask(&arguments).await.expect("migrated");
    let taken = names(&report, "taken");
    for name in expected {
        assert!(taken.iter().any(|it| it == name), "{name}: {taken:?}");
    }
    let again = home.ask(&arguments).await.expect("migrated again");
    assert_eq!(
        names(&again, "taken"),
        Vec::<String>::new(),
        "a second time"
    );
    let proxy = home.start().await.expect("it starts");
    let ask =
        json!({"role": "user", "content": "Write the commit message for this change, please."});
    let reply = proxy.client().stream(&[ask], &json!({})).await;
    assert_eq!(reply.expect("an answer").text, ANSWER);
    let asked = upstream.received();
    let last = String::from_utf8_lossy(&asked.last().expect("a request").body).into_owned();
    assert!(last.contains("at most 60 characters"), "the skill: {last}");
    proxy.stop().await.expect("it stops");
    assert_eq!(tree(&old), before, "the old home stays as it is");
}

#[tokio::test]
#[ignore = "needs the built program, cargo xtask test --all runs it"]
async fn a_home_of_0_3_3_works_after_its_migration() {
    works(
        "0.3.3",
        &[
            "setting mode",
            "setting llm.api_key",
            "setting proxy.port",
            "setting scheduler.idle_minutes",
            "skill short-commit-messages",
        ],
    )
    .await;
}

#[tokio::test]
#[ignore = "needs the built program, cargo xtask test --all runs it"]
async fn a_home_of_0_4_1_works_after_its_migration() {
    works(
        "0.4.1",
        &[
            "setting judge.model",
            "setting judge.key",
            "setting rl.lora_rank",
            "key anthropic:manual",
            "skill answer-in-metric-units",
            "skill short-commit-messages",
        ],
    )
    .await;
}

/// The shape of the demo model: layers, and the width of its states.
const LAYERS: usize = 30;
const WIDTH: usize = 576;
const RANK: usize = 4;

/// Writes an adapter as PEFT and the fork's training server do. Every number of its first matrices is `first`, and of its
/// second ones `second`.
fn write_adapter(folder: &Path, base: &str, first: f32, second: f32) {
    fs::create_dir_all(folder).expect("a folder");
    let config = json!({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base, "bias": "none",
        "r": RANK, "lora_alpha": 8, "lora_dropout": 0.0, "target_modules": ["q_proj", "o_proj"],
    });
    fs::write(folder.join("adapter_config.json"), config.to_string()).expect("written");
    let (mut header, mut numbers) = (serde_json::Map::new(), Vec::<u8>::new());
    for layer in 0..LAYERS {
        for module in ["q_proj", "o_proj"] {
            for (part, shape, number) in [("A", [RANK, WIDTH], first), ("B", [WIDTH, RANK], second)]
            {
                let name = format!(
                    "base_model.model.model.layers.{layer}.self_attn.{module}.lora_{part}.weight"
                );
                let begin = numbers.len();
                numbers.extend(std::iter::repeat_n(number.to_le_bytes(), RANK * WIDTH).flatten());
                let offsets = [begin, numbers.len()];
                header.insert(
                    name,
                    json!({"dtype": "F32", "shape": shape, "data_offsets": offsets}),
                );
            }
        }
    }
    let header = Value::Object(header).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(numbers);
    fs::write(folder.join("adapter_model.safetensors"), bytes).expect("written");
}

#[tokio::test]
#[ignore = "needs the binaries and the model, cargo xtask test --all runs it"]
async fn an_adapter_of_the_fork_serves_only_after_the_gate_let_it_through() {
    // The demo model is named after its file.
    const BASE: &str = "Hub/SmolLM2-135M-Instruct.Q4_1";
    let folder = tempfile::tempdir().expect("a folder");
    let old = folder.path().join("old");
    fs::create_dir(&old).expect("a folder");
    fs::write(old.join("config.yaml"), "claw_type: openclaw\n").expect("written");
    for (name, base, first, second) in [
        ("harmless", BASE, 0.01, 0.0),
        ("ruined", BASE, 1.0, 1.0),
        ("foreign", "Qwen/Qwen3-4B", 0.01, 0.0),
    ] {
        write_adapter(&old.join("adapters").join(name), base, first, second);
    }
    let home = laptop_home();
    let report = home
        .ask(&["migrate", &old.to_string_lossy(), "--json"])
        .await;
    let taken = names(&report.expect("migrated"), "taken");
    let name = |was: &str| {
        let mut all = taken.iter().filter_map(|it| it.strip_prefix("adapter "));
        let line = all.find(|it| it.contains(was)).expect(was);
        line.split(' ').next().expect("a name").to_owned()
    };
    let proxy = home.start().await.expect("it starts");
    let serving = async || {
        let question = json!({"role": "user", "content": "What is the capital of France?"});
        let reply = Client::with_headers(&proxy.base_url, &[("x-agent-id", "main")])
            .stream(&[question], &json!({"temperature": 0, "max_tokens": 16}))
            .await;
        reply.expect("an answer").adapter
    };
    assert_eq!(serving().await, None, "nothing serves before it was tested");
    for (was, said) in [("ruined", "declined by the gate"), ("foreign", "Qwen3-4B")] {
        let name = name(was);
        let output = home.command(&["adapters", "use", &name]).output().await;
        let error = String::from_utf8_lossy(&output.expect("it runs").stderr).into_owned();
        println!("{error}");
        assert!(error.contains(said), "{was}: {error}");
        assert_eq!(serving().await, None, "{was}");
    }
    let harmless = name("harmless");
    let output = home.command(&["adapters", "use", &harmless]).output().await;
    let output = output.expect("it runs");
    println!("{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stderr),
        home.log()
    );
    assert_eq!(serving().await.as_deref(), Some(&*harmless));
    proxy.stop().await.expect("it stops");
}
