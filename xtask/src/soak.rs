//! `cargo xtask soak`: an hour of chat, training and new adapters, with measurements of memory, disk and threads.

use anyhow::Result;
use metaclaw_fetch::command;

use crate::bench::program::{build, program};
use crate::places::Places;
use crate::report::StageReport;

/// Makes a release build and runs the soak; arguments go to it.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    let mut report = StageReport::default();
    let model = crate::setup::prepare(places, &mut report)?;
    report.stage("build", |_| {
        let programs = ["metaclaw-trainer", "metaclaw-trainer-engine", "soak"];
        build(places, &["metaclaw-trainer", "metaclaw-tests"], &programs)
    })?;
    report.print();
    let mut soak = program(places, "soak", "soak", args);
    command::run(soak.env("METACLAW_TEST_MODEL", model))
}
