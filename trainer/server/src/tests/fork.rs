//! The six engine bugs that the fork reports having mended, as tests; the fifth and the sixth are also
//! `choices::thinking_is_switched_off_where_the_template_can` and `refusals::a_list_of_parts_is_a_text`.

use super::*;

#[tokio::test]
async fn the_optimiser_holds_only_what_is_trained() {
    let rig = rig();
    let run = rig.create().await;
    rig.train_once(&run).await;
    let body = json!({"session_id": run});
    let saved = rig.ok("/v1/checkpoint/save", &body).await;
    let folder = std::path::PathBuf::from(saved["path"].as_str().unwrap());
    let bytes = std::fs::read(folder.join("optimizer.safetensors")).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let header = &bytes[8..8 + usize::try_from(length).unwrap()];
    let header: serde_json::Map<String, Value> = serde_json::from_slice(header).unwrap();
    let mut names: Vec<&String> = header.keys().collect();
    names.retain(|name| *name != "__metadata__");
    // Two moments of A and B of seven projections in each of two layers.
    assert_eq!(names.len(), 2 * 2 * 7 * 2, "{names:?}");
    assert!(names.iter().all(|name| name.contains("lora_")), "{names:?}");
}

#[tokio::test]
async fn log_probabilities_are_the_untempered_ones_on_both_sides() {
    let rig = rig();
    let run = rig.create().await;
    rig.train_once(&run).await;
    rig.save_weights(&run, "main@1").await;
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
    let run = rig.create().await;
    let greedy = json!({"model": "base", "temperature": 0, "max_tokens": 40});
    let alone = rig.chat(&greedy).await;
    // Beside a pass, and after one, from the cache.
    let datums = [datum()];
    let (beside, _) = tokio::join!(rig.chat(&greedy), rig.forward_backward(&run, &datums));
    let after = rig.chat(&greedy).await;
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
        let run = rig.create().await;
        rig.train_once(&run).await;
        rig.train_once(&run).await.1
    };
    let (first, second) = tokio::join!(train(&one), train(&other));
    let third = train(&alone).await;
    assert_eq!((&first, &second), (&third, &third));
}
