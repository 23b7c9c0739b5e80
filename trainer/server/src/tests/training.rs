use super::*;

/// Returns a sequence that continues with 5 after everything, for cross_entropy.
fn datum() -> Value {
    json!({"model_input_tokens": [104, 105, 5, 5], "target_tokens": [5, 5, 5, 5], "weights": [1, 1, 1, 1]})
}

async fn create(rig: &Rig) -> String {
    let run = rig
        .ok("/v1/lora/create", &json!({"rank": 4, "seed": 1}))
        .await;
    run["session_id"].as_str().unwrap().to_owned()
}

async fn step(rig: &Rig, run: &str) -> (f64, Value) {
    let body = json!({"session_id": run, "datums": [datum()], "loss_fn": "cross_entropy"});
    let reply = rig.ok("/v1/train/forward_backward", &body).await;
    assert_eq!(reply["num_datums"], 1);
    assert_eq!(reply["total_tokens"], 4);
    let body = json!({"session_id": run, "learning_rate": 0.01, "grad_clip_norm": 1.0});
    let stepped = rig.ok("/v1/train/optim_step", &body).await;
    (reply["loss"].as_f64().unwrap(), stepped)
}

/// Returns the log-probabilities of the datum's targets, with the run's adapter or without.
async fn forward(rig: &Rig, run: &str, adapter: bool) -> Value {
    let body = json!({"session_id": run, "datums": [datum()], "adapter": adapter, "top_k": 2});
    rig.ok("/v1/train/forward", &body).await
}

