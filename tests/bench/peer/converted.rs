//! The demo model in Hugging Face form, as MetaClaw's own training server keeps it.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use metaclaw_tests::{
    client::Client,
    external,
    trainer::{Start, Trainer},
};
use serde_json::{Value, json};

/// Returns the folder: the training server converts the GGUF file when it starts, and reports the tokenizer's path by
/// Tinker's API.
pub(crate) async fn folder() -> Result<PathBuf> {
    let checkpoints = tempfile::tempdir()?;
    let start = Start {
        model: Some(external::model()),
        checkpoints: Some(checkpoints.path().to_owned()),
        ..Start::default()
    };
    let trainer = Trainer::start(&start).await;
    let client = Client::new(&trainer.url);
    let session = ask(
        &client,
        "create_session",
        json!({"tags": [], "sdk_version": "0.38.0"}),
    )
    .await?;
    let lora = json!({"rank": 1, "train_unembed": false, "train_attn": true, "train_mlp": true});
    let made = json!({"session_id": session["session_id"], "model_seq_id": 0, "base_model": "base", "lora_config": lora});
    let promise = ask(&client, "create_model", made).await?;
    let promised = json!({"request_id": promise["request_id"]});
    let model = ask(&client, "retrieve_future", promised).await?;
    let asked = json!({"model_id": model["model_id"]});
    let info = ask(&client, "get_info", asked).await?;
    trainer.stop().await;
    let folder = info["model_data"]["tokenizer_id"].as_str();
    Ok(PathBuf::from(folder.context("no tokenizer_id")?))
}

async fn ask(client: &Client, call: &str, body: Value) -> Result<Value> {
    let request = client.post(&format!("/api/v1/{call}"), &body);
    let reply = request.header("x-api-key", "tml-none").send().await?;
    let status = reply.status();
    let text = reply.text().await?;
    if !status.is_success() {
        bail!("{call}: {status}: {text}");
    }
    serde_json::from_str(&text).with_context(|| format!("{call} answered {text}"))
}
