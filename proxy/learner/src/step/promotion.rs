//! A candidate is promoted: from then on it serves.

use metaclaw_chat::AgentId;
use metaclaw_turns::{LogError, StepOutcome};

use super::{candidate::Candidate, context::TrainingContext, runner::StepRunner};
use crate::shared::Shared;

/// What became of a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Promotion {
    /// It serves.
    Serves,
    /// The owner has chosen another adapter since its step began.
    ChosenOtherwise,
    /// It is not fit to serve; what served before still does.
    Declined,
}

/// Ends a step whose checkpoint is there: its candidate is promoted, and its turns are trained.
///
/// The pointer is written first: if the process ends in between, the step is still open, and recovery writes both
/// again.
pub(crate) async fn conclude(
    context: &mut TrainingContext,
    runner: &StepRunner,
    candidate: &Candidate,
) -> Result<(), LogError> {
    let promotion = promote(&context.shared, runner, candidate).await?;
    let outcome = StepOutcome::Trained {
        adapter: candidate.adapter.to_string(),
        checkpoint: candidate.checkpoint.to_string(),
    };
    context
        .finish(&candidate.agent, candidate.n, outcome)
        .await?;
    if promotion == Promotion::Declined {
        // Nor does anything go on from it.
        let state = context.agent(&candidate.agent);
        state.set_unfit(candidate.checkpoint.clone());
    }
    Ok(())
}

/// Has a candidate serve, if it is fit to. No adapter that a step made comes to serve in another way.
pub(crate) async fn promote(
    shared: &Shared,
    runner: &StepRunner,
    candidate: &Candidate,
) -> Result<Promotion, LogError> {
    let Candidate { agent, adapter, .. } = candidate;
    if let Some(why) = runner.try_adapter(candidate).await {
        tracing::error!(%agent, %adapter, why, "the new adapter is not fit to serve: what served before goes on");
        return Ok(Promotion::Declined);
    }
    let serve = || {
        let name = adapter.to_string();
        shared.log.serve_step(agent, name, candidate.choice_ms)
    };
    if !shared.persist(serve).await? {
        tracing::info!(%agent, %adapter, "this step ended after its owner chose another adapter: it is not served");
        return Ok(Promotion::ChosenOtherwise);
    }
    (shared.on_swap)(agent, Some(adapter));
    Ok(Promotion::Serves)
}

/// Takes an adapter back that turns out not to be fit to serve, if it does: the base model serves its agent.
pub(crate) async fn withdraw(
    shared: &Shared,
    agent: &AgentId,
    adapter: &str,
    why: &str,
) -> Result<(), LogError> {
    let serving = shared.persist(|| shared.log.serving()).await?;
    let serves = |(whose, name): &(AgentId, String)| whose == agent && name == adapter;
    if !serving.iter().any(serves) {
        return Ok(());
    }
    tracing::error!(%agent, adapter, why, "the adapter is withdrawn: the base model serves this agent until it has learned again");
    shared
        .persist(|| shared.log.set_serving(agent, None))
        .await?;
    (shared.on_swap)(agent, None);
    Ok(())
}
