//! A step as a transaction over two stores, with its states as types.
//!
//! ```text
//! Planned -> Taken -> Made -> Gated -> Serving | Declined | Released
//! ```
//!
//! The log takes the turns; the trainer goes from checkpoint n-1 to n ([`make`]); its adapter passes the gate and is
//! promoted, and the log notes the turns as trained ([`super::transaction`]). The checkpoint decides: whatever happens in
//! between, at the next look either it is there and the step is done, or it is not and the turns are as they were.
//!
//! A step whose checkpoint is there: its candidate passes the gate and serves, or is declined, and what served before goes
//! on.

use std::sync::Arc;

use metaclaw_chat::{AgentId, TurnId, now_ms};
use metaclaw_trainer_api::CheckpointName;
use metaclaw_turns::{LogError, Step, StepOutcome};
use tokio::time::Instant;

use super::{
    context::{StepSite, TrainingStep},
    fault::{Blame, StepRefusal, make},
    plan::{Plan, PlanError},
    train::{Attempt, Trained},
};
use crate::{
    batch::NoGroups,
    error::TrainError,
    gate::{self, AdapterTestError, GateReport, LastDeclined, Series},
    lineage::{BaseModel, Candidate, Numbers},
    methods::NotAnExample,
    metrics::StepRecord,
    sample::{Batch, ExcludeReason},
    shared::Shared,
    status::{Phase, StepReport},
};

#[derive(Debug)]
pub(crate) enum StepEnd {
    Made(Box<StepReport>),
    /// These of its turns are excluded; the others are free.
    SetAside(Vec<TurnId>),
    /// One of its samples is to be set aside, and which is not known: its halves tell.
    Halves,
    /// What it was to start from turned out to be of no use: another start is to be tried.
    Elsewhere,
}

/// The step is planned, and nothing is touched yet.
pub(crate) struct Planned(Arc<Plan>);

/// The log has written the step down, and its turns belong to it.
struct Taken(Arc<Plan>);

/// No checkpoint came of the step: its turns go back, but for those that are at fault.
struct Released {
    plan: Arc<Plan>,
    refusal: StepRefusal,
}

#[derive(derive_more::From)]
enum NotPlanned {
    /// The turns are excluded.
    SetAside(Vec<TurnId>, ExcludeReason),
    #[from]
    Failed(TrainError),
}

/// Makes a step of a batch that was sampled from `base`.
///
/// # Errors
/// [`TrainError`]; the turns are free then.
pub(crate) async fn run(
    site: StepSite<'_>,
    base: &BaseModel,
    batch: &Batch,
) -> Result<StepEnd, TrainError> {
    let began = Instant::now();
    let mut site = site;
    let plan = match planned(&mut site, base, batch).await {
        Ok(plan) => plan,
        Err(NotPlanned::SetAside(turns, why)) => return site.set_aside(turns, why).await,
        Err(NotPlanned::Failed(error)) => return Err(error),
    };
    let state = Planned(Arc::clone(&plan));
    let taken = TrainingStep { site, state }.take().await?;
    let (made, numbers) = match taken.make().await {
        Ok(made) => made,
        Err(released) => return released.end().await,
    };
    let (site, outcome) = made.test().await?.conclude().await?;
    site.prune().await?;
    let report = report(&plan, numbers, began);
    let (serves, gate) = match outcome {
        PromotionOutcome::Serving(gate) => (true, gate),
        PromotionOutcome::ChosenOtherwise(gate) | PromotionOutcome::Declined(gate) => {
            (false, Some(gate))
        }
        PromotionOutcome::Untested(why) => {
            site.shared.status.refused();
            return Err(TrainError::Refused { why });
        }
    };
    let report = StepReport {
        serves,
        gate,
        ..report
    };
    announce(&site, &report).await;
    Ok(StepEnd::Made(Box::new(report)))
}

async fn planned(
    site: &mut StepSite<'_>,
    base: &BaseModel,
    batch: &Batch,
) -> Result<Arc<Plan>, NotPlanned> {
    if !base.may_be(site.runner.base.as_deref()) {
        let turns = batch.turns().into_keys().collect();
        return Err(NotPlanned::SetAside(turns, ExcludeReason::OtherBase));
    }
    let start = site.start(base).await?;
    let plan = match Plan::new(site.agent, start, batch, &site.shared.config.rl) {
        Ok(plan) => plan,
        Err(PlanError::Groups(NoGroups::Example(NotAnExample { turns, error }))) => {
            tracing::error!(?turns, %error, "a sample cannot be trained on");
            return Err(NotPlanned::SetAside(turns, ExcludeReason::NoIds));
        }
        Err(error @ (PlanError::Groups(NoGroups::Config(_)) | PlanError::Name(_))) => {
            let why = error.to_string();
            return Err(TrainError::NotTaken { why }.into());
        }
    };
    tracing::Span::current()
        .record("lineage", &plan.point.lineage)
        .record("n", plan.n())
        .record("attempt", plan.attempt);
    site.runner.has(&plan.groups)?;
    Ok(plan.into())
}

