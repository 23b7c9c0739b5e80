//! What a run of rollouts asks of this program: training steps, turns, a judge.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use metaclaw_chat::{AgentId, Message, Secret};
use metaclaw_control::{
    caller::ControlCaller,
    operations::{turns::GetTurn, weights::TrainStep},
};
use metaclaw_llm::{AskParams, ChatClient, LlmConfig};
use metaclaw_rollouts::{EpisodeTurn, JudgeSource, RewardSource, RunHost, TrainedStep};

use super::super::{context::Context, train_step::came_to};
use crate::{asked::first_voter, roots};

/// How long one training step may take: it may wait for a gate that runs held-out tasks.
const STEP_DEADLINE: Duration = Duration::from_secs(4 * 3_600);

#[derive(Debug)]
pub(super) struct CliHost<'a> {
    pub(super) context: &'a Context,
    pub(super) caller: &'a ControlCaller,
}

#[async_trait::async_trait(?Send)]
impl RunHost for CliHost<'_> {
    async fn train(&self, agent: &AgentId) -> anyhow::Result<TrainedStep> {
        let steps = self
            .caller
            .call_within(TrainStep(Some(agent.clone())), STEP_DEADLINE)
            .await?;
        let n_turns = steps.iter().map(|step| step.n_turns).sum();
        let lines: Vec<String> = steps.iter().map(came_to).collect();
        Ok(TrainedStep {
            n_turns,
            line: if lines.is_empty() {
                "the learner found nothing to train on: `metaclaw status` shows how far turns got"
                    .to_owned()
            } else {
                format!("trained on {n_turns} turns: {}", lines.join("; "))
            },
        })
    }

    async fn turns(&self, ids: &[String]) -> anyhow::Result<Vec<EpisodeTurn>> {
        let mut turns = Vec::new();
        for id in ids {
            let turn = self.caller.call(GetTurn(id.parse()?)).await?;
            let turn = turn.with_context(|| format!("there is no turn {id} in the log"))?;
            turns.push(EpisodeTurn {
                id: id.clone(),
                messages: turn.request.messages,
                new_from: turn.new_from,
                reply: turn.reply,
            });
        }
        Ok(turns)
    }

    async fn ask_judge(
        &self,
        source: &RewardSource,
        messages: Vec<Message>,
    ) -> anyhow::Result<String> {
        let http = roots::http_client()?;
        let model = if let RewardSource::JudgeModel(judge) = source {
            self.judge(judge)?
        } else {
            first_voter(&self.context.settings(None, Vec::new())?.config)?
        };
        let client = ChatClient::new(model, http)?;
        let params = AskParams {
            temperature: Some(0.0),
            ..AskParams::default()
        };
        Ok(client.ask(&messages, params).await?.text)
    }

    fn variable(&self, name: &str) -> Option<String> {
        self.context.environment.get(name).map(str::to_owned)
    }
}

impl CliHost<'_> {
    fn judge(&self, judge: &JudgeSource) -> anyhow::Result<LlmConfig> {
        let key = judge
            .key_env
            .as_deref()
            .and_then(|name| self.variable(name));
        ensure!(
            judge.key_env.is_none() || key.is_some(),
            "the variable {} is not set, which reward.judge.key_env names",
            judge.key_env.as_deref().unwrap_or_default()
        );
        Ok(LlmConfig {
            url: judge.base_url.to_string(),
            model: judge.model.clone(),
            key: key.map(Secret::from),
            timeout: judge.timeout,
            ..LlmConfig::default()
        })
    }
}
