//! What learns beside the chat, and what the banner says of it.

use std::sync::Arc;

use metaclaw_chat::Secret;
use metaclaw_gateway::{Privacy, Serving};
use metaclaw_learner::{Learner, LearnerConfig};
use metaclaw_llm::ChatClient;
use metaclaw_schedule::Schedule;
use metaclaw_skills::Library;
use metaclaw_turns::TurnLog;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    compare, evolver, external_teacher::external_teacher, learner, listener::listener, plan::Plan,
    purse::Purse, schedule, trainer, trainer::TrainingSide,
};
use crate::banner::{About, JudgedWith};

/// What learns, and what is told of it.
pub(super) struct Learning {
    pub(super) learner: Learner,
    /// The judge's model, where one is asked.
    pub(super) judge: Option<ChatClient>,
    pub(super) about: About,
    pub(super) schedule: Schedule,
    pub(super) trains: bool,
}

// === impl Learning ===

impl Learning {
    /// Starts the loop behind the chat.
    pub(super) async fn start(
        plan: &Plan,
        (log, library, purse): (&TurnLog, &Library, &Arc<Purse>),
        (training, serving, privacy): (&TrainingSide, &Arc<Serving>, &Arc<Privacy>),
        (tasks, background): (&TaskTracker, &CancellationToken),
    ) -> anyhow::Result<Self> {
        let settings = plan.loaded.config.learner.clone();
        let address = compare::policy_address(plan, training);
        let (judge, judged_with, judge_model) = learner::judge(plan, &settings, purse, address)?;
        let address = compare::policy_address(plan, training);
        let heard_by = listener(plan, (&judge, &settings.judge), purse, address)?;
        let (listener, heard_with) = heard_by.unzip();
        let raters = learner::Raters {
            judge,
            listener,
            // Where no weights learn nothing is asked.
            external_teacher: if settings.learns() {
                external_teacher(plan, &settings)?
            } else {
                None
            },
        };
        let may_train = plan.policy.may_train(&plan.loaded.config);
        let trains = training.backend.is_some() && settings.learns() && may_train;
        if let Some(backend) = training.backend.as_ref().filter(|_| trains) {
            trainer::refuse_forks(&plan.policy, backend.as_ref()).await?;
        }
        let wishes = &plan.loaded.config.wishes;
        let (evolver, written_with) = evolver::evolver(plan, purse)?.unzip();
        let uses = (trains, wishes.enabled);
        let mut about = about(plan, &settings, judged_with, uses, written_with);
        about.leaves.push_str(&heard_with.unwrap_or_default());
        let schedule = schedule::start(plan, log, (tasks, background)).await?;
        let learner = learner::start(
            (settings, schedule.clone()),
            (
                raters,
                Some(library.clone()).filter(|_| wishes.enabled),
                evolver.map(|evolver| (library.clone(), evolver)),
            ),
            (log, learner::recorder(plan), plan.home.learning()),
            training.backend.clone().filter(|_| may_train),
            (serving, privacy),
            (tasks, background),
        )
        .await?;
        Ok(Self {
            learner,
            judge: judge_model,
            about,
            schedule,
            trains,
        })
    }
}

/// What the banner says.
fn about(
    plan: &Plan,
    settings: &LearnerConfig,
    judged_with: JudgedWith,
    (trains, hears): (bool, bool),
    written_with: Option<String>,
) -> About {
    let is_used = trains || written_with.is_some();
    let judged_with = match judged_with {
        JudgedWith::Model { model, url } if !is_used && hears => JudgedWith::Hears { model, url },
        JudgedWith::Model { .. } | JudgedWith::Base if !is_used => JudgedWith::Unused,
        judged_with => judged_with,
    };
    let about = About::new(&plan.loaded.config, &plan.policy, &judged_with, settings);
    let scheduler = &plan.loaded.config.scheduler;
    let calendars = scheduler.ics.iter().map(Secret::expose);
    let calendars: Vec<&str> = calendars.filter(|it| it.contains("://")).collect();
    let mut about = about.with_calendars(&calendars);
    about.leaves.push_str(&written_with.unwrap_or_default());
    let keeps_turns = plan.loaded.config.turns.enabled;
    if !keeps_turns {
        about = about.of_nothing_new(&plan.loaded.config, &plan.policy);
    }
    if hears { about } else { about.without_wishes() }
}
