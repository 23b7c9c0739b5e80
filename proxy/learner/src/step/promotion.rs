//! A candidate is promoted: from then on it serves. Or it is declined, and what served before goes on.

use metaclaw_chat::{AgentId, now_ms};
use metaclaw_turns::{LogError, StepOutcome};

use super::{context::TrainingContext, gate_candidate, runner::StepRunner};
use crate::{
    gate::{GateReport, IN_A_ROW, LastDeclined, Series},
    lineage::Candidate,
    shared::Shared,
};

/// What became of a candidate.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Promotion {
    /// It serves; without a report where it was promoted before an earlier process ended.
    Serves(Option<GateReport>),
    /// The owner has chosen another adapter since its step began.
    ChosenOtherwise(GateReport),
    /// It is not fit to serve; what served before still does.
    Declined(GateReport),
    /// The training server does not let it be tested, and why.
    Untested(String),
}

/// Ends a step whose checkpoint is there: its candidate is promoted, and its turns are trained; or it is not, and they are as
/// they were.
///
/// The pointer is written first: if the process ends in between, the step is still open, and recovery writes both
/// again. The turns of a candidate that is declined are free: it is left where it is, and the next step starts from where it
/// did, in a lineage of its own, so that no lineage holds a turn twice.
pub(crate) async fn conclude(
    context: &mut TrainingContext,
    runner: &StepRunner,
    candidate: &Candidate,
) -> Result<Promotion, LogError> {
    let promotion = promote(context, runner, candidate).await?;
    let agent = &candidate.agent;
    let trained = |gate: Option<&GateReport>| StepOutcome::Trained {
        adapter: candidate.adapter.to_string(),
        checkpoint: candidate.checkpoint.to_string(),
        gate: gate
            .filter(|report| !report.tests.is_empty())
            .and_then(|report| serde_json::to_value(report).ok()),
    };
    let outcome = match &promotion {
        Promotion::Serves(report) => trained(report.as_ref()),
        Promotion::ChosenOtherwise(report) => trained(Some(report)),
        Promotion::Declined(report) => declined(&context.shared, candidate, report).await?,
        Promotion::Untested(why) => StepOutcome::Released { why: why.clone() },
    };
    context.finish(agent, candidate.n, outcome).await?;
    match &promotion {
        Promotion::Serves(_) | Promotion::ChosenOtherwise(_) => {}
        Promotion::Declined(_) => {
            // Nor does anything go on from it.
            let state = context.agent(agent);
            state.set_unfit(candidate.checkpoint.clone());
            give_up(&context.shared, agent).await?;
        }
        Promotion::Untested(why) => context.agent(agent).refused(why.clone(), now_ms()),
    }
    Ok(promotion)
}

async fn declined(
    shared: &Shared,
    candidate: &Candidate,
    report: &GateReport,
) -> Result<StepOutcome, LogError> {
    let agent = &candidate.agent;
    let funnel = shared.persist(|| shared.log.funnel(Some(agent))).await?;
    Ok(StepOutcome::Declined {
        adapter: candidate.adapter.to_string(),
        checkpoint: candidate.checkpoint.to_string(),
        why: report.why(),
        gate: serde_json::to_value(report).unwrap_or_default(),
        at_ms: now_ms(),
        n_judged: funnel.judged,
    })
}

/// Has a candidate serve, if it is fit to. No adapter that a step made comes to serve in another way.
pub(crate) async fn promote(
    context: &mut TrainingContext,
    runner: &StepRunner,
    candidate: &Candidate,
) -> Result<Promotion, LogError> {
    let Candidate { agent, adapter, .. } = candidate;
    if serves_already(&context.shared, candidate).await? {
        (context.shared.on_swap)(agent, Some(adapter));
        return Ok(Promotion::Serves(None));
    }
    let report = match gate_candidate::test(context, runner, candidate).await? {
        Ok(report) => report,
        Err(why) => {
            tracing::error!(%agent, %adapter, why, "the new adapter cannot be tested and does not serve: what served before goes on");
            return Ok(Promotion::Untested(why));
        }
    };
    if !report.passed() {
        let why = report.why();
        tracing::warn!(%agent, %adapter, why, "the new adapter is declined: what served before goes on");
        return Ok(Promotion::Declined(report));
    }
    let shared = &context.shared;
    if let Some(library) = &shared.library {
        // Before it serves: who answers first is told what it needs to be told.
        library.set_untold(adapter.as_str(), report.untold.iter().cloned());
    }
    let serve = || {
        let name = adapter.to_string();
        shared.log.serve_step(agent, name, candidate.choice_ms)
    };
    if !shared.persist(serve).await? {
        tracing::info!(%agent, %adapter, "this step ended after its owner chose another adapter: it is not served");
        return Ok(Promotion::ChosenOtherwise(report));
    }
    (shared.on_swap)(agent, Some(adapter));
    Ok(Promotion::Serves(Some(report)))
}

/// Whether an earlier process had promoted it and ended before the log said that its turns are trained. The owner's choice
/// is no promotion.
async fn serves_already(shared: &Shared, candidate: &Candidate) -> Result<bool, LogError> {
    let agent = &candidate.agent;
    let serving = shared.persist(|| shared.log.serving()).await?;
    let is_it =
        |(whose, name): &(AgentId, String)| whose == agent && name == candidate.adapter.as_str();
    if !serving.iter().any(is_it) {
        return Ok(false);
    }
    let choice = shared.persist(|| shared.log.choice(agent)).await?;
    Ok(choice.is_none())
}

/// Sets the samples aside that three adapters in a row were declined with. May be done twice: what is set aside already
/// stays so.
pub(crate) async fn give_up(shared: &Shared, agent: &AgentId) -> Result<(), LogError> {
    let steps = shared.persist(|| shared.log.steps(agent)).await?;
    let series = Series::of(&steps);
    let Some(LastDeclined {
        turns, test, why, ..
    }) = series.given_up()
    else {
        return Ok(());
    };
    tracing::warn!(%agent, why, n = turns.len(), "the gate declined {IN_A_ROW} adapters in a row: these turns are set aside, and the agent rests for a day or until there are new verdicts");
    for id in turns {
        shared
            .spend(
                *id,
                format!("declined by the gate {IN_A_ROW} times in a row: {test}"),
            )
            .await?;
    }
    Ok(())
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
