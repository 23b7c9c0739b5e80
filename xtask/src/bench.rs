//! `cargo xtask bench` runs measurements, which are never part of CI or of a test with a time limit.

mod cookbook;
mod engine;
mod learn;
mod peer;
pub(crate) mod program;
mod relay;
mod size;

pub(crate) use self::engine::inputs;

use anyhow::{Result, bail};

use crate::places::Places;

pub(crate) const USAGE: &str = "\
usage: cargo xtask bench cookbook [sl|rl|peft]  the recipes of Tinker's cookbook against our training server
       cargo xtask bench engine [arguments]   the engine beside transformers and PEFT (--help lists the arguments)
       cargo xtask bench learn [arguments]    the product with a scripted owner: what it learns and keeps (--help lists the arguments)
       cargo xtask bench relay [arguments]    the proxy beside nginx and LiteLLM (--help lists the arguments)
       cargo xtask bench tinker-peer [--venv PATH] [arguments]  the learning loop at a SkyRL server (--help lists the arguments)
       cargo xtask bench size [arguments]     the turn log's size on disk (--help lists the arguments)";

/// Runs one of them.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    match args.split_first() {
        Some((what, args)) if what == "cookbook" => cookbook::run(places, args),
        Some((what, args)) if what == "engine" => engine::run(places, args),
        Some((what, args)) if what == "learn" => learn::run(places, args),
        Some((what, args)) if what == "relay" => relay::run(places, args),
        Some((what, args)) if what == "size" => size::run(places, args),
        Some((what, args)) if what == "tinker-peer" => peer::run(places, args),
        Some((what, _)) => bail!("no such bench: `{what}`\n\n{USAGE}"),
        None => bail!("which one?\n\n{USAGE}"),
    }
}
