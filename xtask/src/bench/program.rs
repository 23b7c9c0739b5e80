//! Builds and runs the programs that measure.

use std::process::Command;

use anyhow::Result;
use metaclaw_fetch::command;

use crate::cargo::{cargo, features_for_use};
use crate::places::Places;

/// Makes release builds of programs in one call, so that common dependencies are compiled once.
pub(crate) fn build(places: &Places, packages: &[&str], programs: &[&str]) -> Result<()> {
    let packages = packages.iter().flat_map(|name| ["-p", name]);
    let programs = programs.iter().flat_map(|name| ["--bin", name]);
    let args: Vec<&str> = ["build", "--release"]
        .into_iter()
        .chain(packages)
        .chain(programs)
        .collect();
    let mut build = cargo(places, &args);
    if args.contains(&"metaclaw") {
        build.args(features_for_use());
    }
    command::run(&mut build)
}

/// A program of the test kit with its arguments, which uses the release build. Its records go to `out` below the
/// benchmarks' folder, unless the arguments say otherwise.
pub(crate) fn program(places: &Places, name: &str, out: &str, args: &[String]) -> Command {
    let release = places.target.join("release");
    let mut program = Command::new(release.join(name));
    if !args.iter().any(|it| it.starts_with("--out")) {
        let out = places.target.join("bench").join(out);
        program.arg("--out").arg(out);
    }
    program
        .args(args)
        .env("METACLAW_CACHE", &places.cache)
        .env("METACLAW_TEST_BIN_DIR", &release);
    program
}

/// The folder's name; a quick run has another one.
pub(crate) fn quick_or(name: &str, args: &[String]) -> String {
    if args.iter().any(|it| it == "--quick") {
        format!("{name}-quick")
    } else {
        name.to_owned()
    }
}
