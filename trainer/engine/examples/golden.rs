//! Writes the files that `golden/check.py` compares with PEFT: an adapter trained here, and its logits.
//!
//! The command is `cargo run -p metaclaw-engine --example golden -- MODEL CACHE OUT`, where MODEL is a GGUF file or a
//! Hugging Face folder. `cargo xtask golden` runs it.

use std::error::Error;
use std::path::Path;

use metaclaw_engine::adapter::{self, BaseId};
use metaclaw_engine::device::Devices;
use metaclaw_engine::lora::{LoraSpec, LoraTargets};
use metaclaw_engine::loss::Loss;
use metaclaw_engine::model::Model;
use metaclaw_engine::optim::AdamConfig;
use metaclaw_engine::run::{OpenRun, RunConfig};
use metaclaw_engine::train::{SliceSizes, TrainJob};
use metaclaw_engine::{tensors, weights};
use metaclaw_trainer_terms::Datum;
use tch::{Kind, Tensor};

/// These are the ids of "What is the capital of France?" and a wrong answer for SmolLM2, cut anywhere. Any ids would
/// do.
const IDS: [u32; 16] = [
    1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198,
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let mut next = |what| {
        arguments
            .next()
            .ok_or_else(|| format!("missing argument: {what}"))
    };
    let (model, cache, out) = (next("MODEL")?, next("CACHE")?, next("OUT")?);
    let model = Path::new(&model);
    let folder = if model.is_dir() {
        model.to_owned()
    } else {
        weights::gguf::directory(model, Path::new(&cache))?
    };
    write(&folder, Path::new(&out))
}

fn write(folder: &Path, out: &Path) -> Result<(), Box<dyn Error>> {
    let model = Model::load(folder, Kind::Float, &Devices::cpu())?;
    let lora = LoraSpec {
        rank: 8,
        // They include the LM head, even if it is tied to the embedding.
        targets: LoraTargets::groups(true, true, true),
        ..LoraSpec::default()
    };
    let mut run = OpenRun::new(&model, &RunConfig { lora, seed: 1 })?;
    let vocab = u32::try_from(model.config.vocab)?;
    let ids = IDS.map(|id| id % vocab);
    let datum = Datum::cross_entropy(ids[..15].to_vec(), ids[1..].to_vec(), vec![1.0; 15])?;
    for _ in 0..3 {
        let (version, sizes) = (run.version(), SliceSizes::default());
        let (datums, loss) = ([datum.clone()], Loss::CrossEntropy);
        let job = TrainJob::forward_backward(&model, run.lora(), &datums, loss, sizes)?;
        run.accumulate_grads(version, &mut job.finish(&model)?)?;
        run.optim_step(&AdamConfig {
            learning_rate: 1e-3,
            ..AdamConfig::default()
        })?;
    }
    let base = BaseId {
        name: "golden".into(),
        fingerprint: "golden".into(),
    };
    let saved = adapter::save(out, &"golden".parse()?, run.lora(), &base, run.step())?.folder;
    let adapter = out.join("adapter");
    if adapter.exists() {
        std::fs::remove_dir_all(&adapter)?;
    }
    std::fs::rename(saved, adapter)?;

    let _guard = tch::no_grad_guard();
    let rows = Tensor::from_slice(&ids.map(i64::from)).f_unsqueeze(0)?;
    let logits = model
        .logits(&model.forward(&rows, Some(run.lora()))?, Some(run.lora()))?
        .f_squeeze_dim(0)?;
    let ids = Tensor::from_slice(&ids.map(|id| id as f32));
    let all = [("ids".to_owned(), &ids), ("logits".to_owned(), &logits)];
    tensors::write(&out.join("ours.safetensors"), all.into_iter())?;
    std::fs::write(out.join("model.txt"), folder.to_string_lossy().as_bytes())?;
    Ok(())
}
