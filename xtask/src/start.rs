//! `cargo xtask start` leads from a clean clone to a running proxy.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Result, anyhow};
use metaclaw_fetch::command;

use crate::cargo::{cargo, features_for_use};
use crate::places::Places;
use crate::report::StageReport;

/// Runs `metaclaw start` in place of xtask, with the laptop example in a separate home. Your `~/.metaclaw` is not
/// touched.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    let mut report = StageReport::default();
    let model = crate::setup::prepare(places, &mut report)?;
    let binary = places.target.join("release").join("metaclaw");
    if !binary.exists() {
        let n_cores = std::thread::available_parallelism().map_or(1, usize::from);
        println!(
            "building the proxy and its training server, the first time only: about {} minutes on the {n_cores} cores of this \
             machine; cargo's last line counts the crates",
            build_minutes(n_cores)
        );
    }
    report.stage("build", |_| build_release(places))?;
    report.print();
    let home = places.cache.join("demo-home");
    println!(
        "the page, from a second terminal: METACLAW_HOME={} {} ui\n",
        home.display(),
        binary.display()
    );
    let mut metaclaw = Command::new(binary);
    metaclaw
        .arg("start")
        .arg("--config")
        .arg(places.root.join("examples/laptop/config.yaml"))
        .args(args)
        .env("METACLAW_HOME", home)
        .env("METACLAW_CACHE", &places.cache)
        .env("METACLAW__TRAINER__MODEL", model)
        // Variables that cargo sets for xtask are removed.
        .env_remove("LIBTORCH");
    // This replaces the process, so that signals and the exit status are metaclaw's own.
    let error = metaclaw.exec();
    Err(anyhow!(
        "{} could not be started: {error}",
        metaclaw.get_program().to_string_lossy()
    ))
}

/// The estimated time of the first build: 636 s were measured on two cores, most of it on both. With any number of
/// cores, crates that depend on each other take some minutes.
fn build_minutes(n_cores: usize) -> usize {
    const CORE_MINUTES: usize = 20;
    const LEAST: usize = 3;
    CORE_MINUTES.div_ceil(n_cores.max(1)).max(LEAST)
}

/// Builds the proxy and the trainer as a user runs them.
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
