//! The agents of this machine, as the page finds and connects them.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;
use metaclaw_control::{
    agents::{AgentChange, AgentConnector, FoundAgent},
    home::origin,
};
use metaclaw_gateway::Upstreams;
use metaclaw_wiring::profile;

use super::{gateway, in_use::UsedSettings};
use crate::{
    commands::context::Context,
    connect::{self, goal::Goal},
    site::Site,
};

#[derive(Debug)]
pub(super) struct Connector {
    context: Context,
    /// The file of settings.
    file: PathBuf,
    /// The origin of the proxy.
    origin: String,
    upstreams: Arc<Upstreams>,
    settings: Arc<UsedSettings>,
}

// === impl Connector ===

impl Connector {
    pub(super) fn new(
        site: &Site,
        file: &Path,
        proxy: SocketAddr,
        upstreams: Arc<Upstreams>,
        settings: Arc<UsedSettings>,
    ) -> Self {
        Self {
            context: Context {
                environment: site.environment.clone(),
                home: site.home.clone(),
                port: None,
            },
            file: file.to_owned(),
            origin: origin(proxy),
            upstreams,
            settings,
        }
    }

    /// Reads the settings anew, because a command may have changed them.
    fn goal(&self) -> anyhow::Result<Goal> {
        Goal::of_file(&self.context, self.file.clone(), Some(self.origin.clone()))
    }

    fn reroute(&self, goal: &Goal) -> anyhow::Result<()> {
        let config = gateway::config(&goal.loaded.config, &goal.policy, &self.context.environment)?;
        self.upstreams.reroute(&config)?;
        self.settings.reroute(&goal.loaded.config)
    }
}

impl AgentConnector for Connector {
    fn agents(&self) -> anyhow::Result<Vec<FoundAgent>> {
        connect::agents(&self.goal()?)
    }

    fn change(&self, change: &AgentChange) -> anyhow::Result<String> {
        let mut goal = self.goal()?;
        let told = match change {
            AgentChange::Connect(id) => {
                let agent = profile(id);
                let agent =
                    agent.with_context(|| format!("{id:?} is no agent that MetaClaw knows"))?;
                connect::keep_known(&mut goal, agent)?;
                self.reroute(&goal)?;
                connect::connect(&goal, agent)?.into_iter().next()
            }
            AgentChange::Disconnect(id) => connect::disconnect(&self.context, id)?,
            AgentChange::Reroute => {
                self.reroute(&goal)?;
                None
            }
        };
        Ok(told.unwrap_or_else(|| "nothing was to be done".to_owned()))
    }
}
