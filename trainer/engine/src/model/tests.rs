use super::*;
use crate::batch::{Keep, Rows};
use crate::device::Devices;
use crate::kv::{KvPool, PositionRun};
use crate::lora::{BaseDims, LoraSpec};
use crate::testing::{tiny_config, write_model, write_tiny_model};
use serde_json::json;

fn load(config: &serde_json::Value) -> Model {
    let dir = tempfile::tempdir().unwrap();
    write_model(dir.path(), config, 7).unwrap();
    Model::load(dir.path(), Kind::Float, &Devices::cpu()).unwrap()
}

const IDS: [u32; 11] = [10, 200, 33, 258, 1, 90, 91, 92, 17, 40, 5];

fn whole(model: &Model) -> Tensor {
    let ids: Vec<i64> = IDS.iter().copied().map(i64::from).collect();
    let hidden = model
        .forward(&Tensor::from_slice(&ids).unsqueeze(0), None)
        .unwrap();
    model.logits(&hidden, None).unwrap().squeeze_dim(0)
}

fn pool(model: &Model) -> KvPool {
    let budget = KvPool::position_bytes(&model.config, model.kind) * 256;
    KvPool::new(&model.config, budget, model.kind, &model.placement).unwrap()
}

/// Makes rows of a sequence whose positions are consecutive in the pool from `slot` on.
fn rows<'a>(ids: &'a [u32], start: usize, slot: usize, lora: Option<&'a Lora>) -> Rows<'a> {
    let past = if ids.len() == 1 { start + 1 } else { start };
    let run = PositionRun {
        start: slot,
        len: past,
    };
    Rows {
        ids,
        start,
        slots: (slot + start..slot + start + ids.len()).collect(),
        past: Some(run).filter(|run| run.len > 0).into_iter().collect(),
        lora,
        keep: Keep::Last,
    }
}

/// Returns the logits of the last position of each portion of the ids.
fn in_portions(model: &Model, portions: &[usize]) -> Tensor {
    let mut pool = pool(model);
    let mut start = 0;
    let mut hidden = Vec::new();
    for &n in portions {
        let rows = rows(&IDS[start..start + n], start, 32, None);
        hidden.push(model.forward_batch(&[rows], &mut pool).unwrap());
        start += n;
    }
    model.logits(&Tensor::cat(&hidden, 0), None).unwrap()
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
            let ends = portions.iter().scan(-1, |end, &n| {
                *end += i64::try_from(n).unwrap();
                Some(*end)
            });
            let ends = Tensor::from_slice(&ends.collect::<Vec<i64>>());
            let got = in_portions(&model, &portions);
            assert!(
                got.allclose(&want.index_select(0, &ends), 1e-4, 1e-4, false),
                "{portions:?} of {}",
                config["model_type"]
            );
        }
    }
}

/// Makes an adapter with an effect: B is not zero.
fn adapter(model: &Model, seed: i64) -> Lora {
    let dims = BaseDims::of(&model.config);
    let spec = LoraSpec {
        rank: 2,
        ..LoraSpec::default()
    };
    let lora = Lora::init(spec, dims, model.config.n_layers, 1).unwrap();
    tch::manual_seed(seed);
    lora.try_map(|t| (t.f_randn_like()? * 0.3).f_add(t))
        .unwrap()
}

/// For every family: four sequences in one batch, prompts and a decoding row, two adapters and none, compared with each
/// alone.
#[test]
fn a_batch_computes_what_each_row_computes_alone() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/families");
    let text = std::fs::read(folder.join("values.json")).unwrap();
    let text: serde_json::Value = serde_json::from_slice(&text).unwrap();
    for (name, config) in text["configs"].as_object().unwrap() {
        let model = load(config);
        let adapters = [3, 4].map(|seed| adapter(&model, seed));
        let served = [0, 1].map(|i: usize| adapters[i].for_serving(&model.placement).unwrap());
        let alone = |ids: &[u32], lora: Option<&Lora>| {
            let ids: Vec<i64> = ids.iter().copied().map(i64::from).collect();
            let hidden = model.forward(&Tensor::from_slice(&ids).unsqueeze(0), lora);
            hidden.unwrap().select(1, -1)
        };
        let mut pool = pool(&model);
        // The third one has cached positions already.
        let past = rows(&IDS[..5], 0, 96, Some(&served[1]));
        let _hidden = model.forward_batch(&[past], &mut pool).unwrap();
        let batch = [
            rows(&IDS[..7], 0, 0, None),
            rows(&IDS[3..5], 0, 64, Some(&served[0])),
            rows(&IDS[5..6], 5, 96, Some(&served[1])),
            rows(&IDS[2..9], 0, 128, Some(&served[1])),
        ];
        let got = model.forward_batch(&batch, &mut pool).unwrap();
        let want = Tensor::cat(
            &[
                alone(&IDS[..7], None),
                alone(&IDS[3..5], Some(&adapters[0])),
                alone(&IDS[..6], Some(&adapters[1])),
                alone(&IDS[2..9], Some(&adapters[1])),
            ],
            0,
        );
        let norm = |t: &Tensor| t.norm().double_value(&[]);
        let distance = norm(&(&got - &want)) / norm(&want);
        assert!(distance < 1e-5, "{name}: {distance:e}");
    }
}

