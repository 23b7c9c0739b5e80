//! What learns, where nothing runs: for commands that look at weights or train some, beside no chat.
//!
//! The log is this process's alone meanwhile, and the policy server is the configured one, or our own, started for as long
//! as this takes. No task of the loop runs: nothing is judged, trained or served but what is asked for.

use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use metaclaw_control::{instance::IdleLearner, status::TrainerState, token_budget::TokenBudget};
use metaclaw_gateway::Serving;
use metaclaw_learner::{Learner, Parts};
use metaclaw_schedule::{Schedule, SchedulerConfig};
use metaclaw_turns::TurnLog;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    advantages::advantages, compare, external_teacher::external_teacher, learner, lessons,
    plan::StartPlan, trainer::TrainingSide,
};

/// Makes a learner over `log`, and waits until the policy server answers.
///
/// # Errors
/// Where there is no policy model, or what is needed of it is not allowed or does not start.
pub(crate) async fn idle_learner(plan: &StartPlan, log: &TurnLog) -> anyhow::Result<IdleLearner> {
    ensure!(
        plan.policy.may_train(&plan.loaded.config),
        "the policy server is not on this machine: `metaclaw config privacy.cloud_training_ok true` lets texts go there"
    );
    let training = TrainingSide::new(plan, &Serving::new(|_: &str| ()))?;
    let made = IdleLearner {
        learner: learner_of(plan, &training, log).await?,
        replays: learner::replays(plan),
        tasks: TaskTracker::new(),
        ending: CancellationToken::new(),
    };
    if let Some(supervisor) = training.supervisor {
        made.tasks.spawn(supervisor.run(made.ending.clone()));
    }
    if let Some(state) = training.state
        && let Err(error) = ready(state).await
    {
        made.end().await;
        return Err(error);
    }
    Ok(made)
}

/// A learner of the settings, with the judge and the wishes that the running one would have.
async fn learner_of(
    plan: &StartPlan,
    training: &TrainingSide,
    log: &TurnLog,
) -> anyhow::Result<Learner> {
    let config = plan.loaded.config.learner.clone();
    let budget = plan.loaded.config.budget.clone();
    let budget = Arc::new(TokenBudget::open(budget, plan.home.spend(), log.clone()));
    let address = compare::policy_address(plan, training);
    let (judge, ..) = learner::judge(plan, &config, &budget, address)?;
    let external_teacher = external_teacher(plan, &config)?;
    let agents = log.agents().await?;
    let (library, _) = lessons::open(&plan.loaded, &plan.home, agents).await?;
    let wishes = &plan.loaded.config.wishes;
    let parts = Parts {
        config,
        log: log.clone(),
        backend: training.backend.clone(),
        judge,
        // Nobody says anything to it.
        listener: None,
        external_teacher,
        advantages: advantages(plan)?,
        schedule: Schedule::local(SchedulerConfig::default(), None),
        library: Some(library).filter(|_| wishes.enabled),
        memory: None,
        is_off: Arc::new(|_| false),
        evolver: None,
        recorder: learner::recorder(plan),
        folder: Some(plan.home.learning()),
        on_swap: Arc::new(|_, _| ()),
    };
    Ok(Learner::offline(parts))
}

/// Waits for our own trainer; one that does not start is not tried for ever.
async fn ready(mut state: watch::Receiver<TrainerState>) -> anyhow::Result<()> {
    let is_settled = |state: &TrainerState| !matches!(state, TrainerState::Starting);
    let settled = state.wait_for(is_settled).await;
    match &*settled.context("the trainer is gone")? {
        TrainerState::Ready { .. } => Ok(()),
        TrainerState::Down { reason } => bail!("the trainer does not start: {reason}"),
        TrainerState::Starting | TrainerState::Ended => bail!("the trainer ended"),
    }
}
