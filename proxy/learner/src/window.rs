//! Decides when learning may begin by itself.

use metaclaw_chat::{AgentId, now_ms};
use metaclaw_schedule::Window;
use metaclaw_turns::LogError;

use crate::{config::Mode, shared::Shared};

impl Shared {
    /// Returns whether the owner is away, as the log and the schedule know it now.
    pub(crate) async fn window(&self) -> Result<Window, LogError> {
        let last_main_ms = self.persist(|| self.log.last_main_ms()).await?;
        Ok(self.schedule.window(now_ms(), last_main_ms))
    }

    /// Returns whether learning that costs something (a judge model, an evolver, a step) may begin for an agent: in
    /// mode `rl` at any time, otherwise while its owner is away.
    pub(crate) async fn may_cost(&self, agent: &AgentId) -> Result<bool, LogError> {
        match self.config.mode_of(agent) {
            Mode::Rl => Ok(true),
            Mode::Auto | Mode::SkillsOnly => Ok(self.window().await?.is_open()),
        }
    }
}
