//! Builds and runs the programs that measure.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use metaclaw_fetch::command;

use crate::cargo::{cargo, features_for_use};
use crate::places::Places;
use crate::report::StageReport;

pub(super) const PROXY: &[&str] = &["metaclaw"];
pub(super) const TRAINER: &[&str] = &["metaclaw-trainer", "metaclaw-trainer-engine"];
pub(super) const BOTH: &[&str] = &["metaclaw", "metaclaw-trainer", "metaclaw-trainer-engine"];

/// Fetches the demo model, and makes release builds of `programs`. Returns the model's file.
pub(super) fn prepare(
    places: &Places,
    mut report: StageReport,
    programs: &[&str],
) -> Result<PathBuf> {
    let model = crate::setup::prepare(places, &mut report)?;
    report.stage("build", |_| build(places, programs))?;
    report.print();
    Ok(model)
}

/// Makes release builds of programs in one call, so that common dependencies are compiled once.
pub(super) fn build(places: &Places, programs: &[&str]) -> Result<()> {
    let mut build = cargo(places, &["build", "--release"]);
    for program in programs {
        let package = match *program {
            "metaclaw" => "metaclaw",
            "metaclaw-trainer" | "metaclaw-trainer-engine" => "metaclaw-trainer",
            _ => "metaclaw-tests",
        };
        build.args(["-p", package, "--bin", program]);
    }
    if programs.contains(&"metaclaw") {
        build.args(features_for_use());
    }
    command::run(&mut build)
}

/// A program of the test kit with its arguments, which uses the release build. Its records go to `out` below the
/// benchmarks' folder, unless the arguments say otherwise.
pub(super) fn program(places: &Places, name: &str, out: &str, args: &[String]) -> Command {
    let mut program = Command::new(places.target.join("release").join(name));
    if !args.iter().any(|arg| arg.starts_with("--out")) {
        let out = places.target.join("bench").join(out);
        program.arg("--out").arg(out);
    }
    for_release(places, program.args(args));
    program
}

pub(super) fn for_release<'a>(places: &Places, program: &'a mut Command) -> &'a mut Command {
    program
        .env("METACLAW_CACHE", &places.cache)
        .env("METACLAW_TEST_BIN_DIR", places.target.join("release"))
}

/// Returns the folder's name, which differs for a short run.
pub(super) fn quick_or(name: &str, args: &[String]) -> String {
    let short = ["--quick", "--guard"].into_iter();
    let ends = short.filter(|flag| has(args, flag));
    ends.fold(name.to_owned(), |name, flag| name + &flag[1..])
}

pub(super) fn has(args: &[String], flag: &str) -> bool {
    args.iter().any(|arg| arg == flag)
}
