//! `cargo xtask bench sft` compares `metaclaw train` with plain PEFT and TRL on the same rows.

use std::process::Command;

use anyhow::Result;
use metaclaw_fetch::{command, pip};

use super::program::build;
use crate::places::Places;
use crate::report::StageReport;

/// The packages of the two others.
const PACKAGES: [&str; 7] = [
    "torch==2.11.0",
    "accelerate",
    "datasets",
    "peft",
    "safetensors",
    "transformers",
    "trl",
];

/// Installs, builds and runs; the arguments are those of the script.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    let mut report = StageReport::default();
    let model = crate::setup::prepare(places, &mut report)?;
    let python = report.stage("PEFT and TRL", |stage| {
        stage.note = PACKAGES.join(", ");
        let _lock = places.lock()?;
        pip::environment(&places.cache.join("sft"), &PACKAGES)
    })?;
    report.stage("build", |_| {
        let programs = ["metaclaw", "metaclaw-trainer", "metaclaw-trainer-engine"];
        build(places, &["metaclaw", "metaclaw-trainer"], &programs)
    })?;
    report.print();
    let mut bench = Command::new(python);
    bench
        .arg(places.root.join("tests/bench/sft/sft.py"))
        .arg(places.target.join("release").join("metaclaw"))
        .arg(model)
        .arg(places.target.join("bench").join("sft"))
        .args(args)
        .env("METACLAW_CACHE", &places.cache)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command::run(&mut bench)
}
