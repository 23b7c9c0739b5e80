//! The log of turns, and who is in it.

use std::time::Duration;

use metaclaw_chat::{AgentId, now_ms};
use metaclaw_turns::TurnLog;

use super::{plan::StartPlan, retention};

/// Opens the log of the home.
pub(super) async fn open(plan: &StartPlan) -> anyhow::Result<TurnLog> {
    let folder = plan.home.turns();
    let config = plan.loaded.config.turns.clone();
    // Opening reads the disk.
    let log = tokio::task::spawn_blocking(move || TurnLog::open(&folder, &config)).await??;
    // The first reading is older than the first turn of this process, whose time is this clock's.
    retention::note(&log, Duration::ZERO, now_ms()).await;
    Ok(log)
}

/// The agents that are configured, or have spoken.
pub(super) async fn known_agents(plan: &StartPlan, log: &TurnLog) -> anyhow::Result<Vec<AgentId>> {
    let mut agents = log.agents().await?;
    let config = &plan.loaded.config;
    let configured = config.gateway.agents.keys();
    agents.extend(configured.cloned());
    let of_keys = config
        .gateway
        .proxy
        .keys
        .values()
        .flat_map(|key| &key.agents);
    agents.extend(of_keys.cloned());
    Ok(agents)
}
