//! The six engine bugs that the fork reports having mended, as tests; the fifth and the sixth are also
//! `choices::thinking_is_switched_off_where_the_template_can` and `refusals::a_list_of_parts_is_a_text`.

use super::*;

/// A sequence that says 5 after everything, for cross_entropy.
fn datum() -> Value {
    json!({"model_input_tokens": [104, 105, 5, 5], "target_tokens": [5, 5, 5, 5], "weights": [1, 1, 1, 1]})
}

async fn create(rig: &Rig) -> String {
    let body = json!({"base_model": "tiny", "rank": 4, "seed": 1});
    let run = rig.ok("/v1/lora/create", &body).await;
    run["session_id"].as_str().unwrap().to_owned()
}

async fn forward_backward(rig: &Rig, run: &str) -> Value {
    let body = json!({"session_id": run, "datums": [datum()], "loss_fn": "cross_entropy"});
    rig.ok("/v1/train/forward_backward", &body).await
}

async fn step(rig: &Rig, run: &str) -> Value {
    forward_backward(rig, run).await;
    let body = json!({"session_id": run, "learning_rate": 0.01});
    rig.ok("/v1/train/optim_step", &body).await
}

#[tokio::test]
async fn the_optimiser_holds_only_what_is_trained() {
    let rig = rig();
    let run = create(&rig).await;
    step(&rig, &run).await;
    let saved = rig
        .ok("/v1/checkpoint/save", &json!({"session_id": run}))
        .await;
    let folder = std::path::PathBuf::from(saved["path"].as_str().unwrap());
    let bytes = std::fs::read(folder.join("optimizer.safetensors")).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let header = &bytes[8..8 + usize::try_from(length).unwrap()];
    let header: serde_json::Map<String, Value> = serde_json::from_slice(header).unwrap();
    let names: Vec<&String> = header
        .keys()
        .filter(|name| *name != "__metadata__")
        .collect();
    // Two moments of A and B of seven projections in each of two layers.
    assert_eq!(names.len(), 2 * 2 * 7 * 2, "{names:?}");
    assert!(names.iter().all(|name| name.contains("lora_")), "{names:?}");
}

#[tokio::test]
async fn log_probabilities_are_the_untempered_ones_on_both_sides() {
    let rig = rig();
    let run = create(&rig).await;
    step(&rig, &run).await;
    rig.ok(
        "/v1/weights/save",
        &json!({"session_id": run, "name": "main@1"}),
    )
    .await;
    let prompt = [104, 105];
    let sample = json!({"tokens": prompt, "max_tokens": 8, "temperature": 0.4, "top_p": 0.9, "top_k": 20, "seed": 2, "model": "main@1"});
    let sampled = &rig.ok("/v1/sample", &sample).await["sequences"][0];
    let mut ids: Vec<Value> = prompt.iter().map(|id| json!(id)).collect();
    ids.extend(sampled["tokens"].as_array().unwrap().clone());
    let datum = json!({"model_input_tokens": ids[..ids.len() - 1], "target_tokens": ids[1..]});
    let forward = json!({"session_id": run, "datums": [datum]});
    let forward = rig.ok("/v1/train/forward", &forward).await;
    let trained = forward["logprobs"][0].as_array().unwrap();
    let served = sampled["logprobs"].as_array().unwrap();
    for (trained, served) in trained[prompt.len() - 1..].iter().zip(served) {
        let (trained, served) = (trained.as_f64().unwrap(), served.as_f64().unwrap());
        assert!((trained - served).abs() < 1e-4, "{trained} {served}");
    }
    assert_ne!(sampled["logprobs"], sampled["sampling_logprobs"]);
}

#[tokio::test]
async fn training_does_not_break_the_cache_of_replies() {
    let rig = rig();
    let run = create(&rig).await;
    let greedy = chat(&json!({"model": "base", "temperature": 0, "max_tokens": 40}));
    let alone = rig.ok("/v1/chat/completions", &greedy).await;
    // Beside a pass, and after one, from the cache.
    let (beside, _) = tokio::join!(
        rig.ok("/v1/chat/completions", &greedy),
        forward_backward(&rig, &run)
    );
    let after = rig.ok("/v1/chat/completions", &greedy).await;
    for reply in [&beside, &after] {
        assert_eq!(reply["choices"], alone["choices"]);
    }
    let cached = &after["usage"]["prompt_tokens_details"]["cached_tokens"];
    assert!(cached.as_u64().unwrap() > 0);
}

#[tokio::test]
async fn two_servers_of_one_process_do_not_touch_each_other() {
    let (one, other, alone) = (rig(), rig(), rig());
    let train = async |rig: &Rig| {
        let run = create(rig).await;
        step(rig, &run).await;
        step(rig, &run).await
    };
    let (first, second) = tokio::join!(train(&one), train(&other));
    let third = train(&alone).await;
    assert_eq!((&first, &second), (&third, &third));
}
