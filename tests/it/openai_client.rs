//! The `openai` Python package, streaming and not, through the proxy to the real engine.

use metaclaw_tests::external;
use serde_json::Value;
use tokio::process::Command;

use crate::chat::laptop_home;

#[tokio::test]
#[ignore = "needs the binaries, the model and the Python packages, cargo xtask test runs it"]
async fn the_openai_package_gets_the_same_answer_streamed_and_whole() {
    let python = external::python();
    let home = laptop_home();
    let proxy = home.start().await.unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/it/openai_package.py");
    let output = Command::new(python)
        .args([script, &proxy.base_url])
        .output()
        .await
        .expect("python runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();

    assert!(seen["whole"].as_str().unwrap().contains("Paris"), "{seen}");
    assert_eq!(seen["whole"], seen["streamed"], "greedy answers agree");
    assert!(seen["n_deltas"].as_u64().unwrap() > 3, "{seen}");
    assert_eq!(seen["n_usages"], 1, "{seen}");
    assert_eq!(seen["whole_usage"], seen["streamed_usage"], "{seen}");
    assert_eq!(seen["refused"]["status"], 400, "{seen}");
    assert!(
        seen["refused"]["message"]
            .as_str()
            .unwrap()
            .contains("temperature"),
        "{seen}"
    );
    assert!(!seen["models"].as_array().unwrap().is_empty(), "{seen}");
    proxy.stop().await.unwrap();
}
