//! Tests the numbers of training steps with the real client of Weights & Biases, which keeps them on this machine.

use std::{fs, path::Path};

use metaclaw_tests::{external, home::Home};

const STEPS: &str = r#"{"step": 1, "agent": "main", "lineage": "0badcafe", "n": 1, "loss/total": 1.5, "gradient/norm": null, "learning_rate": 0.0005}
{"step": 2, "agent": "main", "lineage": "0badcafe", "n": 2, "loss/total": 1.25, "learning_rate": 0.0005}
{"step": 1, "agent": "other", "lineage": "3fa9c0d1", "n": 1, "loss/total": 1.0, "learning_rate": 0.0005}
{"step": 2, "agent": "oth"#;

/// Returns the records of each run, below the folder that the client was run in.
fn records(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let runs = fs::read_dir(folder.join("wandb")).unwrap().flatten();
    let runs = runs.filter(|run| {
        run.file_name()
            .to_string_lossy()
            .starts_with("offline-run-")
    });
    let files = runs.flat_map(|run| fs::read_dir(run.path()).unwrap().flatten());
    let records = files.filter(|file| file.path().extension().is_some_and(|it| it == "wandb"));
    let read = |file: fs::DirEntry| {
        let name = file.file_name().to_string_lossy().into_owned();
        (name, fs::read(file.path()).unwrap())
    };
    let mut records: Vec<_> = records.map(read).collect();
    records.sort();
    records
}

fn has(record: &[u8], text: &str) -> bool {
    record.windows(text.len()).any(|it| it == text.as_bytes())
}

#[tokio::test]
#[ignore = "needs the binaries and the wandb package, cargo xtask test --all runs it"]
async fn each_lineage_becomes_a_run_with_its_numbers() {
    let Some(python) = external::wandb() else {
        println!(
            "skipped: pip could not install wandb here, so that METACLAW_TEST_WANDB is not set"
        );
        return;
    };
    let home = Home::new(&external::bin_dir(), "mode: skills_only\n");
    let learning = home.path().join("learning");
    fs::create_dir(&learning).unwrap();
    fs::write(learning.join("steps.jsonl"), STEPS).unwrap();
    let python = python.to_str().unwrap();
    let sent = home
        .command(&["metrics", "wandb", "--python", python])
        .current_dir(home.path())
        .env("WANDB_MODE", "offline")
        .env("WANDB_SILENT", "true")
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&sent.stdout);
    assert!(sent.status.success(), "{sent:?}");
    assert_eq!(
        said,
        "main-0badcafe: 2 of 2 steps\nother-3fa9c0d1: 1 of 1 steps\n"
    );
    let records = records(home.path());
    let names: Vec<&str> = records.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["run-main-0badcafe.wandb", "run-other-3fa9c0d1.wandb"]
    );
    for (name, record) in &records {
        assert!(
            has(record, "loss/total") && has(record, "learning_rate"),
            "{name}"
        );
        assert!(!has(record, "gradient/norm"), "{name}: null is no number");
    }
}
