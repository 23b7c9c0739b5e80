//! What the gateway takes calls for and other rooms do.

use std::sync::Arc;

use http::StatusCode;
use metaclaw_control::status::TrainerState;
use metaclaw_gateway::{Answering, Call, MemoryService, Service, ServiceError, Services, Serving};
use metaclaw_learner::{Learner, StepReport};
use metaclaw_skills::MemoryStore;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{feedback::OwnersFeedback, memory::MemoryAnswers, metrics::MetricSources};
use crate::traces;

/// Whether requests are served as they will be; why not, otherwise.
pub(super) type ReadyCheck = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The services of the gateway. `counted` are the parts whose counts `/metrics` shows.
pub(super) fn services(
    counted: MetricSources,
    memory: Option<MemoryStore>,
    ready: ReadyCheck,
    token: &str,
) -> Services {
    let learner = counted.learner.clone();
    let memory = memory.map(|memory| {
        let (learner, log) = (learner.clone(), counted.log.clone());
        Arc::new(MemoryAnswers {
            memory,
            learner,
            log,
        }) as Arc<dyn MemoryService>
    });
    Services {
        feedback: Some(Arc::new(OwnersFeedback(learner.clone()))),
        wanted: Some(Arc::new(WantedRolloutsService(learner.clone()))),
        memory,
        train_step: Some(Arc::new(TrainStepService(learner))),
        ready,
        metrics: Arc::new(move || counted.series()),
        admin_token: token.into(),
        set_parent: traces::set_parent,
    }
}

/// Whether chats are answered by the policy model, where there is one to wait for.
pub(super) fn ready(
    trainer: Option<watch::Receiver<TrainerState>>,
    serving: &Arc<Serving>,
) -> ReadyCheck {
    let serving = Arc::clone(serving);
    Arc::new(move || match &trainer {
        Some(trainer) => is_ready(&trainer.borrow(), &serving),
        None => Ok(()),
    })
}

fn is_ready(trainer: &TrainerState, serving: &Serving) -> Result<(), String> {
    match trainer {
        TrainerState::Ready { .. } if serving.policy().is_some() => Ok(()),
        TrainerState::Ready { .. } => Err("the adapters are being loaded".to_owned()),
        TrainerState::Starting => Err("the policy model is being loaded".to_owned()),
        // Anybody may ask: what it said last, with its paths, is for its owner.
        TrainerState::Down { .. } => {
            Err("the trainer ended and is started again: `metaclaw status` says why".to_owned())
        }
        TrainerState::Ended => Err("metaclaw is ending".to_owned()),
    }
}

/// `POST /v1/admin/train_step`: the original's way to ask for a step.
#[derive(Clone)]
struct TrainStepService(Learner);

// === impl TrainStepService ===

impl Service for TrainStepService {
    fn call(&self, call: Call) -> Answering<'_> {
        Box::pin(async move {
            let steps = self.0.train_now(Some(call.agent)).await;
            let steps = steps.map_err(|error| ServiceError {
                status: StatusCode::SERVICE_UNAVAILABLE,
                message: error.to_string(),
            })?;
            Ok(original_reply(&steps))
        })
    }
}

/// The reply in the original's shape, with the steps beside it. The original makes one step for all agents, so a mean of
/// several is by their turns.
fn original_reply(steps: &[StepReport]) -> Value {
    let Some(last) = steps.last() else {
        let message = "no samples in queue";
        return json!({"status": "skipped", "message": message, "samples": 0, "steps": []});
    };
    let samples: usize = steps.iter().map(|it| it.n_turns).sum();
    let mean = |value: fn(&StepReport) -> f32| {
        let sum: f64 = steps
            .iter()
            .map(|it| f64::from(value(it)) * it.n_turns as f64)
            .sum();
        (sum / samples.max(1) as f64 * 10_000.0).round() / 10_000.0
    };
    json!({
        "status": "ok",
        "step": last.n,
        "samples": samples,
        "mean_reward": mean(|it| it.mean_reward),
        "success_rate": mean(|it| it.success_rate),
        "steps": steps,
    })
}

/// `GET /v1/rollouts/wanted`: which held-out tasks the gate wants to be tried now.
#[derive(Clone)]
struct WantedRolloutsService(Learner);

// === impl WantedRolloutsService ===

impl Service for WantedRolloutsService {
    fn call(&self, call: Call) -> Answering<'_> {
        let wanted = self.0.wanted_rollouts(&call.agent);
        Box::pin(async move { Ok(json!({"adapter": wanted.adapter, "held_out": wanted.held_out})) })
    }
}
