use super::*;
use crate::batch::{Keep, Rows};
use crate::device::Devices;
use crate::kv::{KvPool, StateMove};
use crate::lora::LoraTargets;
use crate::testing::tiny_config;
use crate::tests::watch::watched;
use crate::tests::{
    distance, forward, fresh_lora, is_near, load_model, lora_spec, make_model, model_folder,
    positions, tiny_with, with_noise,
};
use serde_json::json;

const IDS: [u32; 11] = [10, 200, 33, 258, 1, 90, 91, 92, 17, 40, 5];

fn pool(model: &Model) -> KvPool {
    let (config, kind, placement) = (&model.config, model.kind, &model.placement);
    let budget = KvPool::position_bytes(config, kind) * 256;
    let pool = KvPool::new(config, budget, kind, placement).unwrap();
    pool.with_states(config, 8, kind, placement).unwrap()
}

/// Makes rows of a sequence whose positions are consecutive in the pool from `slot` on.
fn rows<'a>(ids: &'a [u32], start: usize, slot: usize, lora: Option<&'a Lora>) -> Rows<'a> {
    let past = if ids.len() == 1 { start + 1 } else { start };
    let run = positions(slot, past);
    let to = 1 + slot / 32;
    Rows {
        ids,
        start,
        slots: (slot + start..slot + start + ids.len()).collect(),
        past: Some(run).filter(|run| run.len > 0).into_iter().collect(),
        states: StateMove {
            from: if start == 0 { 0 } else { to },
            to,
            kept: Vec::new(),
        },
        lora,
        keep: Keep::Last,
    }
}

fn be_a_gpu(model: &mut Model) {
    model.batches_as_gpu = true;
    model.collect_head_norms().unwrap();
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
    let qwen2 = tiny_with(&[("model_type", json!("qwen2"))]);
    let (wide, untied) = (
        ("head_dim", json!(16)),
        ("tie_word_embeddings", json!(false)),
    );
    let qwen3 = tiny_with(&[("model_type", json!("qwen3")), wide, untied]);
    for config in [tiny_config(), qwen2, qwen3] {
        let model = make_model(&config);
        let want = forward(&model, &IDS, None);
        for portions in [vec![11], vec![1; 11], vec![4, 6, 1], vec![5, 1, 5]] {
            let ends = portions.iter().scan(-1, |end, &n| {
                *end += i64::try_from(n).unwrap();
                Some(*end)
            });
            let ends = Tensor::from_slice(&ends.collect::<Vec<i64>>());
            let (got, want) = (in_portions(&model, &portions), want.index_select(0, &ends));
            let family = &config["model_type"];
            assert!(is_near(&got, &want, 1e-4), "{portions:?} of {family}");
        }
    }
}

/// Makes an adapter with an effect: B is not zero.
fn adapter(model: &Model, seed: u64) -> Lora {
    let spec = lora_spec(2, 32, LoraTargets::default());
    with_noise(&fresh_lora(model, spec, 1), seed)
}

