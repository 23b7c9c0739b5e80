//! A step whose checkpoint is there: its candidate passes the gate and serves, or is declined, and what served before goes
//! on.

use metaclaw_chat::{AgentId, now_ms};
use metaclaw_turns::{LogError, StepOutcome};

use super::agent::{StepSite, TrainingStep};
use crate::{
    gate::{self, GateReport, IN_A_ROW, LastDeclined, Series},
    lineage::Candidate,
    shared::Shared,
};

/// The step's checkpoint is there, and nobody is served by its adapter yet.
pub(crate) struct Made(pub(crate) Candidate);

/// The gate has looked at the step's adapter.
pub(crate) struct Gated {
    candidate: Candidate,
    verdict: GateVerdict,
}

/// What the gate says of a candidate.
enum GateVerdict {
    /// An earlier process promoted it, and ended before the log said that its turns are trained.
    ServesAlready,
    Tested(GateReport),
    /// The training server does not let it be tested, and why.
    Untested(String),
}

/// How a step ended whose checkpoint is there.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PromotionOutcome {
    /// Its adapter serves; without a report where it was promoted before an earlier process ended.
    Serving(Option<GateReport>),
    /// The owner has chosen another adapter since the step began.
    ChosenOtherwise(GateReport),
    /// Its adapter is not fit to serve; what served before still does.
    Declined(GateReport),
    /// The training server does not let its adapter be tested, and why: the step is released.
    Untested(String),
}

// === impl TrainingStep<Made> ===

impl<'a> TrainingStep<'a, Made> {
    /// Has the candidate tested, unless it serves already.
    pub(crate) async fn test(self) -> Result<TrainingStep<'a, Gated>, LogError> {
        let Self { site, state } = self;
        let Made(candidate) = state;
        let verdict = if serves_already(site.shared, &candidate).await? {
            GateVerdict::ServesAlready
        } else {
            let run = &mut site.state.run;
            let test = gate::CandidateTest {
                shared: site.shared,
                runner: &site.runner,
                candidate: &candidate,
            };
            match test.run(site.gate, run).await? {
                Ok(report) => GateVerdict::Tested(report),
                Err(why) => GateVerdict::Untested(why),
            }
        };
        let state = Gated { candidate, verdict };
        Ok(TrainingStep { site, state })
    }
}

// === impl TrainingStep<Gated> ===

impl<'a> TrainingStep<'a, Gated> {
    /// Ends the step: its candidate is promoted, and its turns are trained; or it is not, and they are as they were.
    ///
    /// The pointer is written first: if the process ends in between, the step is still open, and recovery writes both
    /// again. The turns of a candidate that is declined are free: it is left where it is, and the next step starts from
    /// where it did, in a lineage of its own, so that no lineage holds a turn twice.
    pub(crate) async fn conclude(self) -> Result<(StepSite<'a>, PromotionOutcome), LogError> {
        let Self { site, state } = self;
        let Gated { candidate, verdict } = state;
        let outcome = promote(site.shared, &candidate, verdict).await?;
        let trained = |gate: Option<&GateReport>| StepOutcome::Trained {
            adapter: candidate.adapter.to_string(),
            checkpoint: candidate.checkpoint.to_string(),
            gate: gate
                .filter(|report| !report.tests.is_empty())
                .and_then(|report| serde_json::to_value(report).ok()),
        };
        let noted = match &outcome {
            PromotionOutcome::Serving(report) => trained(report.as_ref()),
            PromotionOutcome::ChosenOtherwise(report) => trained(Some(report)),
            PromotionOutcome::Declined(report) => declined(site.shared, &candidate, report).await?,
            PromotionOutcome::Untested(why) => StepOutcome::Released { why: why.clone() },
        };
        site.finish(candidate.n, noted).await?;
        match &outcome {
            PromotionOutcome::Serving(_) | PromotionOutcome::ChosenOtherwise(_) => {}
            PromotionOutcome::Declined(_) => {
                // Nor does anything go on from it.
                site.state.set_unfit(candidate.checkpoint);
                give_up(site.shared, site.agent).await?;
            }
            PromotionOutcome::Untested(why) => site.state.refused(why.clone(), now_ms()),
        }
        Ok((site, outcome))
    }
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
async fn promote(
    shared: &Shared,
    candidate: &Candidate,
    verdict: GateVerdict,
) -> Result<PromotionOutcome, LogError> {
    let Candidate { agent, adapter, .. } = candidate;
    let report = match verdict {
        GateVerdict::ServesAlready => {
            (shared.on_swap)(agent, Some(adapter));
            return Ok(PromotionOutcome::Serving(None));
        }
        GateVerdict::Tested(report) => report,
        GateVerdict::Untested(why) => {
            tracing::error!(%agent, %adapter, why, "the new adapter cannot be tested and does not serve: what served before goes on");
            return Ok(PromotionOutcome::Untested(why));
        }
    };
    if !report.passed() {
        let why = report.why();
        tracing::warn!(%agent, %adapter, why, "the new adapter is declined: what served before goes on");
        return Ok(PromotionOutcome::Declined(report));
    }
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
        return Ok(PromotionOutcome::ChosenOtherwise(report));
    }
    (shared.on_swap)(agent, Some(adapter));
    Ok(PromotionOutcome::Serving(Some(report)))
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
