//! Tests of what is stored: adapters in memory and on disk, checkpoints, and who may write when.

use std::{fs::File, io::Write as _, path::Path, pin::pin, time::Duration};

use futures_util::poll;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use tokio::sync::oneshot;

use super::*;

fn checkpoint(run: &str, name: &str, manifest: &str) -> Value {
    json!({"session_id": run, "name": name, "manifest": manifest})
}

async fn save(rig: &Rig, run: &str, name: &str) {
    let body = checkpoint(run, name, "m");
    rig.ok("/v1/checkpoint/save", &body).await;
    rig.save_weights(run, name).await;
}

async fn names(rig: &Rig, path: &str, list: &str) -> Vec<String> {
    let (status, reply) = rig.get(path).await;
    assert_eq!(status, StatusCode::OK, "{reply}");
    let name = |listed: &Value| listed["name"].as_str().unwrap().to_owned();
    reply[list].as_array().unwrap().iter().map(name).collect()
}

async fn checkpoints(rig: &Rig) -> Vec<String> {
    names(rig, "/v1/checkpoints", "checkpoints").await
}

async fn adapters(rig: &Rig) -> Vec<String> {
    names(rig, "/v1/adapters", "adapters").await
}

/// A learner is killed while its trainer writes on a slow disk. The requests of its successor wait for that write, and
/// what it writes itself comes after it, so that the older folder never replaces the newer one.
#[tokio::test]
async fn a_late_write_of_a_client_that_has_gone_is_waited_for() {
    let rig = rig();
    let run = rig.create().await;
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
    let mut created = pin!(rig.create());
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
    let run = rig.create().await;
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
            reply = &mut asked => panic!("{reply:?}"),
            reply = &mut loaded => panic!("{reply:?}"),
            pipes = async { [opened(&config).await, opened(&state).await] } => pipes,
        };
        rig.chat(&json!({"model": "base"})).await;
        rig.forward_backward(&run, &[datum()]).await;
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
    let run = rig.create().await;
    rig.train_once(&run).await;
    let saved = rig.save_weights(&run, "one").await;
    save(&rig, &run, "two").await;
    let listed = async || rig.get("/v1/adapters").await.1["adapters"].clone();
    let before = listed().await;
    assert_eq!(before[0]["sha256"], saved["sha256"]);
    assert_eq!(before[0]["sha256"], before[1]["sha256"], "another name");
    let state =
        |listed: &Value| json!([listed[0]["step"], listed[0]["loaded"], listed[0]["bytes"]]);
    assert_eq!(state(&before), json!([1, false, null]));
    let (_, reply) = rig.get("/v1/checkpoints").await;
    assert_eq!(reply["checkpoints"][0]["sha256"], saved["sha256"]);

    let load = json!({"lora_name": "one", "lora_path": saved["adapter_path"]});
    let loaded = rig.ok("/v1/load_lora_adapter", &load).await;
    let identity = json!([loaded["sha256"], loaded["step"]]);
    assert_eq!(identity, json!([saved["sha256"], 1]));
    assert_eq!(rig.ok("/v1/load_lora_adapter", &load).await, loaded);
    let after = listed().await;
    assert_eq!(state(&after), json!([1, true, loaded["bytes"]]));
    let reply = rig.chat(&json!({"model": "one"})).await;
    assert_eq!(rig.record(&reply).await["version"], 1);
    let unload = json!({"lora_name": "one"});
    let mut unloaded = Vec::new();
    for _ in 0..2 {
        unloaded.push(rig.ok("/v1/unload_lora_adapter", &unload).await);
    }
    let expected = [true, false].map(|found| json!({"unloaded": found}));
    assert_eq!(unloaded, expected);
    assert_eq!(listed().await, before);
}

