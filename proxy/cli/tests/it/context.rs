//! Tests of a policy model whose context is too short for OpenClaw: reported at the start, in `status` and by `doctor`,
//! and not an error.

use anyhow::Result;
use axum::{Json, Router, routing::get};
use serde_json::json;
use tokio::task::JoinSet;

use crate::harness::{TestHome, until};

/// A training server whose model has this context; it ends when the returned value is dropped.
async fn server(context: u64) -> Result<(String, JoinSet<()>)> {
    let capabilities = json!({"sampled": true, "forward": true, "manifests": true});
    let health = json!({"status": "healthy", "model": "m", "context": context, "capabilities": capabilities});
    let routes = Router::new()
        .route("/v1/health", get(async move || Json(health.clone())))
        .route("/v1/adapters", get(async || Json(json!({"adapters": []}))));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        // It never ends by itself.
        axum::serve(listener, routes).await.ok();
    });
    Ok((url, tasks))
}

/// Returns what `status`, `doctor` and the log report about a model with this context.
async fn told(context: u64) -> Result<[bool; 3]> {
    let (url, mut server) = server(context).await?;
    let home = TestHome::new(&format!(
        "mode: rl\nproxy: {{port: 0}}\nrl: {{remote_url: '{url}'}}\njudge: {{kind: rules}}\n"
    ))?;
    let proxy = home.start().await?;
    let known = async || {
        let status = home.json(&["status", "--json"]).await?;
        Ok(status["context"] == context)
    };
    until(known).await?;
    let sentence =
        format!("the policy model's context is {context} tokens, and OpenClaw needs 16000");
    let status = home.ask(&["status"]).await?;
    let doctor = home.run(&["doctor"]).await?;
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    home.ask(&["stop"]).await?;
    proxy.ended().await?;
    server.shutdown().await;
    let log = std::fs::read_to_string(home.path().join("stderr.log"))?;
    let note = format!("note  context   {sentence}");
    Ok([
        status.contains(&format!("context: {sentence}")),
        doctor.contains(&note),
        log.matches(&sentence).count() == 1,
    ])
}

#[tokio::test]
async fn a_context_that_is_too_short_for_openclaw_is_told_in_a_sentence() {
    assert_eq!(told(8_192).await.unwrap(), [true; 3]);
    assert_eq!(told(16_000).await.unwrap(), [false; 3]);
}

#[tokio::test]
async fn doctor_reads_the_context_of_a_model_in_a_folder_where_nothing_runs() {
    let home = TestHome::new("mode: rl\nproxy: {port: 0}\ntrainer: {model: m}\n").unwrap();
    let folder = home.path().join("m");
    std::fs::create_dir(&folder).unwrap();
    let config = r#"{"max_position_embeddings": 4096}"#;
    std::fs::write(folder.join("config.json"), config).unwrap();
    let model = folder.to_string_lossy();
    home.ask(&["config", "trainer.model", &model])
        .await
        .unwrap();
    let doctor = home.run(&["doctor"]).await.unwrap();
    let said = String::from_utf8_lossy(&doctor.stdout);
    assert!(said.contains("context is 4096 tokens"), "{said}");
}
