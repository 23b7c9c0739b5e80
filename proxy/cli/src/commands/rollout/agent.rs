//! `metaclaw rollout agent`: the program of a track, for one episode.

use std::ffi::OsString;

use clap::Args;
use metaclaw_llm::http_client;
use metaclaw_rollouts::tracks::{AgentSettings, Track};

use super::super::context::Context;
use crate::{out, roots};

/// Arguments of `rollout agent`.
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// One of terminal, toolcall, swe, gui (docs/training/tracks.md).
    #[arg(value_name = "TRACK")]
    track: Track,
}

// === impl AgentArgs ===

impl AgentArgs {
    /// Does it.
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let environment = &context.environment;
        let settings =
            AgentSettings::from_environment(|name| environment.get(name).map(OsString::from))?;
        let http = http_client(&roots::load())?;
        // The agents of all tracks make a large future.
        let agent = Box::pin(self.track.run_agent(&settings, http));
        let score = agent.await?;
        Ok(out::line(format!("score {}", score.score))?)
    }
}
