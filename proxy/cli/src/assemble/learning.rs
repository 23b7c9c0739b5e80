//! What learns beside the chat, and what the banner says of it.

use std::sync::Arc;

use metaclaw_chat::Secret;
use metaclaw_control::status::RunSummary;
use metaclaw_learner::{Learner, LearnerConfig, Parts};
use metaclaw_llm::ChatClient;
use metaclaw_schedule::Schedule;
use metaclaw_trainer_api::AdapterName;

use super::{
    advantages::advantages,
    compare, evolver,
    external_teacher::external_teacher,
    learner,
    listener::listener,
    parts::{Background, GatewayState, Stores},
    plan::StartPlan,
    schedule, trainer,
    trainer::TrainingSide,
};
use crate::banner::{self, JudgedWith};

/// Where the busy hours of Google's calendar are asked for.
const GOOGLE_CALENDAR: &str = "https://www.googleapis.com";

/// What learns, and what is told of it.
pub(super) struct Learning {
    pub(super) learner: Learner,
    /// The judge's models, where any are asked.
    pub(super) judge: Vec<ChatClient>,
    pub(super) about: RunSummary,
    pub(super) schedule: Schedule,
}

// === impl Learning ===

impl Learning {
    /// Starts the loop behind the chat; the adapters that the log names serve when it returns.
    pub(super) async fn start(
        plan: &StartPlan,
        stores: &Stores,
        training: &TrainingSide,
        gateway: &GatewayState,
        background: &Background,
    ) -> anyhow::Result<Self> {
        let Stores {
            log,
            library,
            memory,
            budget,
        } = stores;
        let settings = plan.loaded.config.learner.clone();
        let address = compare::policy_address(plan, training);
        let (judge, judged_with, judge_models) = learner::judge(plan, &settings, budget, address)?;
        let address = compare::policy_address(plan, training);
        let heard_by = listener(plan, &judge, &settings.judge, budget, address)?;
        let (listener, heard_with) = heard_by.unzip();
        // Where no weights learn nothing is asked.
        let external_teacher = if settings.learns() {
            external_teacher(plan, &settings)?
        } else {
            None
        };
        let may_train = plan.policy.may_train(&plan.loaded.config);
        let trains = training.backend.is_some() && settings.learns() && may_train;
        if let Some(backend) = training.backend.as_ref().filter(|_| trains) {
            trainer::refuse_forks(&plan.policy, backend.as_ref()).await?;
        }
        let wishes = &plan.loaded.config.wishes;
        let (evolver, written_with) = evolver::evolver(plan, budget)?.unzip();
        let told = LearningSummary {
            judged_with,
            written_with,
            heard_with,
            trains,
            hears: wishes.enabled,
        };
        let about = told.about(plan, &settings);
        let schedule = schedule::start(plan, log, background).await?;
        let (serving, privacy) = (Arc::clone(&gateway.serving), Arc::clone(&gateway.privacy));
        let parts = Parts {
            is_off: Arc::new(move |agent| privacy.switch.is_off(agent)),
            config: settings,
            log: log.clone(),
            backend: training.backend.clone().filter(|_| may_train),
            judge,
            listener,
            external_teacher,
            advantages: advantages(plan)?,
            schedule: schedule.clone(),
            library: Some(library.clone()).filter(|_| wishes.enabled),
            memory: Some(memory.clone()).filter(|it| it.config().enabled),
            evolver: evolver.map(|evolver| (library.clone(), evolver)),
            recorder: learner::recorder(plan),
            folder: Some(plan.home.learning()),
            on_swap: Arc::new(move |agent, adapter| {
                serving.set(agent, adapter.map(AdapterName::as_str));
            }),
        };
        let Background { tasks, ending } = background;
        Ok(Self {
            learner: Learner::start(parts, tasks, ending.clone()).await?,
            judge: judge_models,
            about,
            schedule,
        })
    }
}

/// What the banner says of learning.
struct LearningSummary {
    judged_with: JudgedWith,
    /// What it adds of who writes skills.
    written_with: Option<String>,
    /// What it adds of who hears wishes.
    heard_with: Option<String>,
    trains: bool,
    /// Whether wishes are heard.
    hears: bool,
}

// === impl LearningSummary ===

impl LearningSummary {
    fn about(self, plan: &StartPlan, settings: &LearnerConfig) -> RunSummary {
        let (hears, is_used) = (self.hears, self.trains || self.written_with.is_some());
        let judged_with = match self.judged_with {
            JudgedWith::Model { model, url, .. } if !is_used && hears => {
                JudgedWith::Hears { model, url }
            }
            JudgedWith::Model { .. } | JudgedWith::Base if !is_used => JudgedWith::Unused,
            judged_with => judged_with,
        };
        let config = &plan.loaded.config;
        let about = banner::about(config, &plan.policy, &judged_with, settings);
        let scheduler = &plan.loaded.config.scheduler;
        let calendars = scheduler.ics.iter().map(Secret::expose);
        let mut calendars: Vec<&str> = calendars.filter(|it| it.contains("://")).collect();
        calendars.extend(scheduler.calendar.enabled.then_some(GOOGLE_CALENDAR));
        let mut about = banner::with_calendars(about, &calendars);
        about
            .leaves
            .push_str(&self.written_with.unwrap_or_default());
        let keeps_turns = plan.loaded.config.turns.enabled;
        if !keeps_turns {
            about = banner::of_nothing_new(about, config, &plan.policy);
        }
        if !hears {
            about = banner::without_wishes(about);
        }
        about.leaves.push_str(&self.heard_with.unwrap_or_default());
        about
    }
}
