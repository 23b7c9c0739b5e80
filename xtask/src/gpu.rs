//! `cargo xtask gpu` measures the engine on a GPU; it also runs on a CPU, so that the command itself can be tested.
//!
//! It compares golden values in the device's dtype, and measures tokens per second, a LoRA step and its use of the
//! device, gaps between tokens while training, and memory; PEFT makes the same step if a Python with it is named. The
//! report is Markdown, for trainer/engine/bench/README.md.

mod options;
mod report;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use metaclaw_fetch::{command, writing};
use serde_json::{Value, json};

use self::options::{GpuOptions, USAGE};
use crate::bench::inputs::{Ids, sample};
use crate::cargo::cargo;
use crate::places::Places;
use crate::report::StageReport;

/// Measures, and writes the report.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    if args.iter().any(|it| it == "--help") {
        println!("{USAGE}");
        return Ok(());
    }
    let options = GpuOptions::parse(places, args)?;
    let mut setup = StageReport::default();
    let gguf = crate::setup::prepare(places, &mut setup)?;
    let bench = Bench::build(places, &options, &gguf, &mut setup)?;
    let golden = setup.stage("golden values", |_| Ok(golden(places, &options)))?;
    setup.print();
    let mut found = vec![("golden", json!({"passed": golden.is_ok()}))];
    if let Err(error) = golden {
        println!("golden values: {error:#}");
    }
    for (name, input) in cells(&options) {
        println!("{name} ..");
        found.push((name, bench.ours(input)?));
    }
    if let Some(python) = &options.python {
        println!("step of PEFT ..");
        found.push(("peft", bench.peer(python, step(&options))?));
    }
    let text = report::markdown(&options, &found);
    let file = options.out.join("report.md");
    writing(std::fs::write(&file, &text), &file)?;
    println!(
        "\n{text}\nwritten to {}; it belongs into trainer/engine/bench/README.md",
        file.display()
    );
    Ok(())
}

/// The golden values of PyTorch, computed on the device in its dtype.
fn golden(places: &Places, options: &GpuOptions) -> Result<()> {
    let mut tests = cargo(places, &["test", "--release", "-p", "metaclaw-engine"]);
    tests.args(["--lib", "golden"]);
    tests.env("METACLAW_GOLDEN_DEVICES", &options.devices);
    tests.env("METACLAW_GOLDEN_DTYPE", &options.dtype);
    command::run(&mut tests)
}

/// The cells that measure the engine alone, by name.
fn cells(options: &GpuOptions) -> Vec<(&'static str, Value)> {
    let mut ids = Ids::new(2);
    let (prompt, new) = if options.small { (32, 16) } else { (512, 256) };
    let mut decode =
        |n: usize| json!({"kind": "decode", "prompts": ids.lists(n, prompt), "new_tokens": new});
    let (one, eight) = (decode(1), decode(8));
    let served = json!({"kind": "served", "prompts": ids.lists(4, prompt), "new_tokens": new, "samples": samples(options)});
    vec![
        (
            "peak",
            json!({"kind": "peak", "side": if options.small { 1024 } else { 8192 }}),
        ),
        ("step", step(options)),
        ("decode 1", one),
        ("decode 8", eight),
        ("served", served),
    ]
}

/// A LoRA step: the same for ours and for PEFT.
fn step(options: &GpuOptions) -> Value {
    let peer = json!({"batch": 8, "checkpointing": false});
    json!({"kind": "train", "samples": samples(options), "warm_tokens": null, "peer": peer})
}

fn samples(options: &GpuOptions) -> Vec<Value> {
    let mut ids = Ids::new(1);
    let (n, length) = if options.small { (2, 64) } else { (16, 1024) };
    let one = |_| {
        let (prompt, reply) = (ids.take(length / 4), ids.take(length - length / 4));
        sample(&prompt, &reply)
    };
    (0..n).map(one).collect()
}

/// The program that measures, and its measurement.
struct Bench<'a> {
    engine: PathBuf,
    script: PathBuf,
    libtorch: PathBuf,
    model: PathBuf,
    options: &'a GpuOptions,
}

// === impl Bench ===

impl<'a> Bench<'a> {
    fn build(
        places: &Places,
        options: &'a GpuOptions,
        gguf: &Path,
        setup: &mut StageReport,
    ) -> Result<Self> {
        setup.stage("build", |_| {
            let args = ["build", "--release", "-p", "metaclaw-engine"];
            command::run(cargo(places, &args).args(["--example", "bench"]))
        })?;
        let libtorch = places.libtorch_link().join("lib");
        let engine = places.target.join("release/examples/bench");
        let model = if let Some(folder) = &options.model {
            folder.clone()
        } else {
            let mut folder = Command::new(&engine);
            folder.arg("folder").arg(gguf).arg(&places.cache);
            folder.env("LD_LIBRARY_PATH", &libtorch);
            command::output(&mut folder)?.trim().into()
        };
        writing(std::fs::create_dir_all(&options.out), &options.out)?;
        Ok(Self {
            engine,
            script: places.root.join("trainer/engine/bench/peer.py"),
            libtorch,
            model,
            options,
        })
    }

    fn ours(&self, input: Value) -> Result<Value> {
        let mut engine = Command::new(&self.engine);
        self.run(engine.env("LD_LIBRARY_PATH", &self.libtorch), input)
    }

    fn peer(&self, python: &Path, input: Value) -> Result<Value> {
        let mut script = Command::new(python);
        script.env("PYTHONDONTWRITEBYTECODE", "1");
        script.env("HF_HUB_OFFLINE", "1");
        self.run(script.arg(&self.script), input)
    }

    /// The JSON in the last line that the program prints.
    fn run(&self, program: &mut Command, mut input: Value) -> Result<Value> {
        input["model"] = self.model.display().to_string().into();
        input["threads"] = self.options.threads.into();
        input["dtype"] = self.options.dtype.as_str().into();
        input["devices"] = self.options.devices.as_str().into();
        let file = self.options.out.join("input.json");
        writing(std::fs::write(&file, input.to_string()), &file)?;
        program
            .arg(&file)
            .env("OMP_WAIT_POLICY", "passive")
            .env("GOMP_SPINCOUNT", "1000")
            .env("OMP_NUM_THREADS", self.options.threads.to_string());
        let printed = command::output(program)?;
        let line = printed.lines().last().context("it printed nothing")?;
        serde_json::from_str(line).context("its last line is no JSON")
    }
}
