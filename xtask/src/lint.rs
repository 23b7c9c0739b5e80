//! What is checked of the code without running it.

use anyhow::Result;

use crate::cargo::cargo;
use crate::circles;
use crate::command;
use crate::places::Places;

/// Circles of files, which is quick; then clippy on everything, warnings refused.
pub(crate) fn run(places: &Places) -> Result<()> {
    circles::run(places)?;
    let args = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ];
    command::run(&mut cargo(places, &args))
}
