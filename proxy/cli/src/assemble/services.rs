//! What the gateway takes calls for and other rooms do.

use std::sync::{Arc, Weak};

use http::StatusCode;
use metaclaw_gateway::{Answering, Call, Service, ServiceError, Services, Serving};
use serde_json::json;
use tokio::sync::watch;

use super::{feedback::OwnersFeedback, metrics};
use crate::{app::LateApp, supervise::TrainerState, traces};

/// Whether requests are served as they will be; why not, otherwise.
pub(super) type Ready = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The services of the gateway.
pub(super) fn services(app: &LateApp, ready: Ready, token: &str) -> Services {
    Services {
        feedback: Some(Arc::new(OwnersFeedback(Arc::clone(app)))),
        train_step: Some(Arc::new(TrainStep(Arc::clone(app)))),
        ready,
        metrics: Arc::new({
            let app = Arc::clone(app);
            move || metrics::series(&app)
        }),
        admin_token: token.into(),
        set_parent: traces::set_parent,
    }
}

/// Whether chats are answered by the policy model, where there is one to wait for.
pub(super) fn ready(
    trainer: Option<watch::Receiver<TrainerState>>,
    serving: &Arc<Serving>,
) -> Ready {
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
struct TrainStep(LateApp);

// === impl TrainStep ===

impl Service for TrainStep {
    fn call(&self, call: Call) -> Answering<'_> {
        Box::pin(async move {
            let app = self.0.get().and_then(Weak::upgrade);
            let app =
                app.ok_or_else(|| refuse(StatusCode::SERVICE_UNAVAILABLE, "not ready yet"))?;
            let steps = app.train_step(Some(call.agent)).await;
            let steps = steps
                .map_err(|error| refuse(StatusCode::SERVICE_UNAVAILABLE, error.to_string()))?;
            Ok(json!({"steps": steps}))
        })
    }
}

fn refuse(status: StatusCode, message: impl Into<String>) -> ServiceError {
    ServiceError {
        status,
        message: message.into(),
    }
}
