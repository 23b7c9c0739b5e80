//! Cargo subcommands that `cargo xtask lint` needs: the user's if they are installed, else in the cache folder.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use metaclaw_fetch::command;

use crate::files::runs;
use crate::places::Places;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Tool {
    name: &'static str,
    /// The version to install if the program is missing. An installed one is used in any version.
    version: &'static str,
}

/// Checks licences, banned crates and sources, by deny.toml.
pub(crate) const DENY: Tool = Tool {
    name: "cargo-deny",
    version: "0.20.2",
};

/// Finds dependencies that no code uses.
pub(crate) const MACHETE: Tool = Tool {
    name: "cargo-machete",
    version: "0.9.2",
};

// === impl Tool ===

impl Tool {
    /// A command that runs the program with `args` in the checkout. A missing program is compiled into the cache
    /// folder, which takes minutes.
    ///
    /// # Errors
    /// Returns cargo's message if it cannot be installed.
    pub(crate) fn command(self, places: &Places, args: &[&str]) -> Result<Command> {
        let mut command = Command::new(self.program(places)?);
        command.current_dir(&places.root).args(args);
        Ok(command)
    }

    fn program(self, places: &Places) -> Result<PathBuf> {
        let by_path = PathBuf::from(self.name);
        if runs(&by_path) {
            return Ok(by_path);
        }
        let folder = places.cache.join("tools");
        let own = folder.join("bin").join(self.name);
        if !runs(&own) {
            let mut install = Command::new("cargo");
            install.args(["install", "--locked", self.name, "--version", self.version]);
            command::run(install.arg("--root").arg(&folder))?;
        }
        Ok(own)
    }
}
