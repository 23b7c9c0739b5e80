//! `cargo xtask bench size` measures how much disk the turn log takes.

use anyhow::Result;
use metaclaw_fetch::command;

use super::program::{build, program};
use crate::places::Places;

/// Makes a release build of the bench and runs it; arguments go to it.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    build(places, &["metaclaw-tests"], &["size"])?;
    command::run(&mut program(places, "size", "size.json", args))
}