/// For every family: four sequences in one batch, prompts and a decoding row, two adapters and none, compared with each
/// alone.
#[test]
fn a_batch_computes_what_each_row_computes_alone() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/families");
    let text = std::fs::read(folder.join("values.json")).unwrap();
    let text: serde_json::Value = serde_json::from_slice(&text).unwrap();
    for (name, config) in text["configs"].as_object().unwrap() {
        let mut model = make_model(config);
        let adapters = [3, 4].map(|seed| adapter(&model, seed));
        let served = [0, 1].map(|i: usize| adapters[i].for_serving(&model.placement).unwrap());
        let alone = |ids: &[u32], lora: Option<&Lora>| {
            let ids: Vec<i64> = ids.iter().copied().map(i64::from).collect();
            let hidden = model.forward(&Tensor::from_slice(&ids).unsqueeze(0), lora);
            hidden.unwrap().select(1, -1)
        };
        let mut pool = pool(&model);
        let batch = [
            rows(&IDS[..7], 0, 0, None),
            rows(&IDS[3..5], 0, 64, Some(&served[0])),
            rows(&IDS[5..6], 5, 96, Some(&served[1])),
            rows(&IDS[2..9], 0, 128, Some(&served[1])),
        ];
        let want = [
            alone(&IDS[..7], None),
            alone(&IDS[3..5], Some(&adapters[0])),
            alone(&IDS[..6], Some(&adapters[1])),
            alone(&IDS[2..9], Some(&adapters[1])),
        ];
        for as_gpu in [false, true] {
            if as_gpu {
                be_a_gpu(&mut model);
            }
            // The third one has cached positions already, and a state, which the batch takes further.
            let past = rows(&IDS[..5], 0, 96, Some(&served[1]));
            let _hidden = model.forward_batch(&[past], &mut pool).unwrap();
            let got = model.forward_batch(&batch, &mut pool).unwrap();
            assert_eq!(model.stack.borrow().is_some(), as_gpu);
            let distance = distance(&got, &Tensor::cat(&want, 0));
            assert!(distance < 1e-5, "{name}, as a GPU {as_gpu}: {distance:e}");
        }
    }
}

/// Streams on adapters of other ranks and targets: as many rows each, more of one than of another, a few of the base before them.
#[test]
fn stacked_adapters_are_what_each_is_alone() {
    let mut model = make_model(&tiny_config());
    let few = LoraTargets::groups(true, false, false);
    let specs = [
        lora_spec(4, 8, few),
        lora_spec(2, 16, LoraTargets::groups(true, true, false)),
        lora_spec(3, 3, LoraTargets::default()),
    ];
    let adapters = [0, 1, 2].map(|i: usize| {
        let noisy = with_noise(&fresh_lora(&model, specs[i].clone(), 3), 5 + i as u64);
        noisy.for_serving(&model.placement).unwrap()
    });
    let of = |lora: Option<usize>, slot: usize, n: usize| {
        rows(&IDS[..n], 0, slot, lora.map(|i| &adapters[i]))
    };
    let batches = [
        vec![of(Some(0), 0, 2), of(Some(1), 32, 2), of(Some(2), 64, 2)],
        vec![
            of(None, 0, 4),
            of(Some(0), 32, 3),
            of(Some(1), 64, 2),
            of(Some(2), 96, 1),
        ],
        vec![of(Some(2), 0, 1), of(None, 32, 1), of(Some(0), 64, 6)],
        vec![of(Some(1), 0, 11)],
    ];
    let calls = batches.map(|batch| {
        let mut run = |as_gpu| {
            model.batches_as_gpu = as_gpu;
            let mut hidden = None;
            let mut pool = pool(&model);
            // The adapters are stacked with the first batch of them.
            let _first = model.forward_batch(&batch, &mut pool).unwrap();
            let seen = watched(|| hidden = Some(model.forward_batch(&batch, &mut pool).unwrap()));
            (
                hidden.unwrap(),
                seen.computed()
                    .iter()
                    .filter(|name| name.contains("bmm"))
                    .count(),
            )
        };
        let ((wanted, _), (found, n_bmm)) = (run(false), run(true));
        let distance = distance(&found, &wanted);
        assert!(distance < 1e-5, "{distance:e}");
        n_bmm
    });
    // Two for each of four maps in two layers; segments of unlike length are computed one by one.
    assert_eq!(calls, [16, 0, 0, 16]);
}

