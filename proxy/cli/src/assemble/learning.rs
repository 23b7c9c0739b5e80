//! What learns: who judges, who hears wishes, who writes skills, and the learner that asks them.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, bail, ensure};
use metaclaw_chat::Span;
use metaclaw_control::{
    compare::{ComparedModel, Comparer, MAX_ANSWER},
    forgetting::KeptLessons,
    home::Home,
    instance::{IdleLearner, LearningRoom},
    replays::Replays,
    status::TrainerState,
    token_budget::TokenBudget,
};
use metaclaw_gateway::{Privacy, Serving};
use metaclaw_learner::{
    AdvantageFunction, Ask, Evolver, ExternalTeacher, Judge, Learner, Listener, Parts, Recorder,
    RewardFunction, WandbClient,
};
use metaclaw_llm::{AskParams, ChatClient, LlmConfig, http_client};
use metaclaw_reward::Rules;
use metaclaw_schedule::{Schedule, SchedulerConfig};
use metaclaw_settings::{Config, Policy, address::is_here, overridden};
use metaclaw_trainer_api::AdapterName;
use metaclaw_turns::TurnLog;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    background::Background,
    lessons,
    models::{BudgetedModel, Function, UnadaptedModel, ask_params},
    schedule,
    trainer::{self, Training},
    upstreams::credentials,
};
use crate::{
    asked::{Hearing, Judging, extra_parts, skill_writer},
    site::Site,
};

/// Votes differ: that is why there are several.
const JUDGING_TEMPERATURE: f64 = 0.6;
/// The same message is to be heard the same way.
const HEARING_TEMPERATURE: f64 = 0.0;
/// Skills are to be alike for like failures.
const WRITING_TEMPERATURE: f64 = 0.4;
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The timeout for the advantages of one step, and for one reply that an external teacher reads.
const TIMEOUT: Span = Span::secs(120);

#[derive(Clone, Copy)]
pub(super) struct LearningMaker<'a> {
    pub(super) config: &'a Config,
    pub(super) policy: &'a Policy,
    pub(super) site: &'a Site,
    pub(super) log: &'a TurnLog,
    pub(super) lessons: &'a KeptLessons,
    pub(super) budget: &'a Arc<TokenBudget>,
    pub(super) training: &'a Training,
}

// === impl LearningMaker ===

