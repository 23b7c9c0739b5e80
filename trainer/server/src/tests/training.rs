use super::*;

/// Returns the log-probabilities of the datum's targets, with the run's adapter or without.
async fn forward(rig: &Rig, run: &str, adapter: bool) -> Value {
    let body = json!({"session_id": run, "datums": [datum()], "adapter": adapter, "top_k": 2});
    rig.ok("/v1/train/forward", &body).await
}

#[tokio::test]
async fn a_run_learns_is_saved_and_serves() {
    learns_is_saved_and_serves(rig()).await;
}

#[tokio::test]
async fn a_run_of_gated_delta_nets_learns_is_saved_and_serves() {
    let folder = folder_of(&tiny_nets(4));
    learns_is_saved_and_serves(rig_in(folder, ServerLimits::default(), None)).await;
}

async fn learns_is_saved_and_serves(rig: Rig) {
    let (_, health) = rig.get("/v1/health").await;
    // A proxy without rl.model sends its chats here as soon as there is a name.
    assert_eq!(json!([health["model"], health["step"]]), json!(["tiny", 0]));
    let run = rig.create().await;
    let passed = rig.forward_backward(&run, &[datum()]).await;
    assert_eq!(passed["num_datums"], 1);
    assert_eq!(passed["total_tokens"], 4);
    let first = passed["loss"].as_f64().unwrap();
    let clipped = json!({"session_id": run, "learning_rate": 0.01, "grad_clip_norm": 1.0});
    let stepped = rig.ok("/v1/train/optim_step", &clipped).await;
    assert_eq!(stepped["step"], 1);
    assert!(stepped["grad_norm"].as_f64().unwrap() > 0.0);
    assert!((stepped["avg_loss"].as_f64().unwrap() - first / 4.0).abs() < 1e-6);
    for _ in 0..3 {
        rig.train_once(&run).await;
    }
    let (last, _) = rig.train_once(&run).await;
    assert!(last < first, "{first} -> {last}");
    let (_, health) = rig.get("/v1/health").await;
    assert_eq!(json!([health["model"], health["step"]]), json!(["tiny", 5]));

    let saved = rig.save_weights(&run, "main@5").await;
    assert_eq!(saved["step"], 5);
    let path = saved["adapter_path"].as_str().unwrap();
    assert!(path.ends_with("checkpoints/adapters/main@5"), "{path}");
    let (_, models) = rig.get("/v1/models").await;
    let models = models["data"].as_array().unwrap();
    let names: Vec<&Value> = models.iter().map(|model| &model["id"]).collect();
    assert_eq!(names, ["tiny", "main@5"]);

    // It is used by its name, and by requests without one.
    for model in ["main@5", "default"] {
        let response = rig.begin_chat(&json!({"model": model})).await;
        assert_eq!(response.headers()["x-metaclaw-adapter"], "main@5");
        let (status, reply) = read(response).await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(reply["model"], "main@5");
        let record = rig.record(&reply).await;
        // They come from the stream that drew it, not from a second request.
        assert_eq!(record["adapter"], "main@5");
        assert_eq!(record["version"], 5);
    }
    let base = rig.begin_chat(&json!({"model": "base"})).await;
    assert!(base.headers().get("x-metaclaw-adapter").is_none());
    let unload = json!({"lora_name": "main@5"});
    let unloaded = rig.ok("/v1/unload_lora_adapter", &unload).await;
    assert_eq!(unloaded, json!({"unloaded": true}));
}

#[tokio::test]
async fn the_lm_head_learns_is_saved_comes_back_and_serves() {
    let rig = rig();
    let body = json!({"rank": 4, "seed": 1, "targets": ["lm_head"]});
    let opened = rig.ok("/v1/lora/create", &body).await;
    // 4 x (32 + 259): nothing else is trained.
    let trained = opened["trainable_params"].as_str().unwrap();
    assert!(trained.starts_with("0.00M / 0.0"), "{trained}");
    let run = opened["session_id"].as_str().unwrap();
    let before = forward(&rig, run, false).await;
    let (first, _) = rig.train_once(run).await;
    rig.train_once(run).await;
    let (last, _) = rig.train_once(run).await;
    assert!(last < first, "{first} -> {last}");
    let after = forward(&rig, run, true).await;
    // The base is as it was.
    assert_eq!(forward(&rig, run, false).await, before);
    let save = json!({"session_id": run, "name": "h@3", "manifest": {}});
    let saved = rig.ok("/v1/checkpoint/save", &save).await;
    rig.save_weights(run, "h@3").await;

    let other = rig.create().await;
    rig.load_checkpoint(&other, &saved["path"]).await;
    assert_eq!(forward(&rig, &other, true).await, after);
    // The reply shows the training: it is the most probable token after the datum's first two.
    let body = json!({"tokens": [104, 105], "model": "h@3", "temperature": 0, "max_tokens": 1});
    let sampled = rig.ok("/v1/sample", &body).await;
    let drawn = &sampled["sequences"][0];
    assert_eq!(drawn["tokens"][0], after["topk_ids"][0][1][0]);
    let logprob = |value: &Value| value.as_f64().unwrap();
    let wanted = logprob(&after["topk_logprobs"][0][1][0]);
    assert!((logprob(&drawn["logprobs"][0]) - wanted).abs() < 1e-4);
    assert!((wanted - logprob(&before["topk_logprobs"][0][1][0])).abs() > 1e-3);
}

