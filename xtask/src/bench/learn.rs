//! `cargo xtask bench learn` measures whether the product learns what its user likes, and keeps what it knew.

use anyhow::Result;
use metaclaw_fetch::command;

use super::program::{build, program, quick_or};
use crate::places::Places;
use crate::report::StageReport;

/// Makes a release build and measures; arguments go to the bench.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    let mut report = StageReport::default();
    let model = crate::setup::prepare(places, &mut report)?;
    report.stage("build", |_| {
        let packages = ["metaclaw", "metaclaw-trainer", "metaclaw-tests"];
        let trainer = ["metaclaw-trainer", "metaclaw-trainer-engine"];
        build(
            places,
            &packages,
            &[&["metaclaw", "learn"], &trainer[..]].concat(),
        )
    })?;
    report.print();
    let mut bench = program(places, "learn", &quick_or("learn", args), args);
    command::run(bench.env("METACLAW_TEST_MODEL", model))
}