#[tokio::test]
async fn a_run_learns_is_saved_and_serves() {
    let rig = rig();
    let (_, health) = rig.get("/v1/health").await;
    // A proxy without rl.model sends its chats here as soon as there is a name.
    assert_eq!(
        (&health["model"], &health["step"]),
        (&json!("tiny"), &json!(0))
    );
    let run = create(&rig).await;
    let (first, stepped) = step(&rig, &run).await;
    assert_eq!(stepped["step"], 1);
    assert!(stepped["grad_norm"].as_f64().unwrap() > 0.0);
    assert!((stepped["avg_loss"].as_f64().unwrap() - first / 4.0).abs() < 1e-6);
    for _ in 0..3 {
        step(&rig, &run).await;
    }
    let (last, _) = step(&rig, &run).await;
    assert!(last < first, "{first} -> {last}");
    let (_, health) = rig.get("/v1/health").await;
    assert_eq!(
        (&health["model"], &health["step"]),
        (&json!("tiny"), &json!(5))
    );

    let saved = rig
        .ok(
            "/v1/weights/save",
            &json!({"session_id": run, "name": "main@5"}),
        )
        .await;
    assert_eq!(saved["step"], 5);
    let path = saved["adapter_path"].as_str().unwrap();
    assert!(path.ends_with("checkpoints/adapters/main@5"), "{path}");
    let (_, models) = rig.get("/v1/models").await;
    let names: Vec<&str> = models["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["id"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["tiny", "main@5"]);

    // It is used by its name, and by requests without one.
    for model in ["main@5", "default"] {
        let body = chat(&json!({"model": model})).to_string();
        let response = rig.send(post("/v1/chat/completions", body)).await;
        assert_eq!(response.headers()["x-metaclaw-adapter"], "main@5");
        let (status, reply) = read(response).await;
        assert_eq!(
            (status, &reply["model"]),
            (StatusCode::OK, &json!("main@5"))
        );
        let (_, record) = rig
            .get(&format!("/v1/sampled/{}", reply["id"].as_str().unwrap()))
            .await;
        assert_eq!(record["adapter"], "main@5");
        // They come from the stream that drew it, not from a second request.
        assert_eq!(record["version"], 5);
    }
    let base = rig
        .send(post(
            "/v1/chat/completions",
            chat(&json!({"model": "base"})).to_string(),
        ))
        .await;
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
    let (first, _) = step(&rig, run).await;
    step(&rig, run).await;
    let (last, _) = step(&rig, run).await;
    assert!(last < first, "{first} -> {last}");
    let after = forward(&rig, run, true).await;
    assert_eq!(
        forward(&rig, run, false).await,
        before,
        "the base is as it was"
    );
    let save = json!({"session_id": run, "name": "h@3", "manifest": {}});
    let saved = rig.ok("/v1/checkpoint/save", &save).await;
    rig.ok(
        "/v1/weights/save",
        &json!({"session_id": run, "name": "h@3"}),
    )
    .await;

    let other = create(&rig).await;
    let load = json!({"session_id": other, "path": saved["path"]});
    rig.ok("/v1/checkpoint/load", &load).await;
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
    let run = create(&rig).await;
    step(&rig, &run).await;
    let manifest =
        json!({"turns": ["1-1", "1-2"], "hash": "ab", "nested": {"b": 1, "a": [null, 2.5]}});
    let save = json!({"session_id": run, "name": "main@1", "manifest": manifest});
    let saved = rig.ok("/v1/checkpoint/save", &save).await;
    let then = forward(&rig, &run, true).await;
    let (second, _) = step(&rig, &run).await;
    assert_ne!(forward(&rig, &run, true).await, then);

    let (_, listed) = rig.get("/v1/checkpoints").await;
    let listed = &listed["checkpoints"][0];
    assert_eq!(
        (&listed["name"], &listed["step"]),
        (&json!("main@1"), &json!(1))
    );
    assert_eq!(listed["manifest"], manifest);

    // It is loaded into another run, by name and by path; then the same step has the same result.
    for path in ["main@1", saved["path"].as_str().unwrap()] {
        let other = create(&rig).await;
        assert_ne!(other, run);
        let load = json!({"session_id": other, "path": path});
        assert_eq!(rig.ok("/v1/checkpoint/load", &load).await["step"], 1);
        assert_eq!(forward(&rig, &other, true).await, then);
        let (again, stepped) = step(&rig, &other).await;
        assert!((again - second).abs() < 1e-5, "{again} {second}");
        assert_eq!(stepped["step"], 2);
    }
}

#[tokio::test]
async fn forward_is_of_the_shape_of_its_targets() {
    let rig = rig();
    let run = create(&rig).await;
    let base = forward(&rig, &run, false).await;
    // A new adapter's B is zero, so it changes nothing.
    assert_eq!(forward(&rig, &run, true).await, base);
    assert_eq!(base["logprobs"][0].as_array().unwrap().len(), 4);
    let shape = |field: &str| {
        let rows = base[field][0].as_array().unwrap();
        (rows.len(), rows[0].as_array().unwrap().len())
    };
    assert_eq!(
        (shape("topk_ids"), shape("topk_logprobs")),
        ((4, 2), (4, 2))
    );
    step(&rig, &run).await;
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
            let run = create(&rig).await;
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
    let (one, other) = (create(&rig).await, create(&rig).await);
    let before = forward(&rig, &other, true).await;
    step(&rig, &one).await;
    assert_eq!(forward(&rig, &other, true).await, before);
    // Its gradients are its own, too.
    let (status, _) = rig
        .post("/v1/train/optim_step", &json!({"session_id": other}))
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_batch_whose_caller_left_adds_nothing() {
    let rig = rig();
    let run = create(&rig).await;
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
    let run = create(&rig).await;
    let datum = json!({"model_input_tokens": [104, 105, 5, 5], "target_tokens": [105, 5, 5, 5], "weights": [0, 1, 1, 0.5]});
    let body = json!({"session_id": run, "datums": [datum, datum], "loss_fn": "cross_entropy"});
    let reply = rig.ok("/v1/train/forward_backward", &body).await;
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
    let run = create(&rig).await;
    let step = async |weight: f64, skip_over: Option<f64>| {
        let datum = json!({"model_input_tokens": [104, 105], "target_tokens": [5, 5], "weights": [weight, weight]});
        let body = json!({"session_id": run, "datums": [datum], "loss_fn": "cross_entropy"});
        rig.ok("/v1/train/forward_backward", &body).await;
        // The learning rate is so small that the gradients stay the same.
        let mut body = json!({"session_id": run, "learning_rate": 1e-9});
        if let Some(factor) = skip_over {
            body["skip_over"] = json!(factor);
        }
        rig.ok("/v1/train/optim_step", &body).await
    };
    for n in 1..=5 {
        let taken = step(1.0, None).await;
        assert_eq!(
            (&taken["step"], &taken["skipped"]),
            (&json!(n), &json!(false))
        );
    }
    let skipped = step(100.0, None).await;
    assert_eq!(
        (&skipped["step"], &skipped["skipped"]),
        (&json!(5), &json!(true))
    );
    let times =
        skipped["grad_norm"].as_f64().unwrap() / skipped["median_grad_norm"].as_f64().unwrap();
    assert!((times - 100.0).abs() < 1.0, "{times}");
    let taken = step(100.0, Some(0.0)).await;
    assert_eq!(
        (&taken["step"], &taken["skipped"]),
        (&json!(6), &json!(false))
    );
}

#[tokio::test]
async fn positions_that_are_not_there_are_refused() {
    let rig = rig();
    let run = create(&rig).await;
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
