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

/// Clippy on the program as it is built where nobody names a feature: what the tests are built with has them all.
pub(crate) fn default_features(places: &Places) -> Result<()> {
    let args = [
        "clippy",
        "--package",
        "metaclaw",
        "--no-deps",
        "--",
        "-D",
        "warnings",
    ];
    command::run(&mut cargo(places, &args))
}
