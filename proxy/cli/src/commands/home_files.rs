//! How the parts of a home are opened where nothing runs.

use anyhow::ensure;
use futures_util::future::BoxFuture;
use metaclaw_control::instance::{FileSettings, IdleLearner, OpenParts};
use metaclaw_settings::{Config, Policy};
use metaclaw_skills::{Library, MemoryStore};
use metaclaw_turns::TurnLog;
use rustix::fs::Mode;

use super::context::Context;
use crate::{
    asked::judges_complaints,
    assemble::{self, idle_learner},
    out,
    site::Site,
};

fn config(context: &Context) -> anyhow::Result<Config> {
    Ok(context.settings(None, Vec::new())?.config)
}

impl OpenParts for Context {
    fn settings(&self) -> anyhow::Result<FileSettings> {
        let (config, home) = (config(self)?, &self.home);
        // Without a policy model that can be used, only what its turns cost is not known.
        let policy = Policy::from_config(&config, &self.environment.cache());
        let policy = policy.unwrap_or(Policy::None);
        Ok(FileSettings {
            checkpoints: assemble::checkpoint_dir(&config, home),
            is_gated: config.learner.gate.enabled,
            step_figures: assemble::step_figures(&config, home),
            prices: assemble::model_prices(&config, &policy),
            judges_complaints: judges_complaints(&config, &policy),
            turns: config.turns,
        })
    }

    fn library(&self) -> anyhow::Result<Library> {
        let (library, warnings) = assemble::library(&config(self)?, &self.home);
        for warning in warnings {
            out::aside(format!("warning: {warning}"));
        }
        Ok(library)
    }

    fn memory(&self) -> anyhow::Result<MemoryStore> {
        Ok(assemble::memory(&config(self)?, &self.home))
    }

    fn learner<'a>(&'a self, log: &'a TurnLog) -> BoxFuture<'a, anyhow::Result<IdleLearner>> {
        Box::pin(async move {
            let Self {
                home, environment, ..
            } = self;
            let config = config(self)?;
            let policy = Policy::from_config(&config, &environment.cache())?;
            ensure!(
                policy.is_some(),
                "there is no policy model here: set trainer.model, or rl.remote_url"
            );
            let site = Site::new(home.clone(), environment.clone());
            // What is made is for its owner alone, the weights that the trainer writes, too: it inherits this.
            rustix::process::umask(Mode::RWXG | Mode::RWXO);
            idle_learner(&config, &policy, &site, log).await
        })
    }
}