#[tokio::test]
async fn a_checkpoint_brings_a_run_back() {
    let rig = rig();
    let run = rig.create().await;
    rig.train_once(&run).await;
    let manifest =
        json!({"turns": ["1-1", "1-2"], "hash": "ab", "nested": {"b": 1, "a": [null, 2.5]}});
    let save = json!({"session_id": run, "name": "main@1", "manifest": manifest});
    let saved = rig.ok("/v1/checkpoint/save", &save).await;
    let then = forward(&rig, &run, true).await;
    let (second, _) = rig.train_once(&run).await;
    assert_ne!(forward(&rig, &run, true).await, then);

    let (_, listed) = rig.get("/v1/checkpoints").await;
    let listed = &listed["checkpoints"][0];
    assert_eq!(listed["name"], "main@1");
    assert_eq!(listed["step"], 1);
    assert_eq!(listed["manifest"], manifest);

    // It is loaded into another run, by name and by path; then the same step has the same result.
    for path in [&json!("main@1"), &saved["path"]] {
        let other = rig.create().await;
        assert_ne!(other, run);
        assert_eq!(rig.load_checkpoint(&other, path).await["step"], 1);
        assert_eq!(forward(&rig, &other, true).await, then);
        let (again, stepped) = rig.train_once(&other).await;
        assert!((again - second).abs() < 1e-5, "{again} {second}");
        assert_eq!(stepped["step"], 2);
    }
}

#[tokio::test]
async fn forward_is_of_the_shape_of_its_targets() {
    let rig = rig();
    let run = rig.create().await;
    let base = forward(&rig, &run, false).await;
    // A new adapter's B is zero, so it changes nothing.
    assert_eq!(forward(&rig, &run, true).await, base);
    assert_eq!(base["logprobs"][0].as_array().unwrap().len(), 4);
    let shape = |field: &str| {
        let rows = base[field][0].as_array().unwrap();
        (rows.len(), rows[0].as_array().unwrap().len())
    };
    assert_eq!(["topk_ids", "topk_logprobs"].map(shape), [(4, 2), (4, 2)]);
    rig.train_once(&run).await;
    assert_eq!(forward(&rig, &run, false).await, base);
    assert_ne!(forward(&rig, &run, true).await, base);
}

#[tokio::test]
async fn both_forms_of_a_datum_train_alike() {
    let rig = rig();
    let lists = json!({"model_input_tokens": [1, 2], "target_tokens": [2, 3], "logprobs": [-0.5, -1.25], "advantages": [0, 1]});
    let tensors = json!({"model_input_tokens": [1, 2], "loss_fn_inputs": {
        "target_tokens": {"dtype": "int64", "shape": [2], "data": "AgAAAAAAAAADAAAAAAAAAA=="},
        "logprobs": {"dtype": "float32", "shape": [2], "data": "AAAAvwAAoL8="},
        "advantages": {"dtype": "float32", "shape": [2], "data": "AAAAAAAAgD8="}}});
    for loss in ["importance_sampling", "ppo", "cispo", "dro"] {
        let mut losses = Vec::new();
        for datum in [&lists, &tensors] {
            let run = rig.create().await;
            let body = json!({"session_id": run, "datums": [datum], "loss_fn": loss});
            let reply = rig.ok("/v1/train/forward_backward", &body).await;
            losses.push(reply["loss"].as_f64().unwrap());
        }
        assert!((losses[0] - losses[1]).abs() < 1e-9, "{loss}: {losses:?}");
    }
}

