use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use metaclaw_trainer_terms::{Datum, RunId};
use serde_json::Value;

use super::*;
use crate::adapter::{self, AdapterError, BaseSpec};
use crate::checkpoint::{self, TrainingSnapshot};
use crate::lora::LoraTargets;
use crate::loss::Loss;
use crate::runs::{RunLimit, Runs};
use crate::tensors;
use crate::testing::tiny_config;
use crate::tests::{are_equal, base_id, lora_spec, make_model, parsed as name};
use crate::train::{SliceSizes, TrainJob};

fn model() -> Model {
    make_model(&tiny_config())
}

fn config(rank: i64, seed: u64) -> RunConfig {
    let lora = lora_spec(rank, 32, LoraTargets::default());
    RunConfig { lora, seed }
}

fn open(model: &Model) -> OpenRun {
    OpenRun::new(model, &config(4, 1)).unwrap()
}

fn load(dir: &Path, model: &Model, text: &str) -> Result<TrainingSnapshot, AdapterError> {
    let base = BaseSpec::new(base_id("tiny"), &model.config);
    checkpoint::load(dir, &name(text), &base)
}

fn save(run: &OpenRun, dir: &Path, as_name: &str, manifest: &Value) -> PathBuf {
    let (snapshot, base) = (run.snapshot().unwrap(), base_id("tiny"));
    checkpoint::save(dir, &name(as_name), &base, &snapshot, manifest).unwrap()
}

fn list(dir: &Path) -> Vec<checkpoint::CheckpointEntry> {
    checkpoint::CheckpointIndex::default().list(dir).unwrap()
}

fn datum(salt: u32) -> Datum {
    let ids: Vec<u32> = (0..12).map(|i| (i * 17 + salt * 31) % 259).collect();
    Datum::cross_entropy(ids[..11].to_vec(), ids[1..].to_vec(), vec![1.0; 11]).unwrap()
}

fn job(run: &OpenRun, model: &Model, datums: &[Datum]) -> TrainJob {
    let (loss, sizes) = (Loss::CrossEntropy, SliceSizes::default());
    TrainJob::forward_backward(model, run.lora(), datums, loss, sizes).unwrap()
}

fn forward_backward(run: &mut OpenRun, model: &Model, salt: u32) -> f64 {
    let version = run.version();
    let mut out = job(run, model, &[datum(salt)]).finish(model).unwrap();
    run.accumulate_grads(version, &mut out).unwrap();
    out.loss
}

fn train(run: &mut OpenRun, model: &Model, salt: u32) -> StepOut {
    forward_backward(run, model, salt);
    let config = AdamConfig {
        learning_rate: 0.01,
        ..AdamConfig::default()
    };
    run.optim_step(&config).unwrap()
}

fn same(a: &OpenRun, b: &OpenRun) -> bool {
    let (one, other) = (&a.state.adam, &b.state.adam);
    let same_moments =
        are_equal(&one.exp_avg, &other.exp_avg) && are_equal(&one.exp_avg_sq, &other.exp_avg_sq);
    same_moments && are_equal(a.lora().params(), b.lora().params()) && a.step() == b.step()
}

#[test]
fn learns_what_it_is_shown() {
    let model = model();
    let mut run = open(&model);
    let first = forward_backward(&mut run, &model, 0);
    for _ in 0..30 {
        train(&mut run, &model, 0);
    }
    let last = forward_backward(&mut run, &model, 0);
    assert!(last < 0.2 * first, "{first} to {last}");
}

#[test]
fn going_on_from_a_checkpoint_changes_no_bit() {
    let model = model();
    let dir = tempfile::tempdir().unwrap();
    let manifest = serde_json::json!({"z": [1, 2], "a": "kept in order"});

    let mut whole = open(&model);
    train(&mut whole, &model, 1);
    save(&whole, dir.path(), "one", &manifest);
    train(&mut whole, &model, 2);

    let mut resumed = OpenRun::new(&model, &config(2, 99)).unwrap();
    forward_backward(&mut resumed, &model, 3);
    let saved = load(dir.path(), &model, "one").unwrap();
    assert_eq!(resumed.restore(name("one"), &saved).unwrap(), 1);
    // Loading drops what waits.
    let error = resumed.optim_step(&AdamConfig::default()).unwrap_err();
    assert!(matches!(error, OptimError::NoGradients));
    train(&mut resumed, &model, 2);
    assert!(same(&whole, &resumed));

    let listed = list(dir.path());
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].name.as_str(), listed[0].step), ("one", 1));
    assert_eq!(listed[0].manifest.to_string(), manifest.to_string());
    assert!(listed[0].created_ms > 1_700_000_000_000);
}

