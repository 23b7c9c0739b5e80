//! The learner over the files of a home where nothing runs, as some commands need it.

use anyhow::{Context as _, anyhow, ensure};
use rustix::fs::Mode;

use super::context::Context;
use crate::{
    agent::AgentLink,
    assemble::{Offline, Plan},
    config::Policy,
    roots,
};

/// Opens it with the settings of the home; `doing` is told to whoever wants the home meanwhile.
pub(super) async fn open(context: &Context, doing: &str) -> anyhow::Result<Offline> {
    let home = &context.home;
    ensure!(
        home.turns().exists(),
        "there is no log in {} yet",
        home.dir().display()
    );
    let loaded = context.settings(None, Vec::new())?;
    let rooms = loaded.rooms();
    rooms.map_err(|error| anyhow!(loaded.with_origin(&format!("{error:#}"))))?;
    let policy = Policy::from_config(&loaded.config, &context.environment.cache())?;
    ensure!(
        policy.is_some(),
        "there is no policy model here: set trainer.model, or rl.remote_url"
    );
    // What is made is for its owner alone, the weights that the trainer writes, too: it inherits this.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
    let lock = home.lock(doing).context("the home is in use")?;
    let agent = AgentLink::new(home, &context.environment, (&loaded.config, &policy), false);
    // Nobody logs lines here: none can be dropped.
    let (lines, _) = tracing_appender::non_blocking(std::io::sink());
    let plan = Plan {
        config_name: home.config(),
        home: home.clone(),
        environment: context.environment.clone(),
        loaded,
        policy,
        agent,
        roots: roots::load(),
        listens_on_stdin: false,
        dropped_lines: lines.error_counter(),
    };
    Offline::open(&plan, lock).await
}
