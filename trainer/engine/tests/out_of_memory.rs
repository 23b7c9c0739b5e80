//! Tests of memory that runs out in the middle of a step, although it was counted as enough: the step is cut into
//! smaller parts.
//!
//! The test is a separate process with limited address space, so that libtorch's allocator refuses as on a full
//! machine.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests, which the exception in clippy.toml does not know"
)]

use metaclaw_engine::device::Devices;
use metaclaw_engine::loss::Loss;
use metaclaw_engine::model::Model;
use metaclaw_engine::run::{OpenRun, RunConfig};
use metaclaw_engine::testing::{tiny_config, write_model};
use metaclaw_engine::train::{SliceSizes, TrainJob, TrainJobError, TrainOut};
use metaclaw_trainer_terms::Datum;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tch::{Kind, Tensor};

const MB: u64 = 1 << 20;

/// Returns the address space that the process uses now.
fn used() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split_whitespace().next().unwrap().parse().unwrap();
    pages * 4096
}

fn step(model: &Model, run: &OpenRun, datums: &[Datum]) -> Result<TrainOut, TrainJobError> {
    // The budget claims more memory than there is.
    let sizes = SliceSizes {
        memory: Some(1 << 30),
        ..SliceSizes::default()
    };
    TrainJob::forward_backward(model, run.lora(), datums, Loss::CrossEntropy, sizes)?.finish(model)
}

#[test]
fn a_step_that_lacks_memory_is_cut_smaller() {
    let mut config = tiny_config();
    config["hidden_size"] = json!(64);
    config["intermediate_size"] = json!(2048);
    config["num_hidden_layers"] = json!(6);
    config["max_position_embeddings"] = json!(4096);
    let dir = tempfile::tempdir().unwrap();
    write_model(dir.path(), &config, 7).unwrap();
    tch::set_num_threads(1);
    let model = Model::load(dir.path(), Kind::Float, &Devices::cpu()).unwrap();
    let run = OpenRun::new(&model, &RunConfig::default()).unwrap();
    let ids: Vec<u32> = (0..2049).map(|i| i * 31 % 250).collect();
    let datum = Datum::cross_entropy(ids[..2048].to_vec(), ids[1..].to_vec(), vec![1.0; 2048]);
    let datums = [datum.unwrap()];
    let unbounded = getrlimit(Resource::As);
    let bound = |bytes: u64| {
        let limit = Rlimit {
            current: Some(used() + bytes),
            ..unbounded
        };
        setrlimit(Resource::As, limit).unwrap();
    };
    // Memory that libtorch frees stays with the process, so the smallest comes first. Keeping all layers takes 0.4 GB.
    let bounded = [6, 140].map(|mb| {
        bound(mb * MB);
        step(&model, &run, &datums)
    });
    setrlimit(Resource::As, unbounded).unwrap();
    let whole = step(&model, &run, &datums).unwrap();

    for smaller in bounded {
        let smaller = smaller.unwrap();
        assert!(smaller.slices.count > whole.slices.count, "cut smaller");
        assert!((smaller.loss - whole.loss).abs() < 1e-3 * whole.loss);
        let norm = |t: &Tensor| t.to_kind(Kind::Double).norm().double_value(&[]);
        for (found, wanted) in smaller.gradients.iter().zip(&whole.gradients) {
            assert!(norm(&(found - wanted)) <= 1e-3 * norm(wanted).max(1e-6));
        }
    }
    // The model works as before.
    let again = step(&model, &run, &datums).unwrap();
    assert!((again.loss - whole.loss).abs() < 1e-6 * whole.loss);
}
