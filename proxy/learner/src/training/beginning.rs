//! Whether a step that is due may begin now, and what it waits for.

use std::sync::Arc;

use metaclaw_chat::now_ms;
use metaclaw_turns::{LogError, Step, StepOutcome};

use super::next::NextBatch;
use crate::{config::Mode, gate::Series, status::Phase};

// === impl NextBatch ===

impl NextBatch<'_> {
    /// Whether a step of an agent that is due may begin now; what it waits for is shown.
    pub(super) async fn may_begin(&mut self) -> Result<bool, LogError> {
        let (agent, shared) = (self.agent, Arc::clone(&self.context.shared));
        if (shared.is_off)(agent) || shared.config.mode_of(agent) == Mode::SkillsOnly {
            return Ok(false);
        }
        let waits_for = if self.has_made_all().await? {
            Some(Phase::Finished {
                agent: agent.clone(),
                n_steps: shared.config.rl.max_steps,
            })
        } else if let Some(phase) = self.resting().await? {
            Some(phase)
        } else if shared.trains_when_asked(agent) {
            // Nothing tests what would serve, or the owner wants to decide: somebody has to ask for it.
            Some(Phase::AwaitingRequest)
        } else if shared.may_cost(agent).await? {
            None
        } else {
            Some(Phase::AwaitingWindow)
        };
        let may = waits_for.is_none();
        if let Some(phase) = waits_for {
            self.context.shared.status.waits_for(phase);
        }
        Ok(may)
    }

    /// Whether an agent has made as many steps as `rl.max_steps` gives it. Those that the gate declined are in no weights.
    pub(super) async fn has_made_all(&self) -> Result<bool, LogError> {
        let shared = &self.context.shared;
        let most = shared.config.rl.max_steps;
        if most == 0 {
            return Ok(false);
        }
        let steps = shared.persist(|| shared.log.steps(self.agent)).await?;
        let is_made = |step: &&Step| matches!(step.outcome, Some(StepOutcome::Trained { .. }));
        Ok(steps.iter().filter(is_made).count() as u64 >= most)
    }

    /// Whether no step of an agent is made for a while: the training server refused one, or the gate declined several adapters in
    /// a row.
    async fn resting(&mut self) -> Result<Option<Phase>, LogError> {
        let agent = self.agent;
        let rests = |why: &str, until_ms| Phase::Resting {
            agent: agent.clone(),
            why: why.to_owned(),
            until_ms,
        };
        if let Some(rest) = self.context.agent(agent).resting() {
            return Ok(Some(rests(&rest.why, rest.until_ms)));
        }
        let shared = &self.context.shared;
        let series = Series::of(&shared.persist(|| shared.log.steps(agent)).await?);
        let Some(last) = series.given_up() else {
            return Ok(None);
        };
        let funnel = shared.persist(|| shared.log.funnel(Some(agent))).await?;
        let until_ms = series.rests_until(now_ms(), funnel.judged);
        Ok(until_ms.map(|until_ms| rests(&last.why, until_ms)))
    }
}
