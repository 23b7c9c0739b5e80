//! `metaclaw rollout serve`: runs a file's program for runs on another machine.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::Context as _;
use clap::Args;
use metaclaw_rollouts::{KEY_VARIABLE, RolloutFile, ServeSetup, serve};

use super::super::context::Context;
use crate::{out, signals::Signals};

/// Arguments of `rollout serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Says which program is run, how long and how many at once. The tasks come from the run.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where it listens. An address that other machines can reach needs METACLAW_ENVIRONMENT_KEY, here and at the run.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:30100")]
    listen: SocketAddr,
    /// Run an environment of the Python package verifiers, in place of the file's program.
    #[arg(long, value_name = "NAME")]
    verifiers: Option<String>,
}

// === impl ServeArgs ===

impl ServeArgs {
    /// Does it.
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let file = RolloutFile::read(&self.file, self.verifiers.as_deref())?;
        let setup = ServeSetup {
            file: &file,
            address: self.listen,
            key: context.environment.get(KEY_VARIABLE).map(Into::into),
            metaclaw: std::env::current_exe().context("cannot tell where this program is")?,
            folder: context.home.rollouts().join("serve"),
        };
        let server = serve(&setup).await?;
        let mut signals = Signals::new()?;
        out::line(format!(
            "runs episodes at http://{}, {} at once, until Ctrl-C",
            server.address()?,
            file.at_once
        ))?;
        server.serve(async move { signals.next().await }).await?;
        Ok(())
    }
}
