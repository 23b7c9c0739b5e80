//! Tests against PyTorch, transformers and PEFT in f32. `golden/make.py` made the values, and `cargo xtask golden` runs
//! it. The relative 2-norm of the difference is at most 1e-4 for each tensor.

mod values;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use metaclaw_trainer_terms::LossFn;
use tch::{Kind, TchError, Tensor};

pub(crate) use self::values::families;
use self::values::{Golden, GoldenDatum, Setting, Text};
use super::{all_targets, base_id, forward, fresh_lora, lora_spec, model_folder};
use crate::adapter::{self, BaseSpec};
use crate::lora::Lora;
use crate::model::Model;
use crate::rng::SplitMix64;
use crate::train::SliceSizes;
use crate::{tensors, weights};

fn logits(model: &Model, lora: &Lora, datum: &GoldenDatum) -> Tensor {
    let _guard = tch::no_grad_guard();
    forward(model, &datum.input_ids, Some(lora))
}

/// Implements `fill` of `golden/common.py`.
fn random_adapter(model: &Model, seed: u64) -> Lora {
    let empty = fresh_lora(model, lora_spec(4, 32, all_targets()), 0);
    let mut index = 0;
    let filled = empty.try_map::<TchError>(|param| {
        // A comes before B.
        let bound = match index % 2 {
            0 => (param.size()[1] as f64).powf(-0.5),
            _ => 0.05,
        };
        let mut rng = SplitMix64::stream(seed, index);
        index += 1;
        let drawn = (0..param.numel()).map(|_| rng.uniform(-bound, bound));
        let values = Tensor::f_from_slice(&drawn.collect::<Vec<f64>>())?;
        values.f_view_as(param)?.f_to_kind(Kind::Float)
    });
    filled.unwrap().placed(&model.placement).unwrap()
}

/// Implements `project` of `golden/common.py`: 64 sums with fixed random signs.
fn project(tensor: &Tensor, seed: u64) -> Tensor {
    let values = Vec::<f32>::try_from(&tensor.reshape([-1])).unwrap();
    let mut rng = SplitMix64::new(seed);
    let mut sums = [0f64; 64];
    for value in values {
        let word = rng.next_u64();
        for (bit, sum) in sums.iter_mut().enumerate() {
            let plus = word >> bit & 1 == 1;
            *sum += f64::from(if plus { value } else { -value });
        }
    }
    Tensor::from_slice(&sums).to_kind(Kind::Float)
}

/// Returns the seed that `stream` of `golden/common.py` passes to `project`.
fn seed_of(seed: u64, index: usize) -> u64 {
    SplitMix64::stream(seed, index as u64).seed()
}

#[test]
fn small_llama_under_every_loss_is_that_of_pytorch() {
    under_every_loss("small", 8);
}

/// The model is a Gemma 3 that also takes images. Tensors and adapter have the names of transformers and PEFT.
#[test]
fn the_text_part_of_a_model_of_images_under_every_loss_is_that_of_pytorch() {
    under_every_loss("images", 8);
}

/// The model is a Qwen3.5 that also takes images. Its adapter has all projections of both kinds of layers, and the LM head.
#[test]
fn gated_delta_nets_under_every_loss_are_those_of_pytorch() {
    under_every_loss("nets", 13);
}

/// Tests a base model written by transformers, and an adapter written by PEFT.
fn under_every_loss(name: &str, n_targets: usize) {
    let mut golden = Golden::read(name);
    let model = Setting::read().load(&golden.folder);
    let base = BaseSpec::new(base_id(name), &model.config);
    let read = adapter::read(&golden.folder.join("adapter"), &base).unwrap();
    let lora = read.lora.placed(&model.placement).unwrap();
    assert_eq!(lora.spec.targets.names().len(), n_targets);
    for i in 0..golden.text.datums.len() {
        let found = logits(&model, &lora, &golden.text.datums[i]);
        golden.compare(&format!("logits.{i}"), &found);
    }
    for loss in LossFn::ALL {
        for (name, gradient) in golden.gradients(&model, &lora, loss) {
            golden.compare(&format!("{loss}.{name}"), &gradient);
        }
    }
    println!("worst: {:?}", golden.worst);
}

