use tch::Kind;

use super::*;
use crate::datum::TrainDatum;
use crate::loss::Loss;
use crate::testing::write_tiny_model;
use crate::train::{SliceSizes, TrainJob};

fn model() -> Model {
    let dir = tempfile::tempdir().unwrap();
    write_tiny_model(dir.path(), 7).unwrap();
    Model::load(dir.path(), Kind::Float).unwrap()
}

fn config() -> RunConfig {
    RunConfig {
        lora: LoraSpec {
            rank: 4,
            ..LoraSpec::default()
        },
        seed: 1,
    }
}

fn base() -> BaseId {
    BaseId {
        name: "tiny".into(),
        fingerprint: "0123456789abcdef".into(),
    }
}

fn fit<'a>(base: &'a BaseId, model: &Model) -> Fit<'a> {
    let dims = LayerDims::of(&model.family);
    Fit {
        base,
        dims,
        n_layers: model.family.n_layers,
    }
}

fn datum(salt: u32) -> TrainDatum {
    let ids: Vec<u32> = (0..12).map(|i| (i * 17 + salt * 31) % 259).collect();
    TrainDatum {
        input_ids: ids[..11].to_vec(),
        target_ids: ids[1..].to_vec(),
        targets_per_position: 1,
        weights: Some(vec![1.0; 11]),
        ..TrainDatum::default()
    }
}

fn forward_backward(run: &mut Run, model: &Model, salt: u32) -> f64 {
    let (version, sizes) = (run.version(), SliceSizes::default());
    let (datums, loss) = ([datum(salt)], Loss::CrossEntropy);
    let job = TrainJob::forward_backward(model, run.lora(), &datums, loss, sizes).unwrap();
    let mut out = job.finish(model).unwrap();
    run.accumulate_grads(version, &mut out).unwrap();
    out.loss
}

fn train(run: &mut Run, model: &Model, salt: u32) -> StepOut {
    forward_backward(run, model, salt);
    run.optim_step(&AdamConfig {
        learning_rate: 0.01,
        ..AdamConfig::default()
    })
    .unwrap()
}

fn same(a: &Run, b: &Run) -> bool {
    let tensors = |run: &Run| -> Vec<Tensor> {
        let adam = &run.state.adam;
        let moments = adam.mean.iter().chain(&adam.square);
        run.lora()
            .params()
            .chain(moments)
            .map(Tensor::shallow_clone)
            .collect()
    };
    tensors(a).iter().zip(&tensors(b)).all(|(a, b)| a.equal(b)) && a.step() == b.step()
}

#[test]
fn learns_what_it_is_shown() {
    let model = model();
    let mut run = Run::new(&model, &config()).unwrap();
    let first = forward_backward(&mut run, &model, 0);
    for _ in 0..30 {
        train(&mut run, &model, 0);
    }
    let last = forward_backward(&mut run, &model, 0);
    assert!(last < 0.2 * first, "{first} to {last}");
}

#[test]
fn going_on_from_a_checkpoint_changes_no_bit() {
    let (model, base) = (model(), base());
    let dir = tempfile::tempdir().unwrap();
    let manifest = serde_json::json!({"z": [1, 2], "a": "kept in order"});

    let mut whole = Run::new(&model, &config()).unwrap();
    train(&mut whole, &model, 1);
    whole
        .save_checkpoint(dir.path(), "one", &base, &manifest)
        .unwrap();
    train(&mut whole, &model, 2);

    let other = RunConfig {
        lora: LoraSpec {
            rank: 2,
            ..LoraSpec::default()
        },
        seed: 99,
    };
    let mut resumed = Run::new(&model, &other).unwrap();
    forward_backward(&mut resumed, &model, 3);
    assert_eq!(
        resumed
            .load_checkpoint(dir.path(), "one", &fit(&base, &model))
            .unwrap(),
        1
    );
    let error = resumed.optim_step(&AdamConfig::default()).unwrap_err();
    assert!(
        matches!(error, StepError::NoGradients),
        "loading drops what waits"
    );
    train(&mut resumed, &model, 2);
    assert!(same(&whole, &resumed));

    let listed = checkpoint::list(dir.path()).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].name.as_str(), listed[0].step), ("one", 1));
    assert_eq!(listed[0].manifest.to_string(), manifest.to_string());
    assert!(listed[0].created_ms > 1_700_000_000_000);
}

#[test]
fn gradients_add_up_until_the_step() {
    let model = model();
    let mut apart = Run::new(&model, &config()).unwrap();
    let first = forward_backward(&mut apart, &model, 1);
    let second = forward_backward(&mut apart, &model, 2);
    let step = apart.optim_step(&AdamConfig::default()).unwrap();
    assert_eq!(step.step, 1);
    assert!((step.avg_loss - (first + second) / 22.0).abs() < 1e-9);

    let mut together = Run::new(&model, &config()).unwrap();
    let (datums, sizes) = ([datum(1), datum(2)], SliceSizes::default());
    let (version, loss) = (together.version(), Loss::CrossEntropy);
    let job = TrainJob::forward_backward(&model, together.lora(), &datums, loss, sizes).unwrap();
    together
        .accumulate_grads(version, &mut job.finish(&model).unwrap())
        .unwrap();
    let also = together.optim_step(&AdamConfig::default()).unwrap();
    assert!((step.grad_norm - also.grad_norm).abs() < 1e-4 * step.grad_norm);
}