#[test]
fn a_checkpoint_of_the_first_format_is_read() {
    let model = model();
    let dir = tempfile::tempdir().unwrap();
    let mut run = open(&model);
    train(&mut run, &model, 1);
    let folder = save(&run, dir.path(), "one", &Value::Null);
    let file = folder.join("optimizer.safetensors");
    let moments = tensors::read(&file).unwrap();
    assert!(moments.keys().all(|name| name.starts_with("exp_avg")));
    let older = moments.iter().map(|(name, tensor)| {
        let name = name.replace("exp_avg_sq.", "square.");
        (name.replace("exp_avg.", "mean."), tensor)
    });
    tensors::write(&file, older).unwrap();
    let file = folder.join("state.json");
    let state = std::fs::read_to_string(&file).unwrap();
    let older = state.replace("\"format\": 2", "\"format\": 1");
    assert_ne!(older, state);
    std::fs::write(&file, older).unwrap();
    let saved = load(dir.path(), &model, "one").unwrap();
    assert!(same(&run, &OpenRun::from(saved)));
}

#[test]
fn gradients_add_up_until_the_step() {
    let model = model();
    let mut apart = open(&model);
    let first = forward_backward(&mut apart, &model, 1);
    let second = forward_backward(&mut apart, &model, 2);
    let step = apart.optim_step(&AdamConfig::default()).unwrap();
    assert_eq!(step.step, 1);
    assert!((step.avg_loss - (first + second) / 22.0).abs() < 1e-9);

    let mut together = open(&model);
    let job = job(&together, &model, &[datum(1), datum(2)]);
    let (version, mut out) = (together.version(), job.finish(&model).unwrap());
    together.accumulate_grads(version, &mut out).unwrap();
    let also = together.optim_step(&AdamConfig::default()).unwrap();
    assert!((step.grad_norm - also.grad_norm).abs() < 1e-4 * step.grad_norm);
}

#[test]
fn a_job_that_is_dropped_or_late_leaves_nothing() {
    let model = model();
    let mut run = open(&model);
    let job = |run: &OpenRun| job(run, &model, &[datum(5)]);
    let begun = job(&run).advance(&model, std::time::Duration::ZERO);
    drop(begun.unwrap());
    let none = run.optim_step(&AdamConfig::default()).unwrap_err();
    assert!(matches!(none, OptimError::NoGradients));

    let (version, late) = (run.version(), job(&run));
    train(&mut run, &model, 1);
    let refused = run.accumulate_grads(version, &mut late.finish(&model).unwrap());
    assert!(matches!(refused, Err(AccumulateError::Stale(_))));
    assert!(run.gradients.is_empty());
}

#[test]
fn a_gradient_that_is_not_finite_is_dropped_and_the_run_goes_on() {
    let model = model();
    let mut run = open(&model);
    forward_backward(&mut run, &model, 1);
    run.gradients[0] = run.gradients[0].full_like(f64::NAN);
    let before: Vec<Tensor> = run.lora().params().map(Tensor::copy).collect();
    let error = run.optim_step(&AdamConfig::default()).unwrap_err();
    assert!(matches!(error, OptimError::NotFinite { .. }), "{error}");
    assert!(are_equal(run.lora().params(), &before));
    assert_eq!(train(&mut run, &model, 1).step, 1);
}

/// Adds one pending gradient with this norm.
fn wait_with(run: &mut OpenRun, norm: f64) {
    let mut gradients: Vec<Tensor> = run.lora().params().map(Tensor::zeros_like).collect();
    let n = gradients[0].numel() as f64;
    gradients[0] = gradients[0].full_like(norm / n.sqrt());
    run.gradients = gradients;
}

#[test]
fn a_gradient_far_out_of_line_is_skipped_and_the_run_goes_on() {
    let model = model();
    let mut run = open(&model);
    let plain = AdamConfig::default();
    let mut step = |norm: f64, config: &AdamConfig| {
        wait_with(&mut run, norm);
        let before: Vec<Tensor> = run.lora().params().map(Tensor::copy).collect();
        let stepped = run.optim_step(config).unwrap();
        let stayed = are_equal(run.lora().params(), &before);
        assert_eq!(stayed, stepped.skipped);
        assert!(run.gradients.is_empty());
        stepped
    };
    // Others are compared with the first ones.
    for (i, norm) in [50.0, 1.0, 2.0, 0.5, 1.0].into_iter().enumerate() {
        let taken = step(norm, &plain);
        assert_eq!((taken.step, taken.skipped), (i as u64 + 1, false));
        assert_eq!(taken.median_norm, None);
    }
    let skipped = step(21.0, &plain);
    assert_eq!((skipped.step, skipped.skipped), (5, true));
    assert!((skipped.median_norm.unwrap() - 1.0).abs() < 1e-6);
    assert!((skipped.grad_norm - 21.0).abs() < 1e-3);
    assert_eq!(step(19.0, &plain).step, 6);
    let never = AdamConfig {
        skip_over: 0.0,
        ..plain
    };
    assert_eq!(step(1e6, &never).step, 7);
    // A permanent growth is no outlier.
    let rounds = 0..norms::REMEMBERED;
    let until = rounds.take_while(|_| step(1e4, &plain).skipped).count();
    assert!((1..norms::REMEMBERED).contains(&until), "{until} skipped");
}

