use super::*;
use crate::testing::{tiny_config, write_model, write_tiny_model};
use serde_json::json;

fn load(config: &serde_json::Value) -> Model {
    let dir = tempfile::tempdir().unwrap();
    write_model(dir.path(), config, 7).unwrap();
    Model::load(dir.path(), Kind::Float).unwrap()
}

const IDS: [u32; 11] = [10, 200, 33, 258, 1, 90, 91, 92, 17, 40, 5];

fn whole(model: &Model) -> Tensor {
    let ids: Vec<i64> = IDS.iter().copied().map(i64::from).collect();
    let hidden = model
        .forward(&Tensor::from_slice(&ids).unsqueeze(0), None)
        .unwrap();
    model.logits(&hidden).unwrap().squeeze_dim(0)
}

/// Logits of all positions when the ids come in the given portions.
fn in_portions(model: &Model, portions: &[usize]) -> Tensor {
    let mut cache = KvCache::new(&model.family, 1, model.kind, model.device).unwrap();
    let mut start = 0;
    let mut logits = Vec::new();
    for &n in portions {
        let hidden = model
            .forward_cached(&IDS[start..start + n], &mut cache, None)
            .unwrap();
        logits.push(model.logits(&hidden).unwrap().squeeze_dim(0));
        start += n;
    }
    assert_eq!(cache.len(), IDS.len());
    Tensor::cat(&logits, 0)
}

#[test]
fn cached_decoding_equals_the_full_forward() {
    let qwen3 = {
        let mut config = tiny_config();
        config["model_type"] = json!("qwen3");
        config["head_dim"] = json!(16);
        config["tie_word_embeddings"] = json!(false);
        config
    };
    let qwen2 = {
        let mut config = tiny_config();
        config["model_type"] = json!("qwen2");
        config
    };
    for config in [tiny_config(), qwen2, qwen3] {
        let model = load(&config);
        let want = whole(&model);
        for portions in [vec![11], vec![1; 11], vec![4, 6, 1], vec![5, 1, 5]] {
            let got = in_portions(&model, &portions);
            assert!(
                got.allclose(&want, 1e-4, 1e-4, false),
                "{portions:?} of {}",
                config["model_type"]
            );
        }
    }
}

#[test]
fn an_earlier_id_changes_later_logits_only() {
    let model = load(&tiny_config());
    let run = |first: i64| {
        let ids = Tensor::from_slice(&[3, first, 9, 12]).unsqueeze(0);
        model
            .logits(&model.forward(&ids, None).unwrap())
            .unwrap()
            .squeeze_dim(0)
    };
    let (a, b) = (run(50), run(51));
    assert!(a.get(0).allclose(&b.get(0), 1e-6, 1e-6, false));
    assert!(!a.get(3).allclose(&b.get(3), 1e-3, 1e-3, false));
}

#[test]
fn an_id_beyond_the_vocabulary_is_an_error_and_leaves_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    write_tiny_model(dir.path(), 1).unwrap();
    let model = Model::load(dir.path(), Kind::Float).unwrap();
    let mut cache = KvCache::new(&model.family, 1, model.kind, model.device).unwrap();
    assert!(model.forward_cached(&[5000], &mut cache, None).is_err());
    assert_eq!(cache.len(), 0);
}

/// `golden/families.py` made the values with transformers: every family, each kind of stretched angles.
#[test]
fn every_family_computes_what_transformers_computes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/families");
    let text = std::fs::read(folder.join("values.json")).unwrap();
    let text: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let numbers = |key: &str| -> Vec<i64> { serde_json::from_value(text[key].clone()).unwrap() };
    let (ids, rows) = (
        Tensor::from_slice(&numbers("ids")),
        Tensor::from_slice(&numbers("rows")),
    );
    let wanted = crate::tensors::read(&folder.join("values.safetensors")).unwrap();
    let configs = text["configs"].as_object().unwrap();
    assert_eq!(configs.len(), 7);
    for (name, config) in configs {
        let dir = tempfile::tempdir().unwrap();
        write_model(dir.path(), config, text["seed"].as_u64().unwrap()).unwrap();
        let model = Model::load(dir.path(), Kind::Float).unwrap();
        let hidden = model.forward(&ids.unsqueeze(0), None).unwrap();
        let logits = model
            .logits(&hidden)
            .unwrap()
            .squeeze_dim(0)
            .index_select(0, &rows);
        let norm = |t: &Tensor| t.to_kind(Kind::Double).norm().double_value(&[]);
        let distance = norm(&(&logits - &wanted[name])) / norm(&wanted[name]);
        assert!(distance < 1e-5, "{name}: {distance:e}");
    }
}
