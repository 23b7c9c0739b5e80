//! `cargo xtask bench size`: what the turn log takes on disk.

use anyhow::Result;
use metaclaw_fetch::command;

use super::program::{build, program};
use crate::places::Places;

/// Builds the bench for release and runs it; arguments go to it.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    build(places, &["metaclaw-tests"], &["size"])?;
    command::run(&mut program(places, "size", "size.json", args))
}
