//! `cargo xtask bench size`: what the turn log takes on disk.

use anyhow::Result;

use crate::cargo::cargo;
use crate::command;
use crate::places::Places;

/// Builds the bench for release and runs it; arguments go to it.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    let build = [
        "build",
        "--release",
        "-p",
        "metaclaw-tests",
        "--bin",
        "size",
    ];
    command::run(&mut cargo(places, &build))?;
    let mut bench = std::process::Command::new(places.target.join("release").join("size"));
    if !args.iter().any(|it| it.starts_with("--out")) {
        bench
            .arg("--out")
            .arg(places.target.join("bench").join("size.json"));
    }
    command::run(bench.args(args))
}