#[test]
fn only_the_adapter_is_trained() {
    let model = model();
    let mut run = open(&model);
    let base = |model: &Model| {
        let weight = &model.weights.layers[0].gate_up.weight;
        weight.plain().unwrap().copy()
    };
    let before = base(&model);
    train(&mut run, &model, 1);
    assert!(base(&model).equal(&before));
    let adam = &run.state.adam;
    let sizes = |tensors: &[Tensor]| tensors.iter().map(Tensor::size).collect::<Vec<_>>();
    let params: Vec<_> = run.lora().params().map(Tensor::size).collect();
    assert_eq!(sizes(&adam.exp_avg), params);
    assert_eq!(sizes(&adam.exp_avg_sq), params);
    assert_eq!(params.len(), 2 * 7 * 2);
    let n: i64 = params.iter().map(|size| size.iter().product::<i64>()).sum();
    assert_eq!(usize::try_from(n).unwrap(), run.lora().n_params());
}

#[test]
fn a_damaged_checkpoint_is_named() {
    let model = model();
    let dir = tempfile::tempdir().unwrap();
    let mut run = open(&model);
    train(&mut run, &model, 1);
    let folder = save(&run, dir.path(), "x", &Value::Null);
    let error = |text: &str| load(dir.path(), &model, text).unwrap_err().to_string();
    let damage = |name: &str, change: &dyn Fn(Vec<u8>) -> Vec<u8>| {
        let file = folder.join(name);
        let bytes = std::fs::read(&file).unwrap();
        std::fs::write(&file, change(bytes.clone())).unwrap();
        let said = error("x");
        std::fs::write(&file, bytes).unwrap();
        said
    };
    let short = |bytes: Vec<u8>| bytes[..bytes.len() - 9].to_vec();
    for file in ["optimizer.safetensors", "adapter_model.safetensors"] {
        let said = damage(file, &short);
        assert!(said.contains(&format!("{file} is damaged: ")), "{said}");
    }
    let flipped = |mut bytes: Vec<u8>| {
        *bytes.last_mut().unwrap() ^= 1;
        bytes
    };
    let said = damage("adapter_model.safetensors", &flipped);
    let wanted = "is damaged: its content has the SHA-256";
    assert!(said.contains(wanted), "{said}");
    let said = error("y");
    let wanted = "there is no checkpoint \"y\" in ";
    assert!(said.starts_with(wanted), "{said}");
    assert_eq!(list(dir.path()).len(), 1);
    std::fs::remove_file(folder.join("state.json")).unwrap();
    assert!(list(dir.path()).is_empty(), "left out, not fatal");
}

#[test]
fn a_checkpoint_that_is_being_written_sees_no_later_step() {
    let model = model();
    let dir = tempfile::tempdir().unwrap();
    let mut run = open(&model);
    train(&mut run, &model, 1);
    let (snapshot, then) = (run.snapshot().unwrap(), run.snapshot().unwrap());
    train(&mut run, &model, 2);
    let base = base_id("tiny");
    checkpoint::save(dir.path(), &name("one"), &base, &snapshot, &Value::Null).unwrap();
    let saved = load(dir.path(), &model, "one").unwrap();
    assert!(same(&OpenRun::from(saved), &OpenRun::from(then)));
}

#[test]
fn adapter_and_checkpoint_of_one_name_share_their_numbers() {
    let model = model();
    let dir = tempfile::tempdir().unwrap();
    let mut run = open(&model);
    let inode = |folder: &Path| {
        let file = folder.join("adapter_model.safetensors");
        std::fs::metadata(file).unwrap().ino()
    };
    let adapter = |run: &OpenRun, text: &str| {
        let (name, base) = (name(text), base_id("tiny"));
        adapter::save(dir.path(), &name, run.lora(), &base, run.step()).unwrap()
    };
    train(&mut run, &model, 1);
    // Either of the two may be the first.
    let checkpoint = save(&run, dir.path(), "one", &Value::Null);
    let saved = adapter(&run, "one");
    assert_eq!(inode(&checkpoint), inode(&saved.folder));
    assert_eq!(list(dir.path())[0].sha256, Some(saved.sha256.clone()));
    let two = adapter(&run, "two");
    let checkpoint_two = save(&run, dir.path(), "two", &Value::Null);
    assert_eq!(inode(&checkpoint_two), inode(&two.folder));
    assert_ne!(inode(&two.folder), inode(&saved.folder));
    // Saving again writes nothing. Saving another content does.
    let before = inode(&saved.folder);
    assert_eq!(adapter(&run, "one"), saved);
    assert_eq!(inode(&saved.folder), before);
    train(&mut run, &model, 2);
    let other = adapter(&run, "one");
    assert_ne!(other.sha256, saved.sha256);
    assert_ne!(inode(&other.folder), inode(&checkpoint));
    load(dir.path(), &model, "one").unwrap();
}

