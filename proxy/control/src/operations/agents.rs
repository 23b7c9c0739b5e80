//! Operations on the agents of this machine: which there are, and which of them ask the proxy.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use crate::{
    agents::{AgentChange, FoundAgent},
    instance::Instance,
    operation::{Operation, OperationFailure},
};

/// The agents that are found on this machine.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct ListAgents;

#[async_trait]
impl Operation for ListAgents {
    const PATH: &'static str = "agents";
    type Reply = Vec<FoundAgent>;

    async fn perform(self, instance: &Instance) -> Result<Vec<FoundAgent>, OperationFailure> {
        let agents = Arc::clone(&instance.process()?.gateway.agents);
        Ok(spawn_blocking(move || agents.agents()).await??)
    }
}

#[async_trait]
impl Operation for AgentChange {
    const PATH: &'static str = "agent";
    const SHOWN_BY: Option<&'static str> = Some("metaclaw wire");
    type Reply = String;

    async fn perform(self, instance: &Instance) -> Result<String, OperationFailure> {
        let agents = Arc::clone(&instance.process()?.gateway.agents);
        Ok(spawn_blocking(move || agents.change(&self)).await??)
    }
}