/// Several streams take as many as one: they are one batch.
#[test]
fn a_token_takes_few_calls_a_layer() {
    let n_calls = |family: &str, n_layers: usize, n_streams: usize| {
        let fields = [
            ("model_type", json!(family)),
            ("head_dim", json!(16)),
            ("num_hidden_layers", json!(n_layers)),
        ];
        let dir = model_folder(&tiny_with(&fields), 7);
        let mut model = Model::load(dir.path(), Kind::BFloat16, &Devices::cpu()).unwrap();
        be_a_gpu(&mut model);
        let mut pool = pool(&model);
        let of_all = |ids, start| (0..n_streams).map(move |i| rows(ids, start, 32 * i, None));
        let past: Vec<Rows<'_>> = of_all(&IDS[..4], 0).collect();
        let _past = model.forward_batch(&past, &mut pool).unwrap();
        let tokens: Vec<Rows<'_>> = of_all(&IDS[4..5], 4).collect();
        let seen = watched(|| {
            let _hidden = model.forward_batch(&tokens, &mut pool).unwrap();
        });
        seen.computed().len()
    };
    for (family, most) in [("llama", 15), ("qwen3", 16)] {
        let a_layer = n_calls(family, 3, 1) - n_calls(family, 2, 1);
        assert!(a_layer <= most, "{family}: {a_layer}");
        assert_eq!(
            [4, 8].map(|n| n_calls(family, 3, n)),
            [n_calls(family, 3, 1); 2]
        );
    }
}

#[test]
fn an_earlier_id_changes_later_logits_only() {
    let model = make_model(&tiny_config());
    let [a, b] = [50, 51].map(|first| forward(&model, &[3, first, 9, 12], None));
    assert!(is_near(&a.get(0), &b.get(0), 1e-6));
    assert!(!is_near(&a.get(3), &b.get(3), 1e-3));
}

#[test]
fn an_id_beyond_the_vocabulary_is_an_error() {
    let model = make_model(&tiny_config());
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
    let (kind, placement) = (Kind::BFloat16, Placement::on(tch::Device::Cpu));
    assert_eq!(KvPool::position_bytes(&model_config, kind), 147_456);
    // Nothing of it is written, so it takes no memory.
    let pool = KvPool::new(&model_config, 4 << 30, kind, &placement).unwrap();
    assert!(pool.bytes() <= 4 << 30);
    assert_eq!(pool.n_pages() * crate::kv::PAGE, 29_120);
}

/// `golden/families.py` made the values with transformers: every family, each kind of rotary scaling.
#[test]
fn every_family_computes_what_transformers_computes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/families");
    let text = std::fs::read(folder.join("values.json")).unwrap();
    let text: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let ids: Vec<u32> = serde_json::from_value(text["ids"].clone()).unwrap();
    let chosen: Vec<i64> = serde_json::from_value(text["rows"].clone()).unwrap();
    let rows = Tensor::from_slice(&chosen);
    let wanted = crate::tensors::read(&folder.join("values.safetensors")).unwrap();
    let configs = text["configs"].as_object().unwrap();
    assert_eq!(configs.len(), 13);
    for (name, config) in configs {
        let dir = model_folder(config, text["seed"].as_u64().unwrap());
        let mut model = load_model(dir.path());
        let distance = |logits: &Tensor| distance(&logits.index_select(0, &rows), &wanted[name]);
        let whole = distance(&forward(&model, &ids, None));
        assert!(whole < 1e-5, "{name}: {whole:e}");
        // The positions are computed one by one, and in portions shorter and longer than a window, from pages.
        for as_gpu in [false, true] {
            if as_gpu {
                be_a_gpu(&mut model);
            }
            // What a GPU does takes a CPU long.
            let one_by_one = (!as_gpu).then(|| vec![1; 100]);
            for portions in one_by_one
                .into_iter()
                .chain([vec![1, 1, 60, 3, 30, 1, 3, 1]])
            {
                let distance = distance(&of_portions(&model, &ids, &portions));
                assert!(
                    distance < 1e-5,
                    "{name}, {portions:?}, as a GPU {as_gpu}: {distance:e}"
                );
            }
        }
    }
}

/// Returns the logits of all positions, computed in portions.
fn of_portions(model: &Model, ids: &[u32], portions: &[usize]) -> Tensor {
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
