//! `metaclaw completions`: what a shell needs to finish our commands.

use clap::{Args, ValueEnum};
use clap_complete::{Shell as Known, generate};

use crate::out;

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// Those that are tried.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

// === impl CompletionsArgs ===

impl CompletionsArgs {
    /// Does it, for all of `command`.
    pub(super) fn run(&self, mut command: clap::Command) -> anyhow::Result<()> {
        let shell = match self.shell {
            Shell::Bash => Known::Bash,
            Shell::Zsh => Known::Zsh,
            Shell::Fish => Known::Fish,
        };
        let mut script = Vec::new();
        generate(shell, &mut command, "metaclaw", &mut script);
        Ok(out::line(String::from_utf8(script)?.trim_end())?)
    }
}
