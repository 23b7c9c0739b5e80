//! The subcommands, one file each, and what they share.

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use crate::{
    config::{ConfigError, Loaded, Sources, load},
    environment::Environment,
    home::Home,
};

mod config;

/// A proxy that an agent talks through and that makes the model behind it better.
#[derive(Debug, Parser)]
#[command(name = "metaclaw", version, about, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show or change settings.
    Config(config::ConfigArgs),
}

/// What every subcommand knows.
#[derive(Debug)]
pub(crate) struct Context {
    /// The environment as it was at the start.
    pub environment: Environment,
    /// MetaClaw's home.
    pub home: Home,
}

// === impl Cli ===

impl Cli {
    /// Does what was asked.
    pub(crate) fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Config(args) => args.run(context),
        }
    }
}

// === impl Context ===

impl Context {
    /// With the home that the environment names.
    pub(crate) fn new(environment: Environment) -> Self {
        let home = Home::at(environment.home());
        Self { environment, home }
    }

    /// The settings: from the file named, else from the one in the home.
    pub(crate) fn settings(
        &self,
        file: Option<PathBuf>,
        flags: Vec<(&'static str, String)>,
    ) -> Result<Loaded, ConfigError> {
        load(Sources {
            file_asked: file.is_some(),
            file: file.unwrap_or_else(|| self.home.config()),
            variables: self.environment.variables().to_vec(),
            flags,
        })
    }
}
