//! `cargo xtask golden`: makes the golden values of the engine anew, with PyTorch, transformers and PEFT.

use std::process::Command;

use anyhow::Result;

use crate::command;
use crate::pip;
use crate::places::Places;
use crate::report::Report;

const PACKAGES: [&str; 5] = [
    "torch==2.11.0",
    "transformers",
    "peft",
    "safetensors",
    "numpy",
];

/// Writes to `trainer/engine/golden/`; what changes there is committed by hand.
pub(crate) fn run(places: &Places) -> Result<()> {
    let mut report = Report::default();
    let model = crate::prepare(places, &mut report)?;
    let python = report.stage("PyTorch", |stage| {
        stage.note = PACKAGES.join(", ");
        let _lock = places.lock()?;
        pip::environment(&places.cache.join("golden").join("venv"), &PACKAGES)
    })?;
    let folder = places.root.join("trainer/engine/golden");
    let mut make = Command::new(python);
    make.arg(folder.join("make.py")).current_dir(&folder);
    make.env("METACLAW_CACHE", &places.cache)
        .env("METACLAW_TEST_MODEL", model);
    report.stage("golden values", |_| command::run(&mut make))?;
    report.print();
    Ok(())
}