#[test]
fn a_replaced_checkpoint_is_listed_anew() {
    let model = model();
    let dir = tempfile::tempdir().unwrap();
    let mut run = open(&model);
    let mut index = checkpoint::CheckpointIndex::default();
    assert!(index.list(dir.path()).unwrap().is_empty());
    let mut listed = |run: &OpenRun, manifest: i32| {
        save(run, dir.path(), "one", &manifest.into());
        let listed = index.list(dir.path()).unwrap();
        (listed[0].step, listed[0].manifest.clone())
    };
    assert_eq!(listed(&run, 1), (0, 1.into()));
    train(&mut run, &model, 1);
    assert_eq!(listed(&run, 2), (1, 2.into()));
    std::fs::remove_dir_all(dir.path().join("checkpoints/one")).unwrap();
    assert!(index.list(dir.path()).unwrap().is_empty());
}

fn limit(runs: usize, bytes: usize) -> RunLimit {
    RunLimit { runs, bytes }
}

#[test]
fn several_runs_live_side_by_side() {
    let model = model();
    let mut runs = Runs::new(limit(2, usize::MAX), 5);
    let open = |runs: &mut Runs| runs.open(open(&model));
    let (a, b) = (open(&mut runs), open(&mut runs));
    assert_ne!(a, b);
    train(runs.get(&a).unwrap(), &model, 1);
    let steps = [&b, &a].map(|id| runs.get(id).unwrap().step());
    assert_eq!(steps, [0, 1]);
    let c = open(&mut runs);
    assert!(runs.get(&b).is_err(), "the one not used for longest");
    assert!(runs.get(&a).is_ok() && runs.get(&c).is_ok());
    let error = runs.get(&RunId::from(10)).unwrap_err().to_string();
    assert!(error.starts_with("training run \"0000000a\" is not open here"));
    assert_eq!(runs.get(&a).unwrap().lora().n_params(), 4096);
    let text = runs.get(&a).unwrap().trainable_params(5_000_000);
    assert_eq!(text, "0.00M / 5.00M");
}

#[test]
fn runs_are_bounded_in_bytes_and_can_be_closed() {
    let model = model();
    let run = || open(&model);
    let one = run().bytes();
    assert_eq!(one, 4096 * 4 * 4);
    let mut runs = Runs::new(limit(9, 2 * one), 5);
    let (a, b) = (runs.open(run()), runs.open(run()));
    let c = runs.open(run());
    assert!(runs.get(&a).is_err(), "three are too much");
    assert_eq!(runs.bytes(), 2 * one);
    runs.close(&b).unwrap();
    assert_eq!(runs.bytes(), one);
    assert!(runs.get(&b).is_err() && runs.close(&b).is_err());
    assert!(runs.get(&c).is_ok());
    let mut small = Runs::new(limit(9, one - 1), 5);
    let alone = small.open(run());
    assert!(small.get(&alone).is_ok(), "one may always be open");
}

#[test]
fn a_line_of_checkpoints_goes_on_in_the_run_that_loads_one() {
    let model = model();
    let dir = tempfile::tempdir().unwrap();
    let mut runs = Runs::new(limit(9, usize::MAX), 5);
    let (a, b) = (runs.open(open(&model)), runs.open(open(&model)));
    save(runs.get(&a).unwrap(), dir.path(), "one", &Value::Null);
    let saved = load(dir.path(), &model, "one").unwrap();
    runs.get(&b).unwrap().restore(name("one"), &saved).unwrap();
    save(runs.get(&b).unwrap(), dir.path(), "two", &Value::Null);
    let lines: Vec<_> = list(dir.path())
        .into_iter()
        .map(|entry| entry.line)
        .collect();
    assert_eq!(lines, [a.as_str(), a.as_str()]);
    assert_eq!(runs.checkpoints(), [name("one")]);
    runs.get(&a).unwrap().saved_as(name("one"));
    runs.close(&b).unwrap();
    assert_eq!(runs.checkpoints(), [name("one")]);
}
