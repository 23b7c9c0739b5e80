//! `cargo xtask bench episodes` measures whether an agent that does tasks gets better at them.

use anyhow::Result;
use metaclaw_fetch::command;

use super::program::{build, program};
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
            &[&["metaclaw", "episodes"], &trainer[..]].concat(),
        )
    })?;
    report.print();
    let mut bench = program(places, "episodes", "episodes", args);
    command::run(bench.env("METACLAW_TEST_MODEL", model))
}
