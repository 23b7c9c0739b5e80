//! `metaclaw off|on`: relay only, at once and without a restart.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use metaclaw_chat::AgentId;
use metaclaw_gateway::RelayOnly;

use super::{context::Context, source::running};
use crate::{
    out,
    privacy::{self, SwitchChange},
};

/// Arguments of `off` and `on`.
#[derive(Debug, Args)]
pub(crate) struct SwitchArgs {
    /// Only this agent.
    #[arg(long)]
    agent: Option<AgentId>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

// === impl SwitchArgs ===

impl SwitchArgs {
    /// Does it: in the running process, and in the home for the next one.
    pub(super) async fn run(self, context: &Context, off: bool) -> anyhow::Result<ExitCode> {
        let change = SwitchChange {
            off,
            agent: self.agent,
        };
        let client = running(&context.home).await?;
        let runs = client.is_some();
        let now: RelayOnly = match client {
            Some(client) => client.ask("switch", &change).await?,
            None => in_home(context, &change)?,
        };
        if self.json {
            out::json(&now)?;
        } else {
            out::line(text(&change, &now, runs))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn in_home(context: &Context, change: &SwitchChange) -> anyhow::Result<RelayOnly> {
    let home = &context.home;
    let before = privacy::load_off(home);
    // Who switches everyone on, or off, need not know how it was.
    let before = match (&change.agent, before) {
        (None, Err(_)) => RelayOnly::default(),
        (_, before) => before?,
    };
    let now = change.applied(before)?;
    home.create()?;
    privacy::save_off(home, &now)
        .with_context(|| format!("cannot write {}", home.off().display()))?;
    Ok(now)
}

fn text(change: &SwitchChange, now: &RelayOnly, runs: bool) -> String {
    let since = if runs {
        ""
    } else {
        "; it holds from the next start on"
    };
    match privacy::told(now) {
        Some(told) => format!("{told}{since}"),
        None if runs && !change.off => {
            "on again; a session in which something was said meanwhile is not kept until it begins anew"
                .to_owned()
        }
        None => format!("on{since}"),
    }
}
