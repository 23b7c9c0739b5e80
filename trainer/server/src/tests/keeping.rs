//! Tests of what is stored: adapters in memory and on disk, checkpoints, and who may write when.

use std::{fs::File, io::Write as _, path::Path, pin::pin, time::Duration};

use futures_util::poll;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use tokio::sync::oneshot;

use super::*;

async fn create(rig: &Rig) -> String {
    let body = json!({"rank": 4, "seed": 1});
    let run = rig.ok("/v1/lora/create", &body).await;
    run["session_id"].as_str().unwrap().to_owned()
}

fn datum() -> Value {
    json!({"model_input_tokens": [104, 105, 5], "target_tokens": [5, 5, 5], "weights": [1, 1, 1]})
}

async fn step(rig: &Rig, run: &str) {
    let body = json!({"session_id": run, "datums": [datum()], "loss_fn": "cross_entropy"});
    rig.ok("/v1/train/forward_backward", &body).await;
    let body = json!({"session_id": run, "learning_rate": 0.01});
    rig.ok("/v1/train/optim_step", &body).await;
}

fn checkpoint(run: &str, name: &str, manifest: &str) -> Value {
    json!({"session_id": run, "name": name, "manifest": manifest})
}

async fn save(rig: &Rig, run: &str, name: &str) {
    rig.ok("/v1/checkpoint/save", &checkpoint(run, name, "m"))
        .await;
    let weights = json!({"session_id": run, "name": name});
    rig.ok("/v1/weights/save", &weights).await;
}

async fn names(rig: &Rig, path: &str, list: &str) -> Vec<String> {
    let (status, reply) = rig.get(path).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    let name = |it: &Value| it["name"].as_str().unwrap().to_owned();
    reply[list].as_array().unwrap().iter().map(name).collect()
}

async fn checkpoints(rig: &Rig) -> Vec<String> {
    names(rig, "/v1/checkpoints", "checkpoints").await
}

async fn adapters(rig: &Rig) -> Vec<String> {
    names(rig, "/v1/adapters", "adapters").await
}

async fn delete(rig: &Rig, path: &str) -> (StatusCode, Value) {
    let request = Request::delete(path).body(Body::empty()).unwrap();
    read(rig.send(request).await).await
}

/// A learner is killed while its trainer writes on a slow disk. The requests of its successor wait for that write, and
/// what it writes itself comes after it, so that the older folder never replaces the newer one.
#[tokio::test]
async fn a_late_write_of_a_client_that_has_gone_is_waited_for() {
    let rig = rig();
    let run = create(&rig).await;
    let (begun, has_begun) = oneshot::channel();
    let (go_on, held) = oneshot::channel();
    rig.app.host.hold_next_write((begun, held));
    {
        let body = checkpoint(&run, "main@1", "first");
        let late = rig.post("/v1/checkpoint/save", &body);
        tokio::select! {
            reply = late => panic!("it was not held: {reply:?}"),
            begun = has_begun => begun.unwrap(),
        }
        // Its connection is closed here.
    }
    let mut created = pin!(create(&rig));
    let second = checkpoint(&run, "main@1", "second");
    let mut saved = pin!(rig.post("/v1/checkpoint/save", &second));
    let mut listed = pin!(checkpoints(&rig));
    let load = json!({"session_id": run, "path": "main@1"});
    let mut loaded = pin!(rig.post("/v1/checkpoint/load", &load));
    assert!(poll!(&mut created).is_pending());
    assert!(poll!(&mut saved).is_pending());
    assert!(poll!(&mut listed).is_pending());
    assert!(poll!(&mut loaded).is_pending());
    // If one of them had reached the engine, it would be answered before this request, which comes after it.
    let forward = json!({"session_id": run, "datums": [datum()]});
    rig.ok("/v1/train/forward", &forward).await;
    assert!(poll!(&mut created).is_pending());
    assert!(poll!(&mut saved).is_pending());
    assert!(poll!(&mut listed).is_pending());
    assert!(poll!(&mut loaded).is_pending());
    go_on.send(()).unwrap();
    let (_, saved, listed, loaded) = tokio::join!(created, saved, listed, loaded);
    assert_eq!((saved.0, loaded.0), (StatusCode::OK, StatusCode::OK));
    assert_eq!(listed, ["main@1"]);
    let (_, reply) = rig.get("/v1/checkpoints").await;
    assert_eq!(reply["checkpoints"][0]["manifest"], "second");
}