#[test]
fn an_earlier_id_changes_later_logits_only() {
    let model = load(&tiny_config());
    let run = |first: i64| {
        let ids = Tensor::from_slice(&[3, first, 9, 12]).unsqueeze(0);
        model
            .logits(&model.forward(&ids, None).unwrap(), None)
            .unwrap()
            .squeeze_dim(0)
    };
    let (a, b) = (run(50), run(51));
    assert!(a.get(0).allclose(&b.get(0), 1e-6, 1e-6, false));
    assert!(!a.get(3).allclose(&b.get(3), 1e-3, 1e-3, false));
}

#[test]
fn an_id_beyond_the_vocabulary_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    write_tiny_model(dir.path(), 1).unwrap();
    let model = Model::load(dir.path(), Kind::Float, &Devices::cpu()).unwrap();
    let rows = rows(&[5000], 0, 0, None);
    assert!(model.forward_batch(&[rows], &mut pool(&model)).is_err());
}

#[test]
fn a_qwen3_4b_has_room_for_a_prompt_of_15000_tokens() {
    let model_config = crate::model_config::from_json(
        Path::new("config.json"),
        json!({
            "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 151_936,
            "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36,
            "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
            "max_position_embeddings": 40_960, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
            "hidden_act": "silu", "tie_word_embeddings": true, "eos_token_id": 151_645,
        }),
    );
    let model_config = model_config.unwrap();
    assert_eq!(
        KvPool::position_bytes(&model_config, Kind::BFloat16),
        147_456
    );
    // Nothing of it is written, so it takes no memory.
    let pool = KvPool::new(
        &model_config,
        4 << 30,
        Kind::BFloat16,
        &Placement::on(tch::Device::Cpu),
    )
    .unwrap();
    assert!(pool.bytes() <= 4 << 30);
    assert_eq!(pool.n_pages() * crate::kv::PAGE, 29_120);
}

/// `golden/families.py` made the values with transformers: every family, each kind of rotary scaling.
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
    assert_eq!(configs.len(), 11);
    for (name, config) in configs {
        let dir = tempfile::tempdir().unwrap();
        write_model(dir.path(), config, text["seed"].as_u64().unwrap()).unwrap();
        let model = Model::load(dir.path(), Kind::Float, &Devices::cpu()).unwrap();
        let hidden = model.forward(&ids.unsqueeze(0), None).unwrap();
        let logits = model.logits(&hidden, None).unwrap().squeeze_dim(0);
        let logits = logits.index_select(0, &rows);
        let norm = |t: &Tensor| t.to_kind(Kind::Double).norm().double_value(&[]);
        let distance = |found: &Tensor| norm(&(found - &wanted[name])) / norm(&wanted[name]);
        assert!(distance(&logits) < 1e-5, "{name}: {:e}", distance(&logits));
        // The positions are computed one by one, and in portions shorter and longer than a window, from pages.
        for portions in [vec![1; 100], vec![1, 1, 60, 3, 30, 1, 3, 1]] {
            let logits = of_portions(&model, &numbers("ids"), &portions);
            let logits = logits.index_select(0, &rows);
            let distance = distance(&logits);
            assert!(distance < 1e-5, "{name}, {portions:?}: {distance:e}");
        }
    }
}

/// Returns the logits of all positions, computed in portions.
fn of_portions(model: &Model, ids: &[i64], portions: &[usize]) -> Tensor {
    let ids: Vec<u32> = ids.iter().map(|&id| u32::try_from(id).unwrap()).collect();
    let mut pool = pool(model);
    let (mut start, mut hidden) = (0, Vec::new());
    for &n in portions {
        let mut rows = rows(&ids[start..start + n], start, 32, None);
        rows.keep = Keep::All;
        hidden.push(model.forward_batch(&[rows], &mut pool).unwrap());
        start += n;
    }
    model.logits(&Tensor::cat(&hidden, 0), None).unwrap()
}
