//! What learns, where nothing runs: for commands that look at weights or train some, beside no chat.
//!
//! The log is this process's alone meanwhile, and the policy server is the configured one, or our own, started for as long
//! as this takes. No task of the loop runs: nothing is judged, trained or served but what is asked for.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, bail, ensure};
use metaclaw_gateway::Serving;
use metaclaw_learner::{Learner, Parts};
use metaclaw_schedule::{Schedule, SchedulerConfig};
use metaclaw_turns::TurnLog;
use tokio::{sync::watch, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    compare, external_teacher::external_teacher, learner, lessons, plan::Plan, purse::Purse,
    trainer::TrainingSide, turn_log,
};
use crate::{home::HomeLock, replays::Replays, supervise::TrainerState};

/// How long a trainer may take to end.
const GRACE: Duration = Duration::from_secs(20);

/// A learner without its tasks.
pub(crate) struct Offline {
    pub(crate) learner: Learner,
    pub(crate) replays: Replays,
    log: TurnLog,
    tasks: TaskTracker,
    ending: CancellationToken,
    /// Of the home: nobody else may have its files meanwhile.
    _lock: HomeLock,
}

// === impl Offline ===

impl Offline {
    /// Opens the log, and waits until the policy server answers.
    ///
    /// # Errors
    /// Where there is no policy model, or what is needed of it is not allowed or does not start.
    pub(crate) async fn open(plan: &Plan, lock: HomeLock) -> anyhow::Result<Self> {
        ensure!(
            plan.policy.may_train(&plan.loaded.config),
            "the policy server is not on this machine: `metaclaw config privacy.cloud_training_ok true` lets texts go there"
        );
        let (tasks, ending) = (TaskTracker::new(), CancellationToken::new());
        let training = TrainingSide::new(plan, &Serving::new(|_: &str| ()))?;
        let log = turn_log::open(plan).await?;
        let learner = learner_of(plan, &training, &log).await?;
        let offline = Self {
            learner,
            replays: learner::replays(plan),
            log,
            ending: ending.clone(),
            tasks,
            _lock: lock,
        };
        if let Some(supervisor) = training.supervisor {
            offline.tasks.spawn(supervisor.run(ending));
        }
        if let Some(state) = training.state
            && let Err(error) = ready(state).await
        {
            offline.close().await;
            return Err(error);
        }
        Ok(offline)
    }

    /// Ends the trainer that was started, and lets go of the files.
    pub(crate) async fn close(self) {
        self.ending.cancel();
        self.tasks.close();
        // One that does not end is killed with us: its standard input closes.
        timeout(GRACE, self.tasks.wait()).await.ok();
        self.log.close().await;
    }
}

/// A learner of the settings, with the judge and the wishes that the running one would have.
async fn learner_of(
    plan: &Plan,
    training: &TrainingSide,
    log: &TurnLog,
) -> anyhow::Result<Learner> {
    let config = plan.loaded.config.learner.clone();
    let budget = plan.loaded.config.budget.clone();
    let purse = Arc::new(Purse::open(budget, plan.home.spend(), log.clone()));
    let address = compare::policy_address(plan, training);
    let (judge, ..) = learner::judge(plan, &config, &purse, address)?;
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
        schedule: Schedule::local(SchedulerConfig::default(), None),
        library: Some(library).filter(|_| wishes.enabled),
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
