//! `cargo xtask gpu`: a kit of programs, golden values and scripts that measures the engine on a GPU. It runs here, or is
//! packed for a machine that has only a driver and a Python with torch.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use metaclaw_fetch::{Packed, command, pack, unpack, writing};
use serde_json::Value;

use super::program::{build, has};
use crate::cargo::cargo;
use crate::dist::strip;
use crate::files;
use crate::places::Places;
use crate::report::StageReport;

#[rustfmt::skip]
const PROGRAMS: [&str; 5] =
    ["metaclaw", "metaclaw-trainer", "metaclaw-trainer-engine", "learn", "laptop"];
const SCRIPTS: [&str; 4] = ["gpu.py", "engine.py", "peer.py", "weights.py"];
const ARCHIVE: &str = "metaclaw-gpu.tar.gz";
/// The most that some ways to a machine with a GPU carry at once.
const MOST: u64 = 64 << 20;
/// The size of the demo model's parts.
const PART: u64 = 60 << 20;

/// Measures here, or packs the kit into the folder that `--pack` names.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    if has(args, "--help") {
        let script = places.root.join("tests/bench/engine/gpu.py");
        return command::run(Command::new("python3").arg(script).arg("--help"));
    }
    let packs = args.iter().position(|arg| arg == "--pack");
    let mut report = StageReport::default();
    let model = crate::setup::prepare(places, &mut report)?;
    report.stage("build", |_| build(places, &PROGRAMS))?;
    let tests = report.stage("build tests", |_| engine_tests(places))?;
    let stage = places.target.join("bench/gpu-kit");
    let folder = match packs {
        Some(at) => PathBuf::from(args.get(at + 1).context("--pack FOLDER")?),
        None => stage.clone(),
    };
    for folder in [&stage, &folder] {
        writing(fs::create_dir_all(folder), folder)?;
    }
    let archive = folder.join(ARCHIVE);
    report.stage("pack", |_| {
        let kit = kit(places, &stage, &model, &tests)?;
        pack("metaclaw-gpu", &kit, &archive)
    })?;
    let size = fs::metadata(&archive)?.len();
    ensure!(
        size <= MOST,
        "{} has {size} bytes, {MOST} are allowed",
        archive.display()
    );
    if packs.is_some() {
        cut(&model, &folder)?;
        report.print();
        println!("on the other machine: tar xf {ARCHIVE}; python3 metaclaw-gpu/gpu.py");
        return Ok(());
    }
    report.print();
    let kit = stage.join("kit");
    unpack(&archive, &kit)?;
    let mut script = Command::new("python3");
    script.arg(kit.join("gpu.py")).arg("--demo").arg(&model);
    let libtorch = places.libtorch_link().join("lib");
    script.arg("--libtorch").arg(libtorch);
    script.arg("--out").arg(places.target.join("bench/gpu"));
    command::run(script.args(args))
}

/// Builds the engine's tests, which compare it with golden values; returns the program.
fn engine_tests(places: &Places) -> Result<PathBuf> {
    let mut build = cargo(places, &["test", "--release", "-p", "metaclaw-engine"]);
    build.args(["--lib", "--no-run", "--message-format=json"]);
    let told = command::output(&mut build)?;
    let mut messages = told.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    });
    messages.next().context("cargo names no program of tests")
}

/// The files of the kit. Programs are stripped into `stage`.
fn kit(places: &Places, stage: &Path, model: &Path, tests: &Path) -> Result<Vec<Packed>> {
    let engine = places.root.join("trainer/engine/golden");
    let scripts = places.root.join("tests/bench/engine");
    let mut kit = Vec::new();
    let built = PROGRAMS.map(|name| (name, places.target.join("release").join(name)));
    for (name, program) in built
        .into_iter()
        .chain([("engine-tests", tests.to_owned())])
    {
        let stripped = stage.join(name);
        strip(&program, &stripped)?;
        kit.push(Packed::program(stripped, format!("bin/{name}")));
    }
    kit.extend(SCRIPTS.map(|name| Packed::file(scripts.join(name), name)));
    for file in files::below(&engine, true)? {
        let name = file.strip_prefix(&engine)?.display().to_string();
        kit.push(Packed::file(file, format!("golden/{name}")));
    }
    let size = stage.join("demo.size");
    writing(
        fs::write(&size, fs::metadata(model)?.len().to_string()),
        &size,
    )?;
    kit.push(Packed::file(size, "demo.size"));
    Ok(kit)
}

/// Writes the demo model in parts.
fn cut(model: &Path, folder: &Path) -> Result<()> {
    let mut left = fs::metadata(model)?.len();
    let mut whole = File::open(model)?;
    for n in 1.. {
        let part = folder.join(format!("demo.gguf.part{n}"));
        let mut out = writing(File::create(&part), &part)?;
        let written = io::copy(&mut whole.by_ref().take(PART), &mut out);
        left -= writing(written, &part)?;
        if left == 0 {
            break;
        }
    }
    Ok(())
}