#[test]
fn a_job_that_is_dropped_or_late_leaves_nothing() {
    let model = model();
    let mut run = Run::new(&model, &config()).unwrap();
    let job = |run: &Run| {
        let (datums, sizes) = ([datum(5)], SliceSizes::default());
        let loss = Loss::CrossEntropy;
        TrainJob::forward_backward(&model, run.lora(), &datums, loss, sizes).unwrap()
    };
    drop(
        job(&run)
            .advance(&model, std::time::Duration::ZERO)
            .unwrap(),
    );
    let none = run.optim_step(&AdamConfig::default()).unwrap_err();
    assert!(matches!(none, StepError::NoGradients));

    let (version, late) = (run.version(), job(&run));
    train(&mut run, &model, 1);
    let refused = run
        .accumulate_grads(version, &mut late.finish(&model).unwrap())
        .unwrap_err();
    assert!(matches!(refused, AbsorbError::Stale(_)));
    assert!(run.gradients.is_empty());
}

#[test]
fn a_gradient_that_is_not_finite_is_dropped_and_the_run_goes_on() {
    let model = model();
    let mut run = Run::new(&model, &config()).unwrap();
    forward_backward(&mut run, &model, 1);
    run.gradients[0] = run.gradients[0].full_like(f64::NAN);
    let before: Vec<Tensor> = run.lora().params().map(Tensor::copy).collect();
    let error = run.optim_step(&AdamConfig::default()).unwrap_err();
    assert!(matches!(error, StepError::NotFinite { .. }), "{error}");
    assert!(run.lora().params().zip(&before).all(|(a, b)| a.equal(b)));
    assert_eq!(train(&mut run, &model, 1).step, 1);
}

/// One waiting gradient of this norm.
fn wait_with(run: &mut Run, norm: f64) {
    let mut gradients: Vec<Tensor> = run.lora().params().map(Tensor::zeros_like).collect();
    let n = gradients[0].numel() as f64;
    gradients[0] = gradients[0].full_like(norm / n.sqrt());
    run.gradients = gradients;
}

#[test]
fn a_gradient_far_out_of_line_is_skipped_and_the_run_goes_on() {
    let model = model();
    let mut run = Run::new(&model, &config()).unwrap();
    let plain = AdamConfig::default();
    let mut step = |norm: f64, config: &AdamConfig| {
        wait_with(&mut run, norm);
        let before: Vec<Tensor> = run.lora().params().map(Tensor::copy).collect();
        let stepped = run.optim_step(config).unwrap();
        let stayed = run.lora().params().zip(&before).all(|(a, b)| a.equal(b));
        assert_eq!(stayed, stepped.skipped);
        assert!(run.gradients.is_empty());
        stepped
    };
    // The first ones are what others are measured by.
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
    // What came to stay is no outlier.
    let until = (0..norms::REMEMBERED)
        .take_while(|_| step(1e4, &plain).skipped)
        .count();
    assert!(
        (1..norms::REMEMBERED).contains(&until),
        "{until} steps skipped"
    );
}

#[test]
fn only_the_adapter_is_trained() {
    let model = model();
    let mut run = Run::new(&model, &config()).unwrap();
    let base = |model: &Model| model.weights.layers[0].gate_up.weight.copy();
    let before = base(&model);
    train(&mut run, &model, 1);
    assert!(base(&model).equal(&before));
    let adam = &run.state.adam;
    let sizes = |tensors: &[Tensor]| tensors.iter().map(Tensor::size).collect::<Vec<_>>();
    let params: Vec<_> = run.lora().params().map(Tensor::size).collect();
    assert_eq!(sizes(&adam.mean), params);
    assert_eq!(sizes(&adam.square), params);
    assert_eq!(params.len(), 2 * 7 * 2);
    let n: i64 = params.iter().map(|size| size.iter().product::<i64>()).sum();
    assert_eq!(usize::try_from(n).unwrap(), run.lora().n_params());
}

#[test]
fn a_damaged_checkpoint_is_named_and_the_run_stays() {
    let (model, base) = (model(), base());
    let dir = tempfile::tempdir().unwrap();
    let mut run = Run::new(&model, &config()).unwrap();
    train(&mut run, &model, 1);
    let folder = run
        .save_checkpoint(dir.path(), "x", &base, &Value::Null)
        .unwrap();
    let file = folder.join("optimizer.safetensors");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 9]).unwrap();
    let fit = fit(&base, &model);
    let error = run
        .load_checkpoint(dir.path(), "x", &fit)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("optimizer.safetensors is damaged: "),
        "{error}"
    );
    assert_eq!(run.step(), 1);
    let error = run
        .load_checkpoint(dir.path(), "y", &fit)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("there is no checkpoint \"y\" in "),
        "{error}"
    );
    let error = run
        .load_checkpoint(dir.path(), "../x", &fit)
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("name \"../x\" is not allowed"), "{error}");
    std::fs::remove_file(folder.join("state.json")).unwrap();
    assert!(
        checkpoint::list(dir.path()).unwrap().is_empty(),
        "left out, not fatal"
    );
}

#[test]
fn several_runs_live_side_by_side() {
    let model = model();
    let mut runs = Runs::new(2, 5);
    let open = |runs: &mut Runs| runs.open(Run::new(&model, &config()).unwrap());
    let (a, b) = (open(&mut runs), open(&mut runs));
    assert!(a != b && a.len() == 8);
    train(runs.get(&a).unwrap(), &model, 1);
    assert_eq!(
        (runs.get(&b).unwrap().step(), runs.get(&a).unwrap().step()),
        (0, 1)
    );
    let c = open(&mut runs);
    assert!(runs.get(&b).is_err(), "the one not used for longest");
    assert!(runs.get(&a).is_ok() && runs.get(&c).is_ok());
    let error = runs.get("nope").unwrap_err().to_string();
    assert!(error.starts_with("training run \"nope\" is not open here"));
    assert_eq!(runs.get(&a).unwrap().lora().n_params(), 4096);
    let text = runs.get(&a).unwrap().trainable_params(5_000_000);
    assert_eq!(text, "0.00M / 5.00M");
}
