//! How a command has its operations done: by the running process, or in this one where nothing runs.

use std::sync::Arc;

use metaclaw_chat::AgentId;
use metaclaw_control::{
    caller::ControlCaller,
    client::ControlClient,
    instance::{Instance, LogOpening},
    operation::Operation,
    operations::turns::TurnsQuery,
};
use metaclaw_wiring::OPENCLAW;

use super::context::Context;
use crate::wires::{MAIN_AGENT, wires};

/// Who does what the command `doing` wants; where nothing runs, the files are opened when they are needed.
///
/// # Errors
/// Where a process has the home and does not say how it is asked.
pub(super) async fn caller(
    context: &Context,
    doing: &'static str,
) -> anyhow::Result<ControlCaller> {
    caller_opening(context, doing, LogOpening::Existing).await
}

/// The same, with another way to open the log.
///
/// # Errors
/// Where a process has the home and does not say how it is asked.
pub(super) async fn caller_opening(
    context: &Context,
    doing: &'static str,
    opening: LogOpening,
) -> anyhow::Result<ControlCaller> {
    Ok(match ControlClient::of_running(&context.home).await? {
        Some(client) => ControlCaller::Process(client),
        None => ControlCaller::Files(Arc::new(instance(context, doing, opening))),
    })
}

pub(super) fn instance(context: &Context, doing: &'static str, opening: LogOpening) -> Instance {
    let files = Arc::new(context.clone());
    Instance::of_files(context.home.clone(), doing, opening, files)
}

/// Has one operation done.
///
/// # Errors
/// Why it is not done.
pub(super) async fn call<O: Operation>(
    context: &Context,
    doing: &'static str,
    operation: O,
) -> anyhow::Result<O::Reply> {
    let caller = caller(context, doing).await?;
    let reply = caller.call(operation).await;
    caller.close().await;
    reply
}

/// The agent that a command is about: the one that is named, else the one that spoke last, so that nobody who has one
/// agent has to name it. Before anybody spoke: OpenClaw's, where that is pointed at us.
pub(super) async fn agent(context: &Context, named: Option<&AgentId>) -> anyhow::Result<AgentId> {
    if let Some(agent) = named {
        return Ok(agent.clone());
    }
    let first = match wires(&context.home).record(OPENCLAW) {
        Ok(Some(_)) => MAIN_AGENT.parse()?,
        _ => AgentId::default_agent(),
    };
    let caller = caller(context, "lessons").await?;
    if !caller.is_process() && !context.home.turns().exists() {
        return Ok(first);
    }
    let newest = TurnsQuery {
        limit: 1,
        ..TurnsQuery::default()
    };
    let turns = caller.call(newest).await;
    caller.close().await;
    let last = turns?.first().map(|turn| turn.agent.clone());
    Ok(last.unwrap_or(first))
}