#[tokio::test]
async fn two_runs_do_not_touch_each_other() {
    let rig = rig();
    let (one, other) = (rig.create().await, rig.create().await);
    let before = forward(&rig, &other, true).await;
    rig.train_once(&one).await;
    assert_eq!(forward(&rig, &other, true).await, before);
    // Its gradients are its own, too.
    let step = json!({"session_id": other});
    let (status, _) = rig.post("/v1/train/optim_step", &step).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_batch_whose_caller_left_adds_nothing() {
    let rig = rig();
    let run = rig.create().await;
    // No two sequences begin alike, because they would be computed once.
    let datum = |first: u32| {
        let long: Vec<u32> = (first..first + 500).map(|n| n % 250).collect();
        json!({"model_input_tokens": long, "target_tokens": long, "weights": vec![1; 500]})
    };
    let datums: Vec<_> = (0..20).map(datum).collect();
    let body = json!({"session_id": run, "datums": datums, "loss_fn": "cross_entropy"});
    let call = rig.post("/v1/train/forward_backward", &body);
    let left = tokio::time::timeout(std::time::Duration::from_millis(5), call).await;
    assert!(left.is_err(), "it was faster than its caller could leave");
    let step = json!({"session_id": run});
    let (status, reply) = rig.post("/v1/train/optim_step", &step).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(reply["error"]["code"], "no_gradients");
}

#[tokio::test]
async fn forward_backward_says_what_its_loss_is_made_of() {
    let rig = rig();
    let run = rig.create().await;
    let datum = json!({"model_input_tokens": [104, 105, 5, 5], "target_tokens": [105, 5, 5, 5], "weights": [0, 1, 1, 0.5]});
    let reply = rig
        .forward_backward(&run, &[datum.clone(), datum.clone()])
        .await;
    let outputs = reply["loss_fn_outputs"].as_array().unwrap();
    assert_eq!((outputs.len(), &outputs[0]), (2, &outputs[1]));
    let logprobs = outputs[0]["logprobs"].as_array().unwrap();
    // The value is not 0, which would mean certainty: nothing was computed there.
    assert!(logprobs[0].is_null());
    let logprob = |i: usize| logprobs[i].as_f64().unwrap();
    let loss = -2.0 * (logprob(1) + logprob(2) + 0.5 * logprob(3));
    assert!((reply["loss"].as_f64().unwrap() - loss).abs() < 1e-4);

    let body =
        json!({"session_id": run, "datums": [datum, datum], "top_k": 2, "positions": [[1, 3], []]});
    let found = rig.ok("/v1/train/forward", &body).await;
    let asked = found["logprobs"][0].as_array().unwrap();
    assert_eq!(asked.len(), 2);
    assert!((asked[0].as_f64().unwrap() - logprob(1)).abs() < 1e-5);
    assert!((asked[1].as_f64().unwrap() - logprob(3)).abs() < 1e-5);
    assert_eq!(found["topk_ids"][0].as_array().unwrap().len(), 2);
    assert_eq!(found["logprobs"][1], json!([]));
}

#[tokio::test]
async fn a_step_far_out_of_line_is_skipped_unless_told_otherwise() {
    let rig = rig();
    let run = rig.create().await;
    let step = async |weight: f64, skip_over: Option<f64>| {
        let datum = json!({"model_input_tokens": [104, 105], "target_tokens": [5, 5], "weights": [weight, weight]});
        rig.forward_backward(&run, &[datum]).await;
        // The learning rate is so small that the gradients stay the same.
        let mut body = json!({"session_id": run, "learning_rate": 1e-9});
        if let Some(factor) = skip_over {
            body["skip_over"] = json!(factor);
        }
        rig.ok("/v1/train/optim_step", &body).await
    };
    let told = |step: &Value| json!([step["step"], step["skipped"]]);
    for n in 1..=5 {
        assert_eq!(told(&step(1.0, None).await), json!([n, false]));
    }
    let skipped = step(100.0, None).await;
    assert_eq!(told(&skipped), json!([5, true]));
    let norm = |name: &str| skipped[name].as_f64().unwrap();
    let times = norm("grad_norm") / norm("median_grad_norm");
    assert!((times - 100.0).abs() < 1.0, "{times}");
    assert_eq!(told(&step(100.0, Some(0.0)).await), json!([6, false]));
}

#[tokio::test]
async fn positions_that_are_not_there_are_refused() {
    let rig = rig();
    let run = rig.create().await;
    for (positions, wanted) in [
        (
            json!([[4]]),
            "positions[0][0] is 4, allowed are 0 to 3, each above the one before",
        ),
        (
            json!([]),
            "positions has 0 lists, 1 are needed: one for each datum",
        ),
    ] {
        let body = json!({"session_id": run, "datums": [datum()], "positions": positions});
        let (status, reply) = rig.post("/v1/train/forward", &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert_eq!(reply["error"]["param"], "positions");
        assert_eq!(reply["error"]["message"], wanted);
    }
}
