//! `cargo xtask bench`: measurements. They never run in CI or in a timed test.

mod cookbook;
mod engine;
mod episodes;
mod learn;
mod peer;
pub(crate) mod program;
mod relay;
mod sft;
mod size;

pub(crate) use self::engine::inputs;

use anyhow::{Result, bail};

use crate::places::Places;

pub(crate) const USAGE: &str = "\
usage: cargo xtask bench cookbook [sl|rl|peft]  the recipes of Tinker's cookbook against our training server
       cargo xtask bench engine [arguments]   the engine beside transformers and PEFT (--help lists the arguments)
       cargo xtask bench episodes [arguments] agents that do tasks: how much better they get (--help lists the arguments)
       cargo xtask bench learn [arguments]    the product with a scripted owner: what it learns and keeps (--help lists the arguments)
       cargo xtask bench relay [arguments]    the proxy beside nginx and LiteLLM (--help lists the arguments)
       cargo xtask bench sft [arguments]      `metaclaw train` beside plain PEFT and TRL (--help lists the arguments)
       cargo xtask bench tinker-peer [--venv PATH] [arguments]  the learning loop at a SkyRL server (--help lists the arguments)
       cargo xtask bench size [arguments]     the turn log's size on disk (--help lists the arguments)";

/// Runs one of them.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    match args.split_first() {
        Some((what, args)) if what == "cookbook" => cookbook::run(places, args),
        Some((what, args)) if what == "engine" => engine::run(places, args),
        Some((what, args)) if what == "episodes" => episodes::run(places, args),
        Some((what, args)) if what == "learn" => learn::run(places, args),
        Some((what, args)) if what == "relay" => relay::run(places, args),
        Some((what, args)) if what == "sft" => sft::run(places, args),
        Some((what, args)) if what == "size" => size::run(places, args),
        Some((what, args)) if what == "tinker-peer" => peer::run(places, args),
        Some((what, _)) => bail!("no such bench: `{what}`\n\n{USAGE}"),
        None => bail!("which one?\n\n{USAGE}"),
    }
}
