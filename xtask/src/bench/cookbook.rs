//! `cargo xtask bench cookbook` runs the unmodified recipes of Tinker's cookbook with MetaClaw's training server.

use std::process::Command;

use anyhow::Result;
use metaclaw_fetch::{command, pip};

use super::program::build;
use crate::places::Places;
use crate::report::StageReport;

/// The packages that the two recipes import, and PEFT, which reads the saved adapter.
const PACKAGES: [&str; 19] = [
    "torch==2.11.0",
    "tinker==0.38.0",
    "aiohttp",
    "antlr4-python3-runtime>=4.11,<4.14",
    "blobfile",
    "chz",
    "cloudpickle",
    "datasets",
    "math-verify",
    "peft",
    "pillow",
    "pylatexenc",
    "rich",
    "safetensors",
    "sympy",
    "termcolor",
    "tiktoken",
    "tqdm",
    "transformers",
];
/// It is installed without its own requirements, because these contain packages that no recipe here imports and that
/// some indexes lack.
const COOKBOOK: &str = "tinker-cookbook==0.6.1";

/// Installs, builds and runs; arguments name the parts (`sl`, `rl`, `peft`), and without any all run.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    let mut report = StageReport::default();
    let model = crate::setup::prepare(places, &mut report)?;
    let python = report.stage("the cookbook", |stage| {
        stage.note = format!("{COOKBOOK}, {}", PACKAGES.join(", "));
        let _lock = places.lock()?;
        pip::environment_with(&places.cache.join("cookbook"), &PACKAGES, &[COOKBOOK])
    })?;
    report.stage("build", |_| {
        let programs = ["metaclaw-trainer", "metaclaw-trainer-engine"];
        build(places, &["metaclaw-trainer"], &programs)
    })?;
    report.print();
    let mut bench = Command::new(python);
    bench
        .arg(places.root.join("tests/bench/tinker/cookbook.py"))
        .arg(places.target.join("release").join("metaclaw-trainer"))
        .arg(model)
        .arg(places.target.join("bench").join("cookbook"))
        .args(args)
        .env("METACLAW_CACHE", &places.cache)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command::run(&mut bench)
}