impl LearningMaker<'_> {
    /// Starts the loop behind the chat; the adapters that the log names serve when it returns. Also returns the judge's
    /// models, whose questions are counted.
    pub(super) async fn start(
        self,
        serving: &Arc<Serving>,
        privacy: &Arc<Privacy>,
        background: &Background,
    ) -> anyhow::Result<(LearningRoom, Vec<ChatClient>)> {
        let Self {
            config, lessons, ..
        } = self;
        let comparer = self.comparer()?;
        let (judge, judge_models) = self.judge()?;
        let listener = self.listener()?;
        let learns = config.learner.learns();
        let external_teacher = if learns {
            self.external_teacher()?
        } else {
            None
        };
        if let Some(backend) = self.training.room.backend.as_ref().filter(|_| learns)
            && self.policy.may_train(config)
        {
            trainer::refuse_forks(self.policy, backend.as_ref()).await?;
        }
        let evolver = self.evolver()?;
        let schedule = schedule::start(&config.scheduler, self.site, self.log, background).await?;
        let (serving, privacy) = (Arc::clone(serving), Arc::clone(privacy));
        let (memory, chats) = (lessons.memory.clone(), Arc::clone(&serving));
        let parts = Parts {
            is_off: Arc::new(move |agent| privacy.switch.is_off(agent)),
            is_chatting: Arc::new(move || chats.has_chats()),
            listener,
            external_teacher,
            memory: Some(memory).filter(|memory| memory.config().is_on()),
            evolver: evolver.map(|evolver| (lessons.library.clone(), evolver)),
            on_swap: Arc::new(move |agent, adapter| {
                serving.set(agent, adapter.map(AdapterName::as_str));
            }),
            ..self.idle_parts(judge, schedule.clone())?
        };
        let Background { tasks, ending } = background;
        let room = LearningRoom {
            learner: Learner::start(parts, tasks, ending.clone()).await?,
            replays: replays(config, &self.site.home),
            comparer,
            budget: Arc::clone(self.budget),
            schedule,
            step_figures: step_figures(config, &self.site.home),
        };
        Ok((room, judge_models))
    }

    /// The parts of a learner that does what it is asked, and nothing by itself: nobody says anything to it.
    fn idle_parts(&self, judge: Judge, schedule: Schedule) -> anyhow::Result<Parts> {
        let (config, home) = (self.config, &self.site.home);
        let backend = self.training.room.backend.clone();
        let library = self.lessons.library.clone();
        Ok(Parts {
            config: config.learner.clone(),
            log: self.log.clone(),
            backend: backend.filter(|_| self.policy.may_train(config)),
            judge,
            listener: None,
            external_teacher: None,
            advantages: self.advantages()?,
            schedule,
            library: Some(library).filter(|_| config.wishes.enabled),
            memory: None,
            is_off: Arc::new(|_| false),
            is_chatting: Arc::new(|| false),
            evolver: None,
            recorder: recorder(config, self.site),
            folder: Some(home.learning()),
            on_swap: Arc::new(|_, _| ()),
        })
    }

    pub(super) fn judge(&self) -> anyhow::Result<(Judge, Vec<ChatClient>)> {
        let judge = &self.config.learner.judge;
        let rules = Rules::compile(&judge.rules)?;
        let by_models = |model, others, is_base| Judge::Model {
            rules: rules.clone(),
            model,
            others,
            votes: judge.votes,
            consensus: judge.consensus,
            policy: judge.policy,
            is_base,
        };
        let mut clients = Vec::new();
        let judge = match Judging::from_config(self.config, self.policy)? {
            Judging::Nobody => Judge::nobody(),
            Judging::Rules => Judge::Rules(rules),
            Judging::Function(url) => {
                let key = self.config.judge.address.key.as_ref();
                let function = Function::new(&self.site.roots, &url, key, judge.timeout);
                let function = RewardFunction::new(Arc::new(function.context("judge.url")?));
                Judge::Function {
                    rules,
                    function: Arc::new(function),
                }
            }
            Judging::Base => {
                let base = self.base_model(JUDGING_TEMPERATURE).context("judge.kind base needs a policy model to ask without its adapter: set trainer.model, or rl.remote_url")?;
                by_models(base, Vec::new(), true)
            }
            Judging::Models { first, others } => {
                let mut voter = |model: LlmConfig| {
                    let client = self.client(model).context("judge")?;
                    clients.push(client.clone());
                    anyhow::Ok(self.budgeted(client, JUDGING_TEMPERATURE))
                };
                let first = voter(*first)?;
                let others: anyhow::Result<_> = others.into_iter().map(voter).collect();
                by_models(first, others?, false)
            }
        };
        Ok((judge, clients))
    }

    pub(super) fn listener(&self) -> anyhow::Result<Option<Listener>> {
        let judging = Judging::from_config(self.config, self.policy)?;
        Ok(
            match Hearing::from_config(self.config, self.policy, &judging) {
                Some(Hearing::Model(model)) => {
                    let client = self.client(*model).context("llm")?;
                    Some(Listener::Model(self.budgeted(client, HEARING_TEMPERATURE)))
                }
                Some(Hearing::Policy) => self.base_model(HEARING_TEMPERATURE).map(Listener::policy),
                None => None,
            },
        )
    }

    pub(super) fn evolver(&self) -> anyhow::Result<Option<Evolver>> {
        let Some(model) = skill_writer(self.config) else {
            return Ok(None);
        };
        let client = self.client(model).context("evolver")?;
        let budget = Arc::clone(self.budget);
        Ok(Some(Evolver {
            model: self.budgeted(client, WRITING_TEMPERATURE),
            policy: self.base_model(WRITING_TEMPERATURE),
            every_n_turns: self.config.skills.evolution_every_n_turns,
            may_start: Arc::new(move || budget.allows()),
            look_every: LOOK_EVERY,
        }))
    }

    fn external_teacher(&self) -> anyhow::Result<Option<ExternalTeacher>> {
        let opd = &self.config.opd;
        if !opd.enabled {
            return Ok(None);
        }
        let url = opd.teacher_url.as_deref().context("opd.enabled needs opd.teacher_url: where a larger model of the policy's tokenizer is asked, as in http://127.0.0.1:8082/v1")?;
        let model = opd.teacher_model.clone().context(
            "opd.enabled needs opd.teacher_model: the model's name at opd.teacher_url, as in Qwen/Qwen3-32B",
        )?;
        ensure!(
            self.config.learner.rl.method.has_advantages(),
            "opd.enabled: true adds to what verdicts push, so that rl.method needs metaclaw, binary_rl or grpo (docs/training/methods.md); the opd of rl.method asks no other model"
        );
        ensure!(
            is_here(url) || self.config.privacy.cloud_training_ok == Some(true),
            "opd.teacher_url {url} is another machine, and conversations would be sent to it: set privacy.cloud_training_ok: true to allow this"
        );
        let (route, key) = (completions(url), opd.teacher_api_key.as_ref());
        let function = Function::new(&self.site.roots, &route, key, TIMEOUT);
        let function = Arc::new(function.context("opd.teacher_url")?);
        let penalty = opd.kl_penalty_coef;
        Ok(Some(ExternalTeacher::new(function, model, penalty)))
    }

    fn advantages(&self) -> anyhow::Result<Option<AdvantageFunction>> {
        let Some(url) = &self.config.rl.advantages else {
            return Ok(None);
        };
        ensure!(
            is_here(url) || self.config.privacy.cloud_training_ok == Some(true),
            "rl.advantages {url} is another machine, which would be sent the replies of rollouts: set privacy.cloud_training_ok: true to allow it"
        );
        let function = Function::new(&self.site.roots, url, None, TIMEOUT);
        let function = Arc::new(function.context("rl.advantages")?);
        Ok(Some(AdvantageFunction::new(function)))
    }

    /// Whom `metaclaw compare` asks: the policy model where there is one, else the model of `llm.*`.
    fn comparer(&self) -> anyhow::Result<Comparer> {
        let params = AskParams {
            max_tokens: Some(MAX_ANSWER),
            ..AskParams::default()
        };
        if let Some(policy) = &self.training.policy {
            // How a new chat is drawn that names no sampling: the answers are those which an agent would get.
            let serving = &self.config.gateway.serving;
            return Ok(Comparer {
                http: policy.http.clone(),
                whom: ComparedModel::Policy(policy.address.clone()),
                params: AskParams {
                    temperature: serving.temperature,
                    top_p: serving.top_p,
                    ..params
                },
            });
        }
        let llm = &self.config.llm;
        let whom = match (&llm.api_base, &llm.model_id) {
            (Some(url), Some(model)) => ComparedModel::Llm(Box::new(LlmConfig {
                url: url.clone(),
                model: model.clone(),
                key: llm.api_key.clone(),
                extra: extra_parts(url, &self.config.gateway.openrouter),
                aws: credentials(&self.site.environment),
                ..LlmConfig::default()
            })),
            _ => ComparedModel::Nobody,
        };
        let http = http_client(&self.site.roots)?;
        Ok(Comparer { http, whom, params })
    }

    fn client(&self, model: LlmConfig) -> anyhow::Result<ChatClient> {
        let config = LlmConfig {
            aws: credentials(&self.site.environment),
            ..model
        };
        Ok(ChatClient::new(config, http_client(&self.site.roots)?)?)
    }

    fn budgeted(&self, client: ChatClient, temperature: f64) -> Arc<dyn Ask> {
        Arc::new(BudgetedModel {
            client,
            params: ask_params(temperature),
            budget: Arc::clone(self.budget),
        })
    }

    fn base_model(&self, temperature: f64) -> Option<Arc<dyn Ask>> {
        Some(Arc::new(UnadaptedModel {
            policy: self.training.policy.clone()?,
            params: ask_params(temperature),
            timeout: self.config.learner.judge.timeout,
        }))
    }
}

