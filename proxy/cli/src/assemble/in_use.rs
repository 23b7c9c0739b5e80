//! The settings that the process uses. Agents are wired while it runs, so their upstreams come in later.

use std::{
    path::{Path, PathBuf},
    sync::Mutex,
};

use metaclaw_chat::lock;
use metaclaw_control::{costs::ModelPrices, instance::SettingsInUse, status::RunSummary};
use metaclaw_settings::{Config, Fingerprint, Policy};

use super::upstreams::model_prices;
use crate::banner;

#[derive(Debug)]
pub(super) struct UsedSettings {
    file: PathBuf,
    at_start: Config,
    policy: Policy,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    about: RunSummary,
    prices: ModelPrices,
    fingerprint: Fingerprint,
}

// === impl UsedSettings ===

impl UsedSettings {
    /// # Errors
    /// If a judge is configured that lacks what it needs.
    pub(super) fn new(config: &Config, policy: &Policy, file: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            now: Mutex::new(Now {
                about: banner::about(config, config, policy)?,
                prices: model_prices(config, policy),
                fingerprint: Fingerprint::of(file),
            }),
            file: file.to_owned(),
            at_start: config.clone(),
            policy: policy.clone(),
        })
    }

    /// Notes that chats go by the upstreams and agents of `config` from now on. Learning stays as it was at the start.
    pub(super) fn reroute(&self, config: &Config) -> anyhow::Result<()> {
        let mut chats = self.at_start.clone();
        chats.llm = config.llm.clone();
        chats.gateway.upstreams = config.gateway.upstreams.clone();
        chats.gateway.agents = config.gateway.agents.clone();
        let about = banner::about(&chats, &self.at_start, &self.policy)?;
        let mut now = lock(&self.now);
        now.about = about;
        now.prices = model_prices(&chats, &self.policy);
        now.fingerprint.routes = Fingerprint::of(&self.file).routes;
        Ok(())
    }
}

impl SettingsInUse for UsedSettings {
    fn about(&self) -> RunSummary {
        lock(&self.now).about.clone()
    }

    fn prices(&self) -> ModelPrices {
        lock(&self.now).prices.clone()
    }

    fn changed(&self) -> Option<PathBuf> {
        let now = Fingerprint::of(&self.file);
        (now != lock(&self.now).fingerprint).then(|| self.file.clone())
    }
}
