//! `metaclaw off|on`: relay only, at once and without a restart.

use clap::Args;
use metaclaw_chat::AgentId;
use metaclaw_control::privacy::{self, SwitchChange};
use metaclaw_gateway::RelayOnly;

use super::{calling::caller, context::Context};
use crate::out;

/// Arguments of `off` and `on`.
#[derive(Debug, Args)]
pub(crate) struct SwitchArgs {
    /// Only for this agent.
    #[arg(long)]
    agent: Option<AgentId>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

// === impl SwitchArgs ===

impl SwitchArgs {
    /// Does it: in the running process, and in the home for the next one.
    pub(super) async fn run(self, context: &Context, off: bool) -> anyhow::Result<()> {
        let change = SwitchChange {
            off,
            agent: self.agent,
        };
        let caller = caller(context, "off").await?;
        let now = caller.call(change.clone()).await?;
        let runs = caller.is_process();
        Ok(out::answer(&now, self.json, |now| {
            text(&change, now, runs)
        })?)
    }
}

fn text(change: &SwitchChange, now: &RelayOnly, runs: bool) -> String {
    let since = if runs {
        ""
    } else {
        "; it holds from the next start on"
    };
    match privacy::off_text(now) {
        Some(told) => format!("{told}{since}"),
        None if runs && !change.off => {
            "on again; a session in which something was said meanwhile is not kept until it begins anew"
                .to_owned()
        }
        None => format!("on{since}"),
    }
}