/// Starts a learner without a proxy, for commands that show or train weights.
///
/// Only this process uses the log meanwhile. The policy server is the configured one, or ours, which runs as long as the
/// command. The learner's background tasks do not run, so only what the command asks for is judged, trained or served.
/// Returns once the policy server answers.
///
/// # Errors
/// Where there is no policy model, or what is needed of it is not allowed or does not start.
pub(crate) async fn idle_learner(
    config: &Config,
    policy: &Policy,
    site: &Site,
    log: &TurnLog,
) -> anyhow::Result<IdleLearner> {
    ensure!(
        policy.may_train(config),
        "the policy server is not on this machine: `metaclaw config privacy.cloud_training_ok true` lets texts go there"
    );
    let (tasks, ending) = (TaskTracker::new(), CancellationToken::new());
    let (_, training) = Training::prepare(config, policy, site, log, &tasks)?;
    let budget = TokenBudget::open(config.budget.clone(), site.home.spend(), log.clone());
    let (lessons, _) = lessons::open(config, &site.home, log.agents().await?).await?;
    let maker = LearningMaker {
        config,
        policy,
        site,
        log,
        lessons: &lessons,
        budget: &Arc::new(budget),
        training: &training,
    };
    let (judge, _) = maker.judge()?;
    let schedule = Schedule::local(SchedulerConfig::default(), None);
    let parts = Parts {
        external_teacher: maker.external_teacher()?,
        ..maker.idle_parts(judge, schedule)?
    };
    let state = training.room.own.clone();
    if let Some(supervisor) = training.supervisor() {
        tasks.spawn(supervisor.run(ending.clone()));
    }
    let made = IdleLearner {
        learner: Learner::offline(parts),
        replays: replays(config, &site.home),
        tasks,
        ending,
    };
    if let Some(state) = state
        && let Err(error) = wait_until_ready(state).await
    {
        made.end().await;
        return Err(error);
    }
    Ok(made)
}

