//! Tests of which modules of a model have an adapter, and of a prompt's log-probabilities from samplers.

use super::*;

impl Rig {
    async fn done(&self, route: &str, body: &Value) -> Value {
        let promise = self.ok(&format!("/api/v1/{route}"), body).await;
        let result = self.result(&promise).await;
        assert!(result["error"].is_null(), "{route}: {result}");
        result
    }

    /// Returns the `target_modules` on disk of a model that was saved for sampling.
    async fn targets_on_disk(&self, model: &str, seq_id: u32) -> Vec<String> {
        let body = json!({"model_id": model, "path": "served", "seq_id": seq_id});
        self.done("save_weights_for_sampler", &body).await;
        let name = format!("{}.served", model.replace(':', "."));
        let folder = self.app.host.adapter_folder().join(name);
        let config = std::fs::read(folder.join("adapter_config.json")).unwrap();
        let config: Value = serde_json::from_slice(&config).unwrap();
        let numbers = std::fs::read(folder.join("adapter_model.safetensors")).unwrap();
        let head = b"base_model.model.lm_head.lora_B.weight";
        let has_head = numbers.windows(head.len()).any(|window| window == head);
        let named = config["target_modules"].clone();
        let mut targets: Vec<String> = serde_json::from_value(named).unwrap();
        assert_eq!(has_head, targets.iter().any(|target| target == "lm_head"));
        targets.sort_unstable();
        targets
    }

    async fn save(&self, model: &str, seq_id: u32) -> Value {
        let body = json!({"model_id": model, "path": "state", "seq_id": seq_id});
        let saved = self.done("save_weights", &body).await;
        let info = json!({"tinker_path": saved["path"]});
        self.ok("/api/v1/weights_info", &info).await
    }
}

const ATTN: [&str; 4] = ["k_proj", "o_proj", "q_proj", "v_proj"];
#[rustfmt::skip]
const ALL: [&str; 8] =
    ["down_proj", "gate_proj", "k_proj", "lm_head", "o_proj", "q_proj", "up_proj", "v_proj"];

#[tokio::test]
async fn the_lm_head_is_trained_unless_a_client_says_otherwise() {
    let rig = patient();
    let usual = rig.model(4).await;
    let of_layers = json!({"rank": 4, "seed": 5, "train_unembed": false});
    let without = rig.model_of(of_layers).await;
    let of_head = json!({"rank": 4, "train_attn": false, "train_mlp": false});
    let alone = rig.model_of(of_head).await;
    let info = rig.info(&json!(usual)).await;
    assert!(info["warning"].is_null(), "{info}");
    assert_eq!(rig.targets_on_disk(&usual, 1).await, ALL);
    let mut layers = ALL.to_vec();
    layers.retain(|name| *name != "lm_head");
    assert_eq!(rig.targets_on_disk(&without, 1).await, layers);
    assert_eq!(rig.targets_on_disk(&alone, 1).await, ["lm_head"]);

    let mut losses = Vec::new();
    for seq in [2, 4, 6] {
        let (_, promise) = rig.train(&forward_backward(&alone, seq, &[datum(5)])).await;
        let trained = rig.result(&promise).await;
        losses.push(trained["metrics"]["loss:sum"].as_f64().unwrap());
        rig.step(&alone, seq.cast_unsigned() + 1).await;
    }
    assert!(losses[2] < losses[1] && losses[1] < losses[0], "{losses:?}");
}