// === impl TrainingStep<Planned> ===

impl<'a> TrainingStep<'a, Planned> {
    /// The first transaction: the log writes the step down, and takes its turns.
    async fn take(self) -> Result<TrainingStep<'a, Taken>, TrainError> {
        let Self { site, state } = self;
        let Planned(plan) = state;
        match site.take(&plan).await {
            Ok(()) => Ok(TrainingStep {
                site,
                state: Taken(plan),
            }),
            Err(error) => {
                // The log knows something that was not known where it starts.
                site.state.resume = None;
                Err(error)
            }
        }
    }
}

// === impl TrainingStep<Taken> ===

impl<'a> TrainingStep<'a, Taken> {
    async fn make(self) -> Result<(TrainingStep<'a, Made>, Numbers), TrainingStep<'a, Released>> {
        let Self { site, state } = self;
        let Taken(plan) = state;
        let phase = Phase::Stepping {
            agent: site.agent.clone(),
            n: plan.n(),
            since_ms: now_ms(),
        };
        let attempt = Attempt {
            runner: &site.runner,
            run: &mut site.state.run,
            plan: &plan,
            shared: site.shared,
        };
        match make(attempt, &site.shared.status, &phase).await {
            Ok(Trained { numbers, sha256 }) => {
                site.state.stepped(plan.after(), plan.shape.clone());
                let state = Made(plan.candidate(sha256));
                Ok((TrainingStep { site, state }, numbers))
            }
            Err(refusal) => {
                let state = Released { plan, refusal };
                Err(TrainingStep { site, state })
            }
        }
    }
}

// === impl TrainingStep<Released> ===

impl TrainingStep<'_, Released> {
    async fn end(self) -> Result<StepEnd, TrainError> {
        let Self { mut site, state } = self;
        let Released { plan, refusal } = state;
        let StepRefusal { blame, why } = refusal;
        tracing::warn!(why, ?blame, "the step is not made");
        let outcome = StepOutcome::Released { why: why.clone() };
        site.finish(plan.n(), outcome).await?;
        if site.state.run.save_asked {
            // It may be written yet: its name is not used again.
            site.state.resume = None;
        }
        let parent = plan.point.checkpoint.clone();
        match (blame, parent) {
            (Blame::Sample { turns, why }, _) => site.set_aside(turns, why).await,
            (Blame::SomeSample, _) => Ok(StepEnd::Halves),
            (Blame::Parent, Some(parent)) => Ok(site.starts_elsewhere(parent)),
            (Blame::ParentOrServer, Some(parent)) if site.state.was_refused() => {
                Ok(site.starts_elsewhere(parent))
            }
            (Blame::ParentsNumbers, Some(parent)) => {
                withdraw(site.shared, site.agent, parent.as_str(), &why).await?;
                Ok(site.starts_elsewhere(parent))
            }
            (Blame::Parent | Blame::ParentOrServer | Blame::ParentsNumbers | Blame::Server, _) => {
                site.state.refused(why.clone(), now_ms());
                site.shared.status.refused();
                Err(TrainError::Refused { why })
            }
        }
    }
}

// === impl StepSite ===

impl StepSite<'_> {
    async fn take(&self, plan: &Plan) -> Result<(), TrainError> {
        let shared = self.shared;
        match shared.log.take(plan.entry()).await {
            Ok(()) => Ok(()),
            Err(LogError::Broken { .. }) => {
                // It may have been written all the same.
                let open = shared.persist(|| shared.log.open_steps()).await?;
                let is_it =
                    |step: &Step| step.begun.agent == plan.agent && step.begun.hash == plan.hash;
                if open.iter().any(is_it) {
                    return Ok(());
                }
                let why = "the turn log failed while the step was written down".to_owned();
                Err(TrainError::NotTaken { why })
            }
            Err(LogError::NotTaken(error)) => Err(TrainError::NotTaken {
                why: error.to_string(),
            }),
            Err(error) => Err(error.into()),
        }
    }

    fn starts_elsewhere(&mut self, parent: CheckpointName) -> StepEnd {
        self.state.set_unfit(parent);
        StepEnd::Elsewhere
    }

    async fn set_aside(
        &mut self,
        turns: Vec<TurnId>,
        why: ExcludeReason,
    ) -> Result<StepEnd, TrainError> {
        for id in &turns {
            tracing::warn!(turn = %id, %why, "a turn is set aside");
            self.shared.spend(*id, why).await?;
            // One that was trained before stays so, and is not taken again.
            self.state.teacher.targets.set_aside(*id, why);
        }
        Ok(StepEnd::SetAside(turns))
    }
}

