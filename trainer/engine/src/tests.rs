//! What the tests of this crate share, and those against PyTorch.

pub(crate) mod golden;
pub(crate) mod watch;

use std::fmt::Debug;
use std::path::Path;
use std::str::FromStr;

use serde_json::Value;
use tch::{Device, Kind, Tensor};
use tempfile::TempDir;

use crate::adapter::BaseId;
use crate::device::Devices;
use crate::kv::PositionRun;
use crate::lora::{ALONE, BaseDims, Lora, LoraSpec, LoraTargets};
use crate::model::Model;
pub(crate) use crate::testing::tiny_nets;
use crate::testing::{tiny_config, write_model};

pub(crate) const OPTIONS: (Kind, Device) = (Kind::Float, Device::Cpu);

/// The widths of a small model that is in no file.
pub(crate) const DIMS: BaseDims = BaseDims {
    hidden: 8,
    q_out: 8,
    output_gate: false,
    delta: None,
    kv_out: 4,
    ffn: 12,
    vocab: 20,
    tied: true,
    layers_at: ALONE,
};

pub(crate) fn base_id(name: &str) -> BaseId {
    BaseId {
        name: name.into(),
        fingerprint: format!("{name}-0123456789abcdef"),
    }
}

pub(crate) fn parsed<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

pub(crate) fn all_targets() -> LoraTargets {
    LoraTargets::groups(true, true, true)
}

pub(crate) fn lora_spec(rank: i64, alpha: u32, targets: impl Into<LoraTargets>) -> LoraSpec {
    LoraSpec {
        rank,
        alpha,
        targets: targets.into(),
    }
}

/// Makes an adapter of the model as it is before training: every B is zero.
pub(crate) fn fresh_lora(model: &Model, spec: LoraSpec, seed: u64) -> Lora {
    let dims = BaseDims::of(&model.config);
    let targets = spec.targets.of_model(&dims);
    let spec = LoraSpec { targets, ..spec };
    Lora::init(spec, dims, model.config.n_layers, seed).unwrap()
}

/// Adds noise to all matrices, which gives the adapter an effect.
pub(crate) fn with_noise(lora: &Lora, seed: u64) -> Lora {
    tch::manual_seed(i64::try_from(seed).unwrap());
    let noisy = lora.try_map(|t| (t.f_randn_like()? * 0.3).f_add(t));
    noisy.unwrap()
}

/// Makes the configuration of the tiny model with other fields.
pub(crate) fn tiny_with(fields: &[(&str, Value)]) -> Value {
    with_fields(tiny_config(), fields)
}

pub(crate) fn with_fields(mut json: Value, fields: &[(&str, Value)]) -> Value {
    for (key, value) in fields {
        json[*key] = value.clone();
    }
    json
}

pub(crate) fn model_folder(config: &Value, seed: u64) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    write_model(dir.path(), config, seed).unwrap();
    dir
}

pub(crate) fn load_model(folder: &Path) -> Model {
    Model::load(folder, Kind::Float, &Devices::cpu()).unwrap()
}

pub(crate) fn make_model(config: &Value) -> Model {
    load_model(model_folder(config, 7).path())
}

/// Computes the logits of every position in one forward pass without a cache.
pub(crate) fn forward(model: &Model, ids: &[u32], lora: Option<&Lora>) -> Tensor {
    let numbers: Vec<i64> = ids.iter().copied().map(i64::from).collect();
    let ids = Tensor::from_slice(&numbers).unsqueeze(0);
    let hidden = model.forward(&ids.to_device(model.placement.first()), lora);
    let logits = model.logits(&hidden.unwrap(), lora).unwrap();
    logits.squeeze_dim(0)
}

pub(crate) fn positions(start: usize, len: usize) -> PositionRun {
    PositionRun { start, len }
}

pub(crate) fn zeros<const N: usize>(shape: [i64; N]) -> Tensor {
    Tensor::zeros(shape, OPTIONS)
}

pub(crate) fn is_near(found: &Tensor, wanted: &Tensor, tolerance: f64) -> bool {
    found.allclose(wanted, tolerance, tolerance, false)
}

pub(crate) fn are_equal<'a>(
    some: impl IntoIterator<Item = &'a Tensor>,
    others: impl IntoIterator<Item = &'a Tensor>,
) -> bool {
    some.into_iter()
        .zip(others)
        .all(|(one, other)| one.equal(other))
}

/// The 2-norm of the difference over the 2-norm.
pub(crate) fn distance(found: &Tensor, wanted: &Tensor) -> f64 {
    let norm = |t: &Tensor| t.to_kind(Kind::Double).norm().double_value(&[]);
    norm(&(found - wanted)) / norm(wanted).max(1e-12)
}
