//! The banner and `status --json` of ten configurations, as whole files: how the process is put together may change,
//! and what its owner reads may not.

use std::{fs, net::SocketAddr, os::unix::fs::PermissionsExt as _};

use metaclaw_control::{operation::Operation as _, operations::process::GetStatus};
use metaclaw_settings::without_effect;
use serde_json::{Value, json};

use super::*;

/// A trainer that never has its model.
const TRAINER: &str = "#!/bin/sh\nexec cat > /dev/null\n";

const CONFIGURATIONS: [(&str, &str); 10] = [
    ("nothing", ""),
    (
        "llm",
        "llm: {api_base: 'https://api.example/v1', model_id: big-1, api_key: k}\nwechat: {enabled: true}\n",
    ),
    (
        "callers_keys",
        "mode: skills_only\nllm: {api_base: 'https://api.example/v1', model_id: big-1}\nproxy: {api_key: sk-1}\njudge: {kind: rules, rules: [{on: reply, max_words: 40, score: 1}]}\n",
    ),
    (
        "remote",
        "mode: rl\nrl: {remote_url: 'http://127.0.0.1:9', remote_api_key: k}\njudge: {kind: base}\n",
    ),
    (
        "remote_refused",
        "rl: {remote_url: 'https://train.example'}\nprivacy: {cloud_training_ok: false}\nllm: {api_base: 'http://127.0.0.1:9/v1', model_id: m, api_key: k}\n",
    ),
    (
        "service",
        "mode: rl\nrl: {backend: tinker, model: Qwen/Qwen3-8B, tinker_api_key: tml-0123456789, tinker_base_url: 'http://127.0.0.1:9'}\nprivacy: {cloud_training_ok: true}\nllm: {api_base: 'https://api.example/v1', model_id: big-1, api_key: k}\n",
    ),
    (
        "service_refused",
        "rl: {backend: tinker, model: Qwen/Qwen3-8B, tinker_api_key: tml-0123456789}\nprivacy: {cloud_training_ok: false}\n",
    ),
    (
        "upstreams",
        "mode: skills_only\nupstreams: {a: {url: 'https://a.example/v1'}, b: {url: 'http://127.0.0.1:9'}}\nrouting: {order: [a, b]}\nagents: {work: {upstream: b}}\nmemory: {enabled: true}\nskills: {share: {folder: shared, key: 0123456789abcdef0123456789abcdef}}\n",
    ),
    (
        "nothing_kept",
        "turns: {enabled: false}\nwishes: {enabled: false}\nllm: {api_base: 'https://api.example/v1', model_id: big-1, api_key: k}\nevolver: {url: 'https://writer.example/v1', model: w}\n",
    ),
    (
        "local",
        "mode: auto\ntrainer: {model: model.gguf}\ngate: {enabled: false}\njudge: {kind: http, url: 'https://judge.example/score'}\nscheduler: {ics: ['webcal://calendar.example/secret.ics', mine.ics]}\nrl: {manual_train_trigger: true}\n",
    ),
];

#[tokio::test]
async fn the_banner_and_the_status_of_ten_configurations_stay() {
    for (name, text) in CONFIGURATIONS {
        let shown = shown(text).await;
        insta::assert_snapshot!(name, shown);
    }
}

/// What a start with these settings shows, without what differs from run to run.
async fn shown(text: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("model.gguf"), "").unwrap();
    let ports = "ui: {port: 0}\n";
    let mut start = start(dir.path(), &format!("{text}{ports}"));
    start.loaded.config.gateway.proxy.port = 0;
    let inert = without_effect(&start.loaded.config);
    start.loaded.inert.extend(inert);
    let home = &start.site.home;
    home.create().unwrap();
    let trainer = crate::installed::programs(home).trainer_program();
    fs::create_dir_all(trainer.parent().unwrap()).unwrap();
    fs::write(&trainer, TRAINER).unwrap();
    fs::set_permissions(&trainer, fs::Permissions::from_mode(0o700)).unwrap();

    let running = ServingProcess::build(&start).await.unwrap();
    let proxy = running.rooms.gateway.address;
    let pointed = start.agents.point(proxy);
    let banner = running.banner(&start, pointed.as_ref());
    let warnings = running.warnings.clone();
    let instance = Instance::of_process(home.clone(), Arc::clone(&running.rooms));
    let status = GetStatus.perform(&instance).await.unwrap();
    running.end(home).await.unwrap();

    let status = without_times(serde_json::to_value(status).unwrap());
    let status = serde_json::to_string_pretty(&status).unwrap();
    let shown = format!("{banner}\n\nwarnings: {warnings:#?}\n\n{status}\n");
    without_places(&shown, dir.path(), proxy)
}

/// What a task of the background may have found out meanwhile, or not yet, is left out as well.
fn without_times(mut status: Value) -> Value {
    for name in ["pid", "since_ms"] {
        status[name] = json!("[varies]");
    }
    status["spend"]["day"] = json!("[varies]");
    status["learner"]["window"] = json!("[varies]");
    for name in [
        "trainer",
        "inference",
        "number_format",
        "context",
        "share",
        "cloud",
    ] {
        if !status[name].is_null() {
            status[name] = json!("[is there]");
        }
    }
    status
}

fn without_places(shown: &str, dir: &Path, proxy: SocketAddr) -> String {
    shown
        .replace(&dir.display().to_string(), "[dir]")
        .replace(&proxy.to_string(), "[proxy]")
}
