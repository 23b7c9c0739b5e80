//! `cargo xtask start` leads from a clean clone to a running proxy.

mod build;

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Result, anyhow};

use self::build::build_release;
use crate::places::Places;
use crate::report::StageReport;

/// Runs `metaclaw start` in place of xtask, with the laptop example in a separate home. Your `~/.metaclaw` is not
/// touched.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    let mut report = StageReport::default();
    let model = crate::setup::prepare(places, &mut report)?;
    let binary = places.target.join("release").join("metaclaw");
    if !binary.exists() {
        println!("building the proxy and its training server, the first time only");
    }
    report.stage("build", |_| build_release(places))?;
    report.print();
    let home = places.cache.join("demo-home");
    let (shown, program) = (home.display(), binary.display());
    println!("the page, from a second terminal: METACLAW_HOME={shown} {program} ui\n");
    let mut metaclaw = Command::new(&binary);
    metaclaw.args(["start", "--config"]);
    metaclaw
        .arg(places.root.join("examples/laptop/config.yaml"))
        .args(args);
    metaclaw
        .env("METACLAW_HOME", &home)
        .env("METACLAW_CACHE", &places.cache);
    metaclaw.env("METACLAW__TRAINER__MODEL", model);
    // Variables that cargo sets for xtask are removed.
    metaclaw.env_remove("LIBTORCH");
    // This replaces the process, so that signals and the exit status are metaclaw's own.
    let error = metaclaw.exec();
    Err(anyhow!("{program} could not be started: {error}"))
}
