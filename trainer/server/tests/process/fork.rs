//! The fork's users: every call that a client of its server makes, as `docs/extending/trainer-api.md` promises them.

use std::{
    fmt::Write as _,
    fs::Permissions,
    os::unix::fs::PermissionsExt as _,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::trainer::{Trainer, folder, started, without_model, write_model};

const KEY: &str = "sk-fork";

/// As the fork's server is started: by its variables.
fn forks(folder: &std::path::Path) -> Trainer {
    let mut command = without_model(folder);
    command.envs([
        ("METACLAW_API_KEY", KEY),
        ("METACLAW_INFERENCE_BACKEND", "hf"),
    ]);
    command.args(["--host", "127.0.0.1", "--log-level", "warning"]);
    let mut trainer = started(command);
    trainer.key = Some(KEY);
    trainer
}

#[track_caller]
fn holds(reply: &Value, fields: &Value) {
    for (field, value) in fields.as_object().unwrap() {
        assert_eq!(reply[field], *value, "{field}");
    }
}

/// Both forms in which the fork's client sends a datum.
fn datums() -> [Value; 2] {
    [
        json!({"model_input_tokens": [1, 2], "target_tokens": [2, 3], "logprobs": [-0.5, -1.25], "advantages": [0.0, 1.0]}),
        json!({"model_input_tokens": [1, 2], "loss_fn_inputs": {
            "target_tokens": {"dtype": "int64", "shape": [2], "data": "AgAAAAAAAAADAAAAAAAAAA=="},
            "logprobs": {"dtype": "float32", "shape": [2], "data": "AAAAvwAAoL8="},
            "advantages": {"dtype": "float32", "shape": [2], "data": "AAAAAAAAgD8="}}}),
    ]
}

#[test]
fn a_client_of_the_forks_server_works_unchanged() {
    let folder = folder();
    let mut trainer = forks(folder.path());
    without_a_session(&mut trainer);
    let model = folder.path().join("tiny").display().to_string();
    let session = create(&trainer, &model);
    train(&trainer, &session);
    save(&trainer, &session);
    serve(&trainer);
}

/// Before a session: healthy, and empty. Health is open.
fn without_a_session(trainer: &mut Trainer) {
    trainer.key = None;
    let (status, health) = trainer.get("/v1/health");
    assert_eq!(status, 200);
    holds(
        &health,
        &json!({"status": "healthy", "model": "", "step": 0, "gpu_count": 0}),
    );
    assert!(health["version"].is_string());
    assert_eq!(health["inference_backend"], "hf");
    assert_eq!(trainer.post("/v1/lora/create", &json!({})).0, 401);
    trainer.key = Some(KEY);
    let (status, early) = trainer.post("/v1/chat/completions", &chat());
    assert_eq!((status, &early["error"]["code"]), (503, &json!("no_model")));
}

fn chat() -> Value {
    json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4})
}

/// The model by its path, which loads it.
fn create(trainer: &Trainer, model: &str) -> String {
    let created = trainer.ok("/v1/lora/create", &json!({"base_model": model, "rank": 4}));
    let session = created["session_id"].as_str().unwrap();
    assert!(session.len() == 8 && session.bytes().all(|b| b.is_ascii_hexdigit()));
    holds(
        &created,
        &json!({"status": "ready", "model": "tiny", "rank": 4}),
    );
    let params = created["trainable_params"].as_str().unwrap();
    let (trained, all) = params.split_once(" / ").unwrap();
    assert!(trained.ends_with('M') && all.ends_with('M'), "{params}");
    session.to_owned()
}

fn train(trainer: &Trainer, session: &str) {
    for (datum, loss) in datums().into_iter().zip([None, Some("ppo")]) {
        let mut body = json!({"session_id": session, "datums": [datum]});
        if let Some(loss) = loss {
            body["loss_fn"] = json!(loss);
        }
        let reply = trainer.ok("/v1/train/forward_backward", &body);
        holds(
            &reply,
            &json!({"status": "ok", "num_datums": 1, "total_tokens": 1}),
        );
        assert!(reply["loss"].is_number());
    }
    let body = json!({"session_id": session, "learning_rate": 5e-4});
    let stepped = trainer.ok("/v1/train/optim_step", &body);
    holds(
        &stepped,
        &json!({"status": "ok", "step": 1, "learning_rate": 5e-4}),
    );
    assert!(stepped["grad_norm"].as_f64().unwrap() > 0.0 && stepped["avg_loss"].is_number());
    assert_eq!(trainer.get("/v1/health").1["step"], 1);
}

/// With names and without.
fn save(trainer: &Trainer, session: &str) {
    let of_session = format!("{session}-1");
    for (name, folder) in [("", &of_session[..]), ("mine", "mine")] {
        let body = json!({"session_id": session, "name": name});
        let saved = trainer.ok("/v1/weights/save", &body);
        holds(&saved, &json!({"status": "ok", "step": 1}));
        let path = saved["adapter_path"].as_str().unwrap();
        assert!(path.ends_with(&format!("adapters/{folder}")), "{path}");
    }
    let named = json!({"session_id": session, "name": "there"});
    for body in [json!({"session_id": session}), named] {
        let saved = trainer.ok("/v1/checkpoint/save", &body);
        let load = json!({"session_id": session, "path": saved["path"]});
        let loaded = trainer.ok("/v1/checkpoint/load", &load);
        holds(&loaded, &json!({"status": "ok", "step": 1}));
    }
}

