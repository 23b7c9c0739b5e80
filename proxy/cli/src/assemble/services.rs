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

/// The services of the gateway. `counted` are the parts whose counts `/metrics` shows; `trainer` is our own trainer, for
/// which chats wait.
pub(super) fn services(
    counted: MetricSources,
    memory: Option<MemoryStore>,
    trainer: Option<watch::Receiver<TrainerState>>,
    serving: Arc<Serving>,
    token: &str,
) -> Services {
    let learner = counted.learner.clone();
    let memory = memory.map(|memory| -> Arc<dyn MemoryService> {
        Arc::new(MemoryAnswers {
            memory,
            learner: learner.clone(),
            log: counted.log.clone(),
        })
    });
    Services {
        feedback: Some(Arc::new(OwnersFeedback(learner.clone()))),
        wanted: Some(Arc::new(WantedRolloutsService(learner.clone()))),
        memory,
        train_step: Some(Arc::new(TrainStepService(learner))),
        ready: Arc::new(move || match &trainer {
            Some(trainer) => is_ready(&trainer.borrow(), &serving),
            None => Ok(()),
        }),
        metrics: Arc::new(move || counted.series()),
        admin_token: token.into(),
        set_parent: traces::set_parent,
    }
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
            steps
                .map(|steps| original_reply(&steps))
                .map_err(|error| ServiceError {
                    status: StatusCode::SERVICE_UNAVAILABLE,
                    message: error.to_string(),
                })
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
    let samples: usize = steps.iter().map(|step| step.n_turns).sum();
    let mean = |value: fn(&StepReport) -> f32| {
        let weighted = |step: &StepReport| f64::from(value(step)) * step.n_turns as f64;
        let sum: f64 = steps.iter().map(weighted).sum();
        (sum / samples.max(1) as f64 * 10_000.0).round() / 10_000.0
    };
    json!({
        "status": "ok",
        "step": last.n,
        "samples": samples,
        "mean_reward": mean(|step| step.mean_reward),
        "success_rate": mean(|step| step.success_rate),
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