/// A read from disk for one run or one request delays no other.
#[tokio::test]
async fn replies_go_on_while_an_adapter_and_a_checkpoint_are_read() {
    let rig = rig();
    let run = create(&rig).await;
    save(&rig, &run, "slow").await;
    let kept = rig.folder.path().join("checkpoints");
    let pipe = |file: &str| {
        let file = kept.join(file);
        std::fs::remove_file(&file).unwrap();
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(CWD, &file, FileType::Fifo, mode, 0).unwrap();
        file
    };
    // Opening one of these to read waits until somebody opens it to write.
    let config = pipe("adapters/slow/adapter_config.json");
    let state = pipe("checkpoints/slow/state.json");
    let body = chat(&json!({"model": "slow"}));
    let mut asked = pin!(rig.post("/v1/chat/completions", &body));
    let load = json!({"session_id": run, "path": "slow"});
    let mut loaded = pin!(rig.post("/v1/checkpoint/load", &load));
    // Opening it to write succeeds once somebody reads; from then on, both readers wait for data.
    let opened = async |file: &Path| {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK;
        loop {
            match rustix::fs::open(file, flags, Mode::empty()) {
                Ok(file) => return File::from(file),
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    let answered = async {
        let pipes = tokio::select! {
            it = &mut asked => panic!("{it:?}"),
            it = &mut loaded => panic!("{it:?}"),
            pipes = async { [opened(&config).await, opened(&state).await] } => pipes,
        };
        rig.ok("/v1/chat/completions", &chat(&json!({"model": "base"})))
            .await;
        rig.ok(
            "/v1/train/forward_backward",
            &json!({"session_id": run, "datums": [datum()], "loss_fn": "cross_entropy"}),
        )
        .await;
        pipes
    };
    let answered = tokio::time::timeout(Duration::from_secs(20), answered).await;
    for mut pipe in answered.expect("others go on") {
        pipe.write_all(b"{").unwrap();
    }
    let (asked, loaded) = tokio::join!(asked, loaded);
    assert_eq!(asked.1["error"]["code"], "adapter_refused", "{asked:?}");
    assert_eq!(loaded.1["error"]["code"], "adapter_damaged", "{loaded:?}");
}

#[tokio::test]
async fn an_adapter_is_known_by_its_content_and_loaded_before_it_is_asked_for() {
    let rig = rig();
    let run = create(&rig).await;
    step(&rig, &run).await;
    let saved = json!({"session_id": run, "name": "one"});
    let saved = rig.ok("/v1/weights/save", &saved).await;
    save(&rig, &run, "two").await;
    let listed = async || rig.get("/v1/adapters").await.1["adapters"].clone();
    let before = listed().await;
    assert_eq!(before[0]["sha256"], saved["sha256"]);
    assert_eq!(before[0]["sha256"], before[1]["sha256"], "another name");
    assert_eq!(
        (&before[0]["step"], &before[0]["loaded"]),
        (&json!(1), &json!(false))
    );
    assert_eq!(before[0]["bytes"], Value::Null);
    let (_, reply) = rig.get("/v1/checkpoints").await;
    assert_eq!(reply["checkpoints"][0]["sha256"], saved["sha256"]);

    let load = json!({"lora_name": "one", "lora_path": saved["adapter_path"]});
    let loaded = rig.ok("/v1/load_lora_adapter", &load).await;
    assert_eq!(
        (&loaded["sha256"], &loaded["step"]),
        (&saved["sha256"], &json!(1))
    );
    assert_eq!(rig.ok("/v1/load_lora_adapter", &load).await, loaded);
    let after = listed().await;
    assert_eq!(
        (&after[0]["loaded"], &after[0]["bytes"]),
        (&json!(true), &loaded["bytes"])
    );
    let reply = rig
        .ok("/v1/chat/completions", &chat(&json!({"model": "one"})))
        .await;
    let id = reply["id"].as_str().unwrap();
    assert_eq!(rig.get(&format!("/v1/sampled/{id}")).await.1["version"], 1);
    let unload = json!({"lora_name": "one"});
    let mut unloaded = Vec::new();
    for _ in 0..2 {
        unloaded.push(rig.ok("/v1/unload_lora_adapter", &unload).await["unloaded"].clone());
    }
    assert_eq!(unloaded, [json!(true), json!(false)]);
    assert_eq!(listed().await, before);
}

#[tokio::test]
async fn what_is_deleted_is_gone_and_what_is_in_use_is_not() {
    let rig = rig();
    let run = create(&rig).await;
    save(&rig, &run, "one").await;
    save(&rig, &run, "two").await;
    let code = |(status, reply): (StatusCode, Value)| {
        (
            status.as_u16(),
            reply["error"]["code"].as_str().map(str::to_owned),
        )
    };
    let conflict = |code: &str| (409, Some(code.to_owned()));
    // A running reply keeps its adapter to its end.
    let body = chat(&json!({"model": "one", "stream": true, "max_tokens": 100}));
    let running = rig
        .send(post("/v1/chat/completions", body.to_string()))
        .await;
    assert_eq!(running.status(), StatusCode::OK);
    assert_eq!(
        code(delete(&rig, "/v1/adapters/one").await),
        conflict("adapter_in_use")
    );
    assert!(
        read(running)
            .await
            .1
            .as_str()
            .unwrap()
            .ends_with("data: [DONE]\n\n")
    );
    let freed = async {
        while delete(&rig, "/v1/adapters/one").await.0 != StatusCode::OK {
            tokio::task::yield_now().await;
        }
    };
    let freed = tokio::time::timeout(Duration::from_secs(20), freed).await;
    freed.expect("the reply has ended, and with it its hold");
    assert_eq!(adapters(&rig).await, ["two"]);
    let gone = rig
        .post("/v1/chat/completions", &chat(&json!({"model": "one"})))
        .await;
    assert_eq!(code(gone), (404, Some("model_not_found".to_owned())));
    // Requests without a model's name use the last adapter; the run is at its checkpoint.
    assert_eq!(
        code(delete(&rig, "/v1/adapters/two").await),
        conflict("adapter_in_use")
    );
    let in_use = conflict("checkpoint_in_use");
    assert_eq!(code(delete(&rig, "/v1/checkpoints/two").await), in_use);
    assert_eq!(delete(&rig, "/v1/checkpoints/one").await.0, StatusCode::OK);
    rig.ok("/v1/lora/close", &json!({"session_id": run})).await;
    assert_eq!(delete(&rig, "/v1/checkpoints/two").await.0, StatusCode::OK);
    assert!(checkpoints(&rig).await.is_empty());
    let closed = rig
        .post("/v1/lora/close", &json!({"session_id": run}))
        .await;
    assert_eq!(code(closed), (404, Some("run_not_found".to_owned())));
}

#[tokio::test]
async fn what_nobody_needs_is_pruned_with_its_adapter() {
    let rig = rig();
    let (run, idle) = (create(&rig).await, create(&rig).await);
    save(&rig, &idle, "idle").await;
    for n in 1..=8 {
        step(&rig, &run).await;
        save(&rig, &run, &format!("main@{n}")).await;
    }
    assert_eq!(checkpoints(&rig).await.len(), 9, "nothing goes unasked");
    // One adapter serves the owner, and one is loaded by a run of its own.
    let other = create(&rig).await;
    let load = json!({"session_id": other, "path": "main@3"});
    rig.ok("/v1/checkpoint/load", &load).await;
    let keep = json!({"keep": ["main@1", "nobody"]});
    let pruned = rig.ok("/v1/checkpoints/prune", &keep).await;
    assert_eq!(pruned["deleted"], json!(["main@2"]));
    let mut kept = vec!["idle", "main@1"];
    kept.extend(["main@3", "main@4", "main@5", "main@6", "main@7", "main@8"]);
    assert_eq!(checkpoints(&rig).await, kept);
    assert_eq!(adapters(&rig).await, kept);
    rig.ok("/v1/lora/close", &json!({"session_id": other}))
        .await;
    let pruned = rig.ok("/v1/checkpoints/prune", &json!({})).await;
    assert_eq!(pruned["deleted"], json!(["main@1", "main@3"]));
    // From then on, the disk has no more space.
    for n in 9..=11 {
        step(&rig, &run).await;
        save(&rig, &run, &format!("main@{n}")).await;
        rig.ok("/v1/checkpoints/prune", &json!({})).await;
        assert_eq!(checkpoints(&rig).await.len(), 6);
        let folders = ["checkpoints", "adapters"].map(|kept| {
            let folder = rig.folder.path().join("checkpoints").join(kept);
            std::fs::read_dir(folder).unwrap().count()
        });
        assert_eq!(folders, [6, 6]);
    }
}

/// An adapter whose numbers are damaged is distinguished from a server that fails.
#[tokio::test]
async fn an_adapter_of_no_numbers_says_so() {
    let rig = rig();
    let run = create(&rig).await;
    let named = json!({"session_id": run, "name": "sound"});
    rig.ok("/v1/weights/save", &named).await;
    let adapters = rig.folder.path().join("checkpoints/adapters");
    let (from, to) = (adapters.join("sound"), adapters.join("spoilt"));
    std::fs::create_dir(&to).unwrap();
    for name in ["adapter_config.json", "metaclaw.json"] {
        std::fs::copy(from.join(name), to.join(name)).unwrap();
    }
    let mut bytes = std::fs::read(from.join("adapter_model.safetensors")).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let (numbers, []) = bytes[8 + usize::try_from(header).unwrap()..].as_chunks_mut::<4>() else {
        panic!("these are f32");
    };
    numbers.fill(f32::NAN.to_le_bytes());
    std::fs::write(to.join("adapter_model.safetensors"), &bytes).unwrap();
    let body = json!({"tokens": [1, 2], "max_tokens": 1, "model": "spoilt"});
    let (status, reply) = rig.post("/v1/sample", &body).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(reply["error"]["code"], "weights_not_finite", "{reply}");
}

/// A file may be renamed, and another may get its name.
#[tokio::test]
async fn the_base_model_is_told_by_its_content() {
    let rig = rig();
    let (_, health) = rig.get("/v1/health").await;
    let fingerprint = health["base_fingerprint"].as_str().unwrap().to_owned();
    let run = create(&rig).await;
    let named = json!({"session_id": run, "name": "kept"});
    rig.ok("/v1/weights/save", &named).await;
    let origin = rig
        .folder
        .path()
        .join("checkpoints/adapters/kept/metaclaw.json");
    let origin: Value = serde_json::from_slice(&std::fs::read(origin).unwrap()).unwrap();
    assert_eq!(origin["base_fingerprint"], fingerprint);
    let reply = rig.ok("/v1/chat/completions", &chat(&json!({}))).await;
    let id = reply["id"].as_str().unwrap();
    let (_, sampled) = rig.get(&format!("/v1/sampled/{id}")).await;
    assert_eq!(sampled["base_fingerprint"], fingerprint, "{sampled}");
}
