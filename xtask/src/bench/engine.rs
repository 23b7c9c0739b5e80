//! `cargo xtask bench engine`: our engine beside transformers and PEFT on the PyTorch that it links.
//!
//! Same weights, threads and inputs; a process a run, ours and theirs in turn, the median of all runs. What has
//! been run is not run again, unless program, input or settings are others by now.

mod cell;
mod cells;
mod inputs;
mod runs;
mod table;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use self::cell::Cell;
use self::runs::{Programs, Record};
use crate::cargo::cargo;
use crate::places::{Places, writing};
use crate::report::Report;
use crate::{command, golden};

const USAGE: &str = "\
usage: cargo xtask bench engine [--only CELL,..] [--quick] [--repeats N] [--threads N] [--dtype bf16|f32]
                                [--adapter f32|bf16] [--python PATH] [--out FOLDER]

  --only CELL     these cells alone (their names are in the table)
  --quick         every cell once instead of 7 times
  --threads N     threads of libtorch on both sides [default: 2]
  --dtype         of the weights on both sides [default: bf16]
  --adapter       of PEFT's LoRA matrices; ours are f32, as PEFT's own default is [default: f32]
  --python PATH   a Python with torch, transformers and peft, instead of the one that is set up in the cache folder
  --out FOLDER    where inputs, runs and result.json go [default: bench/engine in the target folder]";

/// What the arguments say.
#[derive(Debug, Clone)]
pub(super) struct Options {
    only: Vec<String>,
    repeats: usize,
    threads: usize,
    dtype: String,
    adapter_f32: bool,
    python: Option<PathBuf>,
    out: PathBuf,
}

/// Sets up, measures, judges. A promise that is not kept is in the table and in the exit status.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    if args.iter().any(|it| it == "--help") {
        println!("{USAGE}\n\n{}", cells::list());
        return Ok(());
    }
    let options = Options::parse(places, args)?;
    let (programs, model) = prepare(places, &options)?;
    let models = inputs::Models::prepare(&model, &options.out)?;
    let mut cells = cells::all(&options, &models);
    cells.retain(|it| options.only.is_empty() || options.only.iter().any(|name| name == it.name));
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

/// All runs of a cell, one side after the other, again and again.
fn measure(cell: &Cell, options: &Options, programs: &Programs) -> Result<Vec<Record>> {
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
fn prepare(places: &Places, options: &Options) -> Result<(Programs, PathBuf)> {
    let mut report = Report::default();
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
    let programs = Programs {
        engine,
        libtorch: places.libtorch_link().join("lib"),
        python,
        script: places.root.join("trainer/engine/bench/peer.py"),
        threads: options.threads,
    };
    writing(std::fs::create_dir_all(&options.out), &options.out)?;
    Ok((programs, Path::new(folder.trim()).to_owned()))
}

// === impl Options ===

impl Options {
    fn parse(places: &Places, args: &[String]) -> Result<Self> {
        let mut options = Self {
            only: Vec::new(),
            repeats: 7,
            threads: 2,
            dtype: "bf16".to_owned(),
            adapter_f32: true,
            python: None,
            out: places.target.join("bench").join("engine"),
        };
        let mut args = args.iter();
        while let Some(flag) = args.next() {
            if flag == "--quick" {
                options.repeats = 1;
                continue;
            }
            let value = args
                .next()
                .with_context(|| format!("{flag} needs a value\n\n{USAGE}"))?;
            match flag.as_str() {
                "--only" => options.only = value.split(',').map(str::to_owned).collect(),
                "--repeats" => options.repeats = number(flag, value)?,
                "--threads" => options.threads = number(flag, value)?,
                "--dtype" if ["bf16", "f32"].contains(&value.as_str()) => {
                    options.dtype.clone_from(value);
                }
                "--adapter" if ["bf16", "f32"].contains(&value.as_str()) => {
                    options.adapter_f32 = value == "f32";
                }
                "--python" => options.python = Some(value.into()),
                "--out" => options.out = value.into(),
                _ => bail!("`{flag} {value}` is not known\n\n{USAGE}"),
            }
        }
        if let Some(stray) = options
            .only
            .iter()
            .find(|it| !cells::NAMES.contains(&it.as_str()))
        {
            bail!(
                "no such cell: `{stray}`; there are {}",
                cells::NAMES.join(", ")
            );
        }
        Ok(options)
    }
}

fn number(flag: &str, value: &str) -> Result<usize> {
    let number = value.parse::<usize>().ok().filter(|n| *n > 0);
    number.with_context(|| format!("{flag} is {value:?}: a number from 1 on"))
}
