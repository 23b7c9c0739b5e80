//! `metaclaw completions`: what a shell needs to finish our commands.

use clap::Args;
use clap_complete::{Shell, generate};

use crate::out;

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    // Those that were tried.
    #[arg(value_parser = ["bash", "zsh", "fish"])]
    shell: String,
}

// === impl CompletionsArgs ===

impl CompletionsArgs {
    /// Does it, for all of `command`.
    pub(super) fn run(&self, mut command: clap::Command) -> anyhow::Result<()> {
        let shell: Shell = self.shell.parse().map_err(anyhow::Error::msg)?;
        let mut script = Vec::new();
        generate(shell, &mut command, "metaclaw", &mut script);
        Ok(out::line(String::from_utf8(script)?.trim_end())?)
    }
}
