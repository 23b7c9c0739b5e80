//! `cargo xtask soak`: an hour of chat, training and new adapters, and what is left of the memory.

use std::process::Command;

use anyhow::Result;

use crate::cargo::cargo;
use crate::command;
use crate::places::Places;
use crate::report::Report;

/// Builds as a user would run it and soaks; arguments go to the soak.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    let mut report = Report::default();
    let model = crate::setup::prepare(places, &mut report)?;
    report.stage("build", |_| {
        let args = [
            "build",
            "--release",
            "-p",
            "metaclaw-trainer",
            "-p",
            "metaclaw-tests",
        ];
        command::run(cargo(places, &args).args([
            "--bin",
            "metaclaw-trainer",
            "--bin",
            "metaclaw-trainer-engine",
            "--bin",
            "soak",
        ]))
    })?;
    report.print();
    let release = places.target.join("release");
    let mut soak = Command::new(release.join("soak"));
    if !args.iter().any(|it| it.starts_with("--out")) {
        soak.arg("--out")
            .arg(places.target.join("bench").join("soak"));
    }
    soak.args(args)
        .env("METACLAW_CACHE", &places.cache)
        .env("METACLAW_TEST_BIN_DIR", &release)
        .env("METACLAW_TEST_MODEL", model);
    command::run(&mut soak)
}