#[tokio::test]
async fn what_is_deleted_is_gone_and_what_is_in_use_is_not() {
    let rig = rig();
    let run = rig.create().await;
    save(&rig, &run, "one").await;
    save(&rig, &run, "two").await;
    let code = |(status, reply): (StatusCode, Value)| {
        let code = reply["error"]["code"].as_str().unwrap_or_default();
        format!("{} {code}", status.as_u16())
    };
    let delete = async |path: &str| code(rig.delete(path).await);
    // A running reply keeps its adapter to its end.
    let running = rig
        .stream(&json!({"model": "one", "max_tokens": 100}))
        .await;
    assert_eq!(running.status(), StatusCode::OK);
    assert_eq!(delete("/v1/adapters/one").await, "409 adapter_in_use");
    let (_, text) = read(running).await;
    assert!(text.as_str().unwrap().ends_with("data: [DONE]\n\n"));
    let freed = async {
        while delete("/v1/adapters/one").await != "200 " {
            tokio::task::yield_now().await;
        }
    };
    let freed = tokio::time::timeout(Duration::from_secs(20), freed).await;
    freed.expect("the reply has ended, and with it its hold");
    assert_eq!(adapters(&rig).await, ["two"]);
    let gone = read(rig.begin_chat(&json!({"model": "one"})).await).await;
    assert_eq!(code(gone), "404 model_not_found");
    // Requests without a model's name use the last adapter; the run is at its checkpoint.
    assert_eq!(delete("/v1/adapters/two").await, "409 adapter_in_use");
    assert_eq!(delete("/v1/checkpoints/two").await, "409 checkpoint_in_use");
    assert_eq!(delete("/v1/checkpoints/one").await, "200 ");
    let close = json!({"session_id": run});
    rig.ok("/v1/lora/close", &close).await;
    assert_eq!(delete("/v1/checkpoints/two").await, "200 ");
    assert!(checkpoints(&rig).await.is_empty());
    let closed = rig.post("/v1/lora/close", &close).await;
    assert_eq!(code(closed), "404 run_not_found");
}

#[tokio::test]
async fn what_nobody_needs_is_pruned_with_its_adapter() {
    let rig = rig();
    let (run, idle) = (rig.create().await, rig.create().await);
    save(&rig, &idle, "idle").await;
    for n in 1..=8 {
        rig.train_once(&run).await;
        save(&rig, &run, &format!("main@{n}")).await;
    }
    assert_eq!(checkpoints(&rig).await.len(), 9, "nothing goes unasked");
    // One adapter serves the owner, and one is loaded by a run of its own.
    let other = rig.create().await;
    rig.load_checkpoint(&other, &json!("main@3")).await;
    let keep = json!({"keep": ["main@1", "nobody"]});
    let pruned = rig.ok("/v1/checkpoints/prune", &keep).await;
    assert_eq!(pruned["deleted"], json!(["main@2"]));
    let mut kept = vec!["idle", "main@1"];
    kept.extend(["main@3", "main@4", "main@5", "main@6", "main@7", "main@8"]);
    assert_eq!(checkpoints(&rig).await, kept);
    assert_eq!(adapters(&rig).await, kept);
    let close = json!({"session_id": other});
    rig.ok("/v1/lora/close", &close).await;
    let pruned = rig.ok("/v1/checkpoints/prune", &json!({})).await;
    assert_eq!(pruned["deleted"], json!(["main@1", "main@3"]));
    // From then on, the disk has no more space.
    for n in 9..=11 {
        rig.train_once(&run).await;
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
    let run = rig.create().await;
    rig.save_weights(&run, "sound").await;
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
    let run = rig.create().await;
    rig.save_weights(&run, "kept").await;
    let adapters = rig.folder.path().join("checkpoints/adapters");
    let bytes = std::fs::read(adapters.join("kept/metaclaw.json")).unwrap();
    let origin: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(origin["base_fingerprint"], fingerprint);
    let reply = rig.chat(&json!({})).await;
    let sampled = rig.record(&reply).await;
    assert_eq!(sampled["base_fingerprint"], fingerprint, "{sampled}");
}
