//! How the parts of a home are opened where nothing runs.

use std::path::PathBuf;

use anyhow::ensure;
use futures_util::future::BoxFuture;
use metaclaw_control::instance::{IdleLearner, OpenParts};
use metaclaw_settings::{Loaded, Policy};
use metaclaw_skills::{Library, MemoryStore};
use metaclaw_turns::{TurnLog, TurnsConfig};
use rustix::fs::Mode;

use super::context::Context;
use crate::{
    agent::AgentLink,
    assemble::{self, StartPlan, idle_learner},
    out, roots,
};

/// The files of a home, opened as its settings say.
#[derive(Debug)]
pub(super) struct HomeFiles {
    context: Context,
}

// === impl HomeFiles ===

impl HomeFiles {
    pub(super) fn new(context: Context) -> Self {
        Self { context }
    }

    fn settings(&self) -> anyhow::Result<Loaded> {
        Ok(self.context.settings(None, Vec::new())?)
    }

    fn policy(&self, loaded: &Loaded) -> anyhow::Result<Policy> {
        let cache = self.context.environment.cache();
        Ok(Policy::from_config(&loaded.config, &cache)?)
    }

    fn plan(&self) -> anyhow::Result<StartPlan> {
        let Context {
            home, environment, ..
        } = &self.context;
        let loaded = self.settings()?;
        let policy = self.policy(&loaded)?;
        ensure!(
            policy.is_some(),
            "there is no policy model here: set trainer.model, or rl.remote_url"
        );
        let agent = AgentLink::new(home, environment, &loaded.config, &policy, false);
        // Nobody logs lines here: none can be dropped.
        let (lines, _) = tracing_appender::non_blocking(std::io::sink());
        Ok(StartPlan {
            config_name: home.config(),
            home: home.clone(),
            environment: environment.clone(),
            loaded,
            policy,
            agent,
            roots: roots::load(),
            listens_on_stdin: false,
            dropped_lines: lines.error_counter(),
        })
    }
}

impl OpenParts for HomeFiles {
    fn turns(&self) -> anyhow::Result<TurnsConfig> {
        Ok(self.settings()?.config.turns)
    }

    fn library(&self) -> anyhow::Result<Library> {
        let (library, warnings) = assemble::library(&self.settings()?, &self.context.home);
        for warning in warnings {
            out::aside(format!("warning: {warning}"));
        }
        Ok(library)
    }

    fn memory(&self) -> anyhow::Result<MemoryStore> {
        Ok(assemble::memory(&self.settings()?, &self.context.home))
    }

    fn checkpoints(&self) -> anyhow::Result<PathBuf> {
        let loaded = self.settings()?;
        Ok(assemble::checkpoint_dir(&loaded.config, &self.context.home))
    }

    fn is_gated(&self) -> anyhow::Result<bool> {
        Ok(self.settings()?.config.learner.gate.enabled)
    }

    fn step_figures(&self) -> anyhow::Result<PathBuf> {
        let loaded = self.settings()?;
        Ok(assemble::step_figures(&loaded.config, &self.context.home))
    }

    fn learner<'a>(&'a self, log: &'a TurnLog) -> BoxFuture<'a, anyhow::Result<IdleLearner>> {
        Box::pin(async move {
            let plan = self.plan()?;
            // What is made is for its owner alone, the weights that the trainer writes, too: it inherits this.
            rustix::process::umask(Mode::RWXG | Mode::RWXO);
            idle_learner(&plan, log).await
        })
    }
}
