//! `cargo xtask laptop` runs the script of 40 conversations, in which the model learns to be brief.

use anyhow::Result;
use metaclaw_fetch::command;

use crate::cargo::cargo;
use crate::places::Places;
use crate::report::StageReport;
use crate::start::build_release;

/// Makes a release build and runs the script; arguments go to the script.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    let mut report = StageReport::default();
    let model = crate::setup::prepare(places, &mut report)?;
    report.stage("build", |_| build_release(places))?;
    report.print();
    let mut script = cargo(
        places,
        &[
            "run",
            "--release",
            "-p",
            "metaclaw-tests",
            "--bin",
            "laptop",
            "--",
        ],
    );
    script
        .args(args)
        .env("METACLAW_CACHE", &places.cache)
        .env("METACLAW_TEST_BIN_DIR", places.target.join("release"))
        .env("METACLAW_TEST_MODEL", model);
    command::run(&mut script)
}