fn report(plan: &Plan, numbers: Numbers, began: Instant) -> StepReport {
    StepReport {
        agent: plan.agent.clone(),
        lineage: plan.point.lineage.clone(),
        n: plan.n(),
        step: plan.after().steps,
        adapter: plan.adapter.to_string(),
        n_redo: plan.n_distilled,
        n_binary_rl: plan.n_pushed,
        n_again: plan.n_again,
        n_turns: plan.turns.len(),
        mean_reward: plan.mean_reward,
        success_rate: plan.success_rate,
        numbers,
        batch: plan.stats.clone(),
        serves: false,
        gate: None,
        seconds: began.elapsed().as_secs_f64(),
        ended_ms: now_ms(),
    }
}

async fn announce(site: &StepSite<'_>, report: &StepReport) {
    site.shared.status.stepped(report);
    site.shared.recorder.record(StepRecord::new(report)).await;
    tracing::info!(
        adapter = report.adapter,
        turns = report.n_turns,
        loss = report.numbers.loss,
        seconds = report.seconds,
        serves = report.serves,
        "learned"
    );
}

/// The step's checkpoint is there, and nobody is served by its adapter yet.
pub(crate) struct Made(pub(crate) Candidate);

pub(crate) struct Gated {
    candidate: Candidate,
    verdict: GateVerdict,
}

enum GateVerdict {
    /// An earlier process promoted it, and ended before the log said that its turns are trained.
    ServesAlready,
    Tested(GateReport),
    /// The training server does not let it be tested, and why.
    Untested(String),
}

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
            site.shared.let_chats_go_first(site.agent).await;
            let run = &mut site.state.run;
            let test = gate::CandidateTest {
                shared: site.shared,
                runner: &site.runner,
                candidate: &candidate,
            };
            match test.run(site.gate, run).await {
                Ok(report) => GateVerdict::Tested(report),
                Err(AdapterTestError::Log(error)) => return Err(error),
                Err(error) => GateVerdict::Untested(error.to_string()),
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
        if !matches!(outcome, PromotionOutcome::Serving(_)) {
            site.runner.unload(&candidate.adapter).await;
        }
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
    Ok(StepOutcome::Declined {
        adapter: candidate.adapter.to_string(),
        checkpoint: candidate.checkpoint.to_string(),
        why: report.why(),
        gate: serde_json::to_value(report).unwrap_or_default(),
        at_ms: now_ms(),
        n_judged: shared.n_judged(agent).await?,
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
    if shared.serving(agent).await?.as_deref() != Some(candidate.adapter.as_str()) {
        return Ok(false);
    }
    let choice = shared.persist(|| shared.log.choice(agent)).await?;
    Ok(choice.is_none())
}

/// Sets the samples aside of the last step if the gate gave it up. May be done twice: what is set aside already stays so.
pub(crate) async fn give_up(shared: &Shared, agent: &AgentId) -> Result<(), LogError> {
    let steps = shared.steps(agent).await?;
    let series = Series::from_steps(&steps);
    let Some(LastDeclined {
        turns, test, why, ..
    }) = series.given_up()
    else {
        return Ok(());
    };
    tracing::warn!(%agent, why, n = turns.len(), in_a_row = series.n_declined, "the gate declined what was learned of these turns, and no lower rate is left to try: they are set aside, and the agent rests until there are new verdicts");
    for id in turns {
        let why = format!("declined by the gate: {test}");
        shared.spend(*id, why).await?;
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
    if shared.serving(agent).await?.as_deref() != Some(adapter) {
        return Ok(());
    }
    tracing::error!(%agent, adapter, why, "the adapter is withdrawn: the base model serves this agent until it has learned again");
    shared
        .persist(|| shared.log.set_serving(agent, None))
        .await?;
    (shared.on_swap)(agent, None);
    Ok(())
}