/// Waits for our own trainer; one that does not start is not tried for ever.
async fn wait_until_ready(mut state: watch::Receiver<TrainerState>) -> anyhow::Result<()> {
    let is_settled = |state: &TrainerState| !matches!(state, TrainerState::Starting);
    let settled = state.wait_for(is_settled).await;
    match &*settled.context("the trainer is gone")? {
        TrainerState::Ready { .. } => Ok(()),
        TrainerState::Down { reason } => bail!("the trainer does not start: {reason}"),
        TrainerState::Starting | TrainerState::Ended => bail!("the trainer ended"),
    }
}

/// The Python original's key holds the address of the API, and the route is added here.
fn completions(url: &str) -> String {
    const ROUTE: &str = "/completions";
    let url = url.trim_end_matches('/');
    if url.ends_with(ROUTE) {
        url.to_owned()
    } else {
        format!("{url}{ROUTE}")
    }
}

/// Where the numbers of steps are written. With a key of Weights & Biases they go there too.
fn recorder(config: &Config, site: &Site) -> Recorder {
    let folder = step_figures(config, &site.home);
    let has_key = site.environment.get("WANDB_API_KEY").is_some();
    let client = has_key.then(|| WandbClient {
        python: "python3".into(),
        project: "metaclaw".to_owned(),
        folder: folder.clone(),
    });
    Recorder::with_live(folder, &config.rl.report_to, client)
}

fn replays(config: &Config, home: &Home) -> Replays {
    let figures = step_figures(config, home).join("replays");
    Replays::new(home.replay(), figures, &config.rl.report_to, overridden)
}

pub(crate) fn step_figures(config: &Config, home: &Home) -> PathBuf {
    let named = config.rl.log_dir.clone();
    named.unwrap_or_else(|| home.learning())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_route_is_added_where_it_lacks() {
        let route = "http://127.0.0.1:8082/v1/completions";
        for given in [
            "http://127.0.0.1:8082/v1",
            "http://127.0.0.1:8082/v1/",
            route,
        ] {
            assert_eq!(completions(given), route);
        }
    }
}
