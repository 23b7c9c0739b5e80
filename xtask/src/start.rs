//! `cargo xtask start`: from a clean clone to a running proxy.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Result, anyhow};

use crate::cargo::{cargo, features_for_use};
use crate::command;
use crate::places::Places;
use crate::report::Report;

/// Becomes `metaclaw start` with the laptop example, in a home of its own: your `~/.metaclaw` is not touched.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    let mut report = Report::default();
    let model = crate::setup::prepare(places, &mut report)?;
    let binary = places.target.join("release").join("metaclaw");
    if !binary.exists() {
        println!(
            "building the proxy and its training server, with some 300 libraries: on two cores this takes about ten minutes, \
             the first time only"
        );
    }
    report.stage("build", |_| build_release(places))?;
    report.print();
    let mut metaclaw = Command::new(binary);
    metaclaw
        .arg("start")
        .arg("--config")
        .arg(places.root.join("examples/laptop/config.yaml"))
        .args(args)
        .env("METACLAW_HOME", places.cache.join("demo-home"))
        .env("METACLAW_CACHE", &places.cache)
        .env("METACLAW__TRAINER__MODEL", model)
        // The variables that cargo gave to xtask are nobody else's.
        .env_remove("LIBTORCH");
    // Replaces this process, so that signals and the exit status are metaclaw's own.
    let error = metaclaw.exec();
    Err(anyhow!(
        "{} could not be started: {error}",
        metaclaw.get_program().to_string_lossy()
    ))
}

/// The proxy and the trainer, as a user runs them.
pub(crate) fn build_release(places: &Places) -> Result<()> {
    let args = [
        "build",
        "--release",
        "-p",
        "metaclaw",
        "-p",
        "metaclaw-trainer",
    ];
    command::run(cargo(places, &args).args(features_for_use()))
}