/// The samples share beginnings, and PyTorch computed each alone. The backward pass covers biases, head norms and
/// scaled rotary angles, in rows of one chunk and of several, and as a GPU computes them.
#[test]
fn every_family_under_every_loss_is_that_of_pytorch() {
    every_family(&Setting::read(), |model| {
        let in_chunks = [128, 8].map(|chunk_tokens| SliceSizes {
            chunk_tokens,
            ..SliceSizes::default()
        });
        let [some, many] = in_chunks;
        vec![some, many, SliceSizes::of_gpu(model, 1 << 30)]
    });
}

/// With adapters in bf16 as well, which they are in nowhere else.
#[test]
fn every_family_in_bf16_as_a_gpu_computes_it_is_near_that_of_pytorch() {
    every_family(&Setting::bf16(), |model| {
        vec![SliceSizes::of_gpu(model, 1 << 30)]
    });
}

fn every_family(setting: &Setting, cuts: impl Fn(&Model) -> Vec<SliceSizes>) {
    let folder = values::folder("families");
    let text = families();
    assert_eq!(text.configs.len(), 13);
    let mut by_family: BTreeMap<String, BTreeMap<String, Tensor>> = BTreeMap::new();
    for (name, tensor) in tensors::read(&folder.join("values.safetensors")).unwrap() {
        // Logits have only the family's name.
        if let Some((family, name)) = name.split_once('.') {
            let own = by_family.entry(family.to_owned()).or_default();
            own.insert(name.to_owned(), tensor);
        }
    }
    for (family, config) in &text.configs {
        let dir = model_folder(config, text.seed);
        let model = setting.load(dir.path());
        let lora = random_adapter(&model, 2);
        let mut golden = Golden {
            setting: setting.for_model(&model),
            folder: folder.clone(),
            text: Text {
                datums: text.datums.clone(),
                losses: text.losses[family].clone(),
            },
            tensors: by_family.remove(family).unwrap(),
            worst: (0.0, String::new()),
        };
        for &loss in setting.losses() {
            for sizes in cuts(&model) {
                for (name, gradient) in golden.gradients_cut(&model, &lora, loss, sizes) {
                    golden.compare(&format!("{loss}.{name}"), &gradient);
                }
            }
        }
        println!("{family}, worst: {:?}", golden.worst);
    }
}

#[test]
fn smollm2_is_that_of_pytorch() {
    let Some(gguf) = std::env::var_os("METACLAW_TEST_MODEL") else {
        println!("skipped: METACLAW_TEST_MODEL names no GGUF file; `cargo xtask test` sets it");
        return;
    };
    let own = tempfile::tempdir().unwrap();
    let named = std::env::var_os("METACLAW_CACHE").map(PathBuf::from);
    let cache = named.as_deref().unwrap_or_else(|| own.path());
    let folder = weights::gguf::directory(Path::new(&gguf), cache).unwrap();
    let mut golden = Golden::read("smollm2");
    let model = Setting::read().load(&folder);
    let lora = random_adapter(&model, 2);
    for i in 0..golden.text.datums.len() {
        let found = logits(&model, &lora, &golden.text.datums[i]);
        golden.compare(&format!("logits.{i}.last"), &found.get(-1));
        let rows = 0..found.size()[0];
        let all = rows.map(|t| project(&found.get(t), seed_of(7, usize::try_from(t).unwrap())));
        let rows: Vec<Tensor> = all.collect();
        golden.compare(&format!("logits.{i}.projected"), &Tensor::stack(&rows, 0));
    }
    let gradients = golden.gradients(&model, &lora, LossFn::CrossEntropy);
    for (index, (name, gradient)) in gradients.into_iter().enumerate() {
        golden.compare(&name, &project(&gradient, seed_of(8, index)));
    }
    println!("worst: {:?}", golden.worst);
}