fn serve(trainer: &Trainer) {
    let body = json!({"tokens": [104, 105], "num_samples": 2, "max_tokens": 5, "stop": ["\n"]});
    let sampled = trainer.ok("/v1/sample", &body);
    for sequence in sampled["sequences"].as_array().unwrap() {
        let n = |field: &str| sequence[field].as_array().unwrap().len();
        assert_eq!(n("tokens"), n("logprobs"));
        assert!(["stop", "length"].contains(&sequence["stop_reason"].as_str().unwrap()));
    }
    // Whoever names no model gets the adapter last saved.
    let reply = trainer.ok("/v1/chat/completions", &chat());
    assert_eq!(reply["model"], "mine");
    let mut streamed = chat();
    streamed["stream"] = json!(true);
    streamed["model"] = json!("mine");
    let (status, events) = trainer.post("/v1/chat/completions", &streamed);
    assert_eq!(status, 200);
    let events = events.as_str().unwrap();
    assert!(events.contains("data: [DONE]"), "{events}");
}

#[test]
fn a_base_model_is_known_by_its_path_its_name_and_its_hubs_name() {
    let folder = folder();
    write_model(&folder.path().join("other/tiny"));
    let path = folder.path().join("tiny");
    let mut command = without_model(folder.path());
    command.arg("--model").arg(&path);
    let trainer = started(command);
    let path = path.display().to_string();
    let others = [format!("{path}/"), format!("{path}/../tiny")];
    for base in [
        &path,
        &others[0],
        &others[1],
        "tiny",
        "acme/tiny",
        "base",
        "",
    ] {
        trainer.ok("/v1/lora/create", &json!({"base_model": base, "rank": 2}));
    }
    let elsewhere = folder.path().join("other/tiny").display().to_string();
    for base in [elsewhere.as_str(), "acme/huge", "../../etc"] {
        let (status, refused) = trainer.post("/v1/lora/create", &json!({"base_model": base}));
        assert_eq!(status, 400, "{base}");
        assert_eq!(refused["error"]["param"], "base_model", "{base}");
    }
}

#[test]
fn a_hubs_model_is_found_in_its_cache_or_refused_in_words() {
    let folder = folder();
    let hub = folder.path().join("hub/models--acme--small");
    write_model(&hub.join("snapshots/0123abcd"));
    std::fs::create_dir_all(hub.join("refs")).unwrap();
    std::fs::write(hub.join("refs/main"), "0123abcd\n").unwrap();
    let mut command = without_model(folder.path());
    command.env("HF_HUB_OFFLINE", "1");
    let trainer = started(command);
    let mut said = String::new();
    for base in [
        "",
        "acme/absent",
        "../small",
        "acme/..",
        "/nowhere/model.gguf",
    ] {
        let (status, refused) = trainer.post("/v1/lora/create", &json!({"base_model": base}));
        assert_eq!(status, 400, "{base}: {refused}");
        writeln!(said, "{}", refused["error"]["message"].as_str().unwrap()).unwrap();
    }
    insta::assert_snapshot!(said.replace(&folder.path().display().to_string(), "[folder]"));
    let create = json!({"base_model": "acme/small", "rank": 2});
    let created = trainer.ok("/v1/lora/create", &create);
    assert_eq!(created["model"], "small");
    assert_eq!(trainer.get("/v1/models").1["data"][0]["id"], "small");
}

#[test]
fn what_this_build_has_not_is_refused_at_the_start() {
    let folder = folder();
    for (name, value, words) in [
        ("METACLAW_TRAINING_DEVICES", "98,99", "GPU 99 is asked for"),
        ("METACLAW_INFERENCE_DEVICES", "99", "GPU 99 is asked for"),
        ("METACLAW_INFERENCE_BACKEND", "sglang", "sglang"),
    ] {
        let output = without_model(folder.path())
            .env(name, value)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(words), "{said}");
    }
}

/// Stands for a Python that has vLLM: it writes down how it was started, and runs until it is told to end.
const PYTHON: &str = r#"#!/bin/sh
printf '%s\n' "$CUDA_VISIBLE_DEVICES" "$@" > "$0.part" && mv "$0.part" "$0.started"
exec sleep 600
"#;

#[test]
fn vllm_is_started_with_the_model_that_the_first_session_names() {
    let folder = folder();
    let python = folder.path().join("python");
    std::fs::write(&python, PYTHON).unwrap();
    std::fs::set_permissions(&python, Permissions::from_mode(0o700)).unwrap();
    let mut command = without_model(folder.path());
    command.args(["--training-devices", "cpu", "--inference-devices", "2,3"]);
    command.args(["--inference-backend", "vllm", "--inference-args=--seed 5"]);
    command.arg("--inference-python").arg(&python);
    let trainer = started(command);
    let health = trainer.get("/v1/health").1;
    assert_eq!(health["inference_backend"], "vllm");
    assert_eq!(health["inference"]["command"], Value::Null);
    assert_eq!(health["inference"]["state"], "away");
    let was_started = python.with_file_name("python.started");
    assert!(!was_started.exists());

    let model = folder.path().join("tiny");
    create(&trainer, &model.display().to_string());
    let begun = Instant::now();
    while !was_started.exists() {
        assert!(begun.elapsed() < Duration::from_secs(30), "vLLM is started");
        std::thread::yield_now();
    }
    let told = std::fs::read_to_string(was_started).unwrap();
    let told: Vec<&str> = told.lines().collect();
    assert_eq!(told[0], "2,3");
    for (flag, value) in [
        ("--model", model.to_str().unwrap()),
        ("--served-model-name", "tiny"),
        ("--dtype", "float32"),
        ("--seed", "5"),
    ] {
        assert!(told.windows(2).any(|two| two == [flag, value]), "{told:?}");
    }
    let command = trainer.get("/v1/health").1["inference"]["command"].clone();
    assert!(command.as_str().unwrap().ends_with(&told[1..].join(" ")));
}