#[tokio::test]
async fn a_model_has_rank_and_targets_of_the_checkpoint_that_it_was_loaded_from() {
    let rig = patient();
    let usual = rig.model(4).await;
    let said = rig.save(&usual, 1).await;
    assert_eq!(said["lora_rank"], 4);
    assert_eq!(said["train_unembed"], true);
    let state = format!("tinker://{usual}/weights/state");

    // One model is new, and one had another rank and other targets.
    let made = json!({"session_id": rig.session().await, "model_seq_id": 0, "path": state, "optimizer": true});
    let made = rig.done("load_weights", &made).await;
    let made = made["model_id"].as_str().unwrap();
    let of_attention = json!({"rank": 2, "train_mlp": false, "train_unembed": false});
    let other = rig.model_of(of_attention).await;
    assert_eq!(rig.targets_on_disk(&other, 1).await, ATTN);
    assert_eq!(rig.save(&other, 2).await["train_unembed"], json!(false));
    let load = json!({"model_id": other, "path": state, "optimizer": true, "seq_id": 3});
    rig.done("load_weights", &load).await;
    for (model, seq) in [(made, 1), (other.as_str(), 4)] {
        assert_eq!(rig.info(&json!(model)).await["lora_rank"], 4);
        let body = json!({"model_id": model, "path": "again", "seq_id": seq});
        let saved = rig.done("save_weights", &body).await;
        let asked = json!({"tinker_path": saved["path"]});
        assert_eq!(rig.ok("/api/v1/weights_info", &asked).await, said);
    }
    assert_eq!(rig.targets_on_disk(made, 2).await, ALL);
}

#[tokio::test]
async fn a_model_that_cannot_be_loaded_is_none() {
    let rig = patient();
    let usual = rig.model(4).await;
    rig.save(&usual, 1).await;
    let folder = rig.app.host.checkpoint_folder();
    let folder = folder.join(format!("{}.state", usual.replace(':', ".")));
    std::fs::write(folder.join("optimizer.safetensors"), b"none").unwrap();
    let body = json!({"session_id": rig.session().await, "model_seq_id": 0, "optimizer": true,
        "path": format!("tinker://{usual}/weights/state")});
    let promise = rig.ok("/api/v1/load_weights", &body).await;
    let failed = rig.result(&promise).await;
    assert!(failed["error"].is_string(), "{failed}");
    let model = promise["model_id"].as_str().unwrap();
    let run = format!("/api/v1/training_runs/{model}");
    let mut asked = 0;
    // Its result is reported before its place is freed.
    while rig.get(&run).await.0 == StatusCode::OK {
        tokio::task::yield_now().await;
        asked += 1;
        assert!(asked < 1_000_000, "it is still there");
    }
}

#[tokio::test]
async fn samplers_tell_of_a_prompt_what_the_model_that_was_saved_computes() {
    let rig = patient();
    let model = rig.model(4).await;
    rig.train(&forward_backward(&model, 1, &[datum(5)])).await;
    rig.step(&model, 2).await;
    let body = json!({"model_id": model, "sampling_session_seq_id": 0, "seq_id": 3});
    let saved = rig.done("save_weights_for_sampler", &body).await;
    let mut forward = forward_backward(&model, 4, &[datum(5)]);
    forward.forward_only = true;
    let (_, promise) = rig.train(&forward).await;
    let computed = rig.result(&promise).await;
    let computed = &computed["loss_fn_outputs"][0]["logprobs"]["data"];

    let tokens = json!([1, 2, 3, 4, 5, 6]);
    let sample = json!({"sampling_session_id": saved["sampling_session_id"], "seq_id": 0,
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": tokens}]}, "num_samples": 2,
        "sampling_params": {"max_tokens": 1}, "prompt_logprobs": true, "topk_prompt_logprobs": 3});
    let told = rig.done("asample", &sample).await;
    let logprobs = told["prompt_logprobs"].as_array().unwrap();
    assert_eq!((logprobs.len(), &logprobs[0]), (6, &Value::Null));
    for at in 0..5 {
        let one = logprobs[at + 1].as_f64().unwrap();
        let other = computed[at].as_f64().unwrap();
        assert!((one - other).abs() < 1e-4, "{told} {computed}");
    }
    let top = told["topk_prompt_logprobs"].as_array().unwrap();
    assert_eq!((top.len(), &top[0]), (6, &Value::Null));
    for row in &top[1..] {
        let row: Vec<(u32, f64)> = serde_json::from_value(row.clone()).unwrap();
        let is_sorted = row.is_sorted_by(|a, b| a.1 >= b.1);
        assert!(row.len() == 3 && is_sorted, "{told}");
    }

    let mut last = sample.clone();
    last["seq_id"] = json!(1);
    last["prompt_logprobs_last_n"] = json!(2);
    let last = rig.done("asample", &last).await;
    let expected = [vec![Value::Null; 4], logprobs[4..].to_vec()].concat();
    assert_eq!(last["prompt_logprobs"], Value::from(expected));
}
