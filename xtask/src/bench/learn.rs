//! `cargo xtask bench learn`: whether the product learns what its user likes, and keeps what it knew.

use std::process::Command;

use anyhow::Result;

use crate::cargo::{cargo, features_for_use};
use crate::command;
use crate::places::Places;
use crate::report::Report;

/// Builds as a user would run it and measures; arguments go to the bench.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    let mut report = Report::default();
    let model = crate::setup::prepare(places, &mut report)?;
    report.stage("build", |_| build(places))?;
    report.print();
    let release = places.target.join("release");
    let mut bench = Command::new(release.join("learn"));
    if !args
        .iter()
        .any(|it| it == "--out" || it.starts_with("--out="))
    {
        let folder = if args.iter().any(|it| it == "--quick") {
            "learn-quick"
        } else {
            "learn"
        };
        bench
            .arg("--out")
            .arg(places.target.join("bench").join(folder));
    }
    bench
        .args(args)
        .env("METACLAW_CACHE", &places.cache)
        .env("METACLAW_TEST_BIN_DIR", &release)
        .env("METACLAW_TEST_MODEL", model);
    command::run(&mut bench)
}

/// One call, so that what they share is compiled once.
fn build(places: &Places) -> Result<()> {
    let args = [
        "build",
        "--release",
        "-p",
        "metaclaw",
        "-p",
        "metaclaw-trainer",
        "-p",
        "metaclaw-tests",
        "--bin",
        "metaclaw",
        "--bin",
        "metaclaw-trainer",
        "--bin",
        "metaclaw-trainer-engine",
        "--bin",
        "learn",
    ];
    command::run(cargo(places, &args).args(features_for_use()))
}
