//! What every subcommand knows.

use std::path::PathBuf;

use crate::{
    config::{ConfigError, Loaded, Sources, load},
    environment::Environment,
    home::Home,
};

/// The environment and the home folder.
#[derive(Debug)]
pub(crate) struct Context {
    /// The environment as it was at the start.
    pub environment: Environment,
    pub home: Home,
}

// === impl Context ===

impl Context {
    /// With the home that the environment names.
    pub(crate) fn new(environment: Environment) -> Self {
        let home = Home::at(environment.home());
        Self { environment, home }
    }

    /// The home of `cargo xtask start`, where it is another one.
    pub(crate) fn demo(&self) -> Option<Home> {
        let demo = Home::at(self.environment.cache().join("demo-home"));
        (demo != self.home).then_some(demo)
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
