//! What every subcommand knows.

use std::path::PathBuf;

use anyhow::Context as _;
use metaclaw_control::home::Home;
use metaclaw_settings::{Config, Loaded, Policy, SettingsError, Sources, load};
use tokio::runtime::{Builder, Runtime};

use crate::environment::Environment;

#[derive(Debug, Clone)]
pub(crate) struct Context {
    /// The environment as it was at the start.
    pub environment: Environment,
    /// The home, or in it the proxy that is meant.
    pub home: Home,
    /// `--port`, as it was given.
    pub port: Option<String>,
}

// === impl Context ===

impl Context {
    pub(crate) fn new(
        environment: Environment,
        home: Option<PathBuf>,
        port: Option<String>,
    ) -> Self {
        let home = Home::at(home.unwrap_or_else(|| environment.home()));
        Self {
            environment,
            home,
            port,
        }
    }

    /// For a command that asks a proxy: the one at `--port`; without it the home's own, or the only one that
    /// runs.
    ///
    /// # Errors
    ///
    /// When `--port` is no port.
    pub(super) fn at_proxy(mut self) -> anyhow::Result<Self> {
        let own_runs = self.home.holder()?.is_some();
        match &self.port {
            Some(given) => {
                let port: u16 = given.parse().with_context(|| {
                    format!("--port {given:?} is not allowed: a whole number from 0 to 65535")
                })?;
                let instance = self.home.instance(port);
                let is_own = if own_runs {
                    self.is_own(port)
                } else {
                    instance.holder()?.is_none() && self.starts_at(port, None).unwrap_or(false)
                };
                if !is_own {
                    self.home = instance;
                }
            }
            None if own_runs => {}
            None => {
                if let [port] = self.home.running_instances()[..] {
                    self.home = self.home.instance(port);
                }
            }
        }
        Ok(self)
    }

    /// Whether `start --port` starts the home's own proxy, and none beside it.
    ///
    /// # Errors
    ///
    /// When the settings cannot be read.
    pub(super) fn starts_at(
        &self,
        port: u16,
        file: Option<PathBuf>,
    ) -> Result<bool, SettingsError> {
        let own = self.settings(file, Vec::new())?.config.gateway.proxy.port;
        Ok(port == 0 || port == own)
    }

    fn is_own(&self, port: u16) -> bool {
        let run = self.home.run_file().ok().flatten();
        run.is_some_and(|run| run.base_url.contains(&format!(":{port}/")))
    }

    /// The settings file of the process that runs in the home, else the home's.
    pub(crate) fn settings_file(&self) -> PathBuf {
        let is_held = matches!(self.home.holder(), Ok(Some(_)));
        let run = self.home.run_file().ok().flatten().filter(|_| is_held);
        let named = run.and_then(|run| run.settings);
        named.unwrap_or_else(|| self.home.config())
    }

    /// The settings of a file that need not be there yet.
    pub(crate) fn settings_of(&self, file: PathBuf) -> Result<Loaded, SettingsError> {
        load(Sources {
            file,
            file_asked: false,
            variables: self.environment.variables.clone(),
            flags: Vec::new(),
            profiles: self.home.auth_profiles(),
        })
    }

    pub(crate) fn demo(&self) -> Option<Home> {
        let demo = Home::at(self.environment.cache().join("demo-home"));
        (demo != self.home).then_some(demo)
    }

    /// Whether the settings name a model to relay to.
    ///
    /// # Errors
    ///
    /// When what they say of the policy model cannot be.
    pub(super) fn relays(&self, config: &Config) -> anyhow::Result<bool> {
        let policy = Policy::from_config(config, &self.environment.cache())?;
        Ok(policy.is_some() || config.has_upstream())
    }

    pub(crate) fn settings(
        &self,
        file: Option<PathBuf>,
        flags: Vec<(&'static str, String)>,
    ) -> Result<Loaded, SettingsError> {
        load(Sources {
            file_asked: file.is_some(),
            file: file.unwrap_or_else(|| self.home.config()),
            variables: self.environment.variables.clone(),
            flags,
            profiles: self.home.auth_profiles(),
        })
    }
}

/// Makes the runtime of a command that asks something on the way.
pub(crate) fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
