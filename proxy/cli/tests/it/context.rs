//! Tests of a policy model whose context is too short for OpenClaw: reported at the start, in `status` and by `doctor`,
//! and not an error.

use serde_json::json;

use crate::harness::{Home, Reply, Server, training};

/// Returns what `status`, `doctor` and the log report about a model with this context.
async fn told(context: u64) -> [bool; 3] {
    let mut health = training::health("m");
    health["context"] = json!(context);
    let server = Server::new(move |request| match request.path() {
        "/v1/health" => Reply::json(&health),
        _ => training::answer(request),
    });
    let url = server.url();
    let home = Home::new(&format!(
        "mode: rl\nproxy: {{port: 0}}\nrl: {{remote_url: '{url}'}}\njudge: {{kind: rules}}\n"
    ));
    let proxy = home.start().await;
    home.json_until(&["status", "--json"], |it| it["context"] == context)
        .await;
    let sentence =
        format!("your own model reads at most {context} tokens at once, and OpenClaw needs 16000");
    let status = home.ask(&["status"]).await;
    let doctor = home.run(&["doctor"]).await;
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    home.stop(proxy).await;
    let log = home.read("stderr.log");
    let note = format!("note  context   {sentence}");
    [
        status.contains(&format!("context: {sentence}")),
        doctor.contains(&note),
        log.matches(&sentence).count() == 1,
    ]
}

#[tokio::test]
async fn a_context_that_is_too_short_for_openclaw_is_told_in_a_sentence() {
    assert_eq!(told(8_192).await, [true; 3]);
    assert_eq!(told(16_000).await, [false; 3]);
}

#[tokio::test]
async fn doctor_reads_the_context_of_a_model_in_a_folder_where_nothing_runs() {
    let home = Home::new("mode: rl\nproxy: {port: 0}\ntrainer: {model: m}\n");
    let folder = home.path().join("m");
    std::fs::create_dir(&folder).unwrap();
    let config = r#"{"max_position_embeddings": 4096}"#;
    std::fs::write(folder.join("config.json"), config).unwrap();
    let model = folder.to_string_lossy();
    home.ask(&["config", "trainer.model", &model]).await;
    let doctor = home.run(&["doctor"]).await;
    let said = String::from_utf8_lossy(&doctor.stdout);
    assert!(said.contains("at most 4096 tokens"), "{said}");
}
