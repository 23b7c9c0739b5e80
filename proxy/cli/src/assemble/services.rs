//! What the gateway takes calls for and other rooms do.

use std::sync::{Arc, Weak};

use http::StatusCode;
use metaclaw_chat::{AgentId, JudgedBy, Score, Verdict, Vote, excerpt};
use metaclaw_gateway::{Answering, Call, Privacy, Service, ServiceError, Services, Serving};
use metaclaw_turns::TurnLog;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::metrics;
use crate::{app::LateApp, supervise::TrainerState, traces};

/// Whether requests are served as they will be; why not, otherwise.
pub(super) type Ready = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The services of the gateway.
pub(super) fn services(
    app: &LateApp,
    (log, privacy): (&TurnLog, &Arc<Privacy>),
    ready: Ready,
    token: &str,
) -> Services {
    Services {
        feedback: Some(Arc::new(Feedback(log.clone(), Arc::clone(privacy)))),
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

/// `POST /v1/feedback`: the owner's own verdict on a reply.
#[derive(Clone)]
struct Feedback(TurnLog, Arc<Privacy>);

/// What a caller says about a reply.
#[derive(Debug, Deserialize)]
struct Opinion {
    reply_id: String,
    score: Score,
    #[serde(default)]
    hint: Option<String>,
}

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

// === impl Feedback ===

impl Service for Feedback {
    fn call(&self, call: Call) -> Answering<'_> {
        Box::pin(async move {
            let opinion: Opinion = serde_json::from_value(call.body).map_err(|error| {
                let shape = r#"{"reply_id": "…", "score": -1, 0 or 1, "hint"?: "…"}"#;
                let error = error.to_string();
                let error = excerpt(&error);
                refuse(StatusCode::BAD_REQUEST, format!("{error}; give {shape}"))
            })?;
            if self.1.switch.is_off(&call.agent) {
                let agent = call.agent;
                let message = format!("agent {agent} is only relayed for now: `metaclaw on` first");
                return Err(refuse(StatusCode::SERVICE_UNAVAILABLE, message));
            }
            self.judge(&call.agent, opinion).await
        })
    }
}

impl Feedback {
    /// Gives the agent's turns of that reply the owner's verdict; one that has a verdict keeps it.
    async fn judge(&self, agent: &AgentId, opinion: Opinion) -> Result<Value, ServiceError> {
        let mut judged = Vec::new();
        let mut n_turns = 0;
        for id in self.0.by_reply(&opinion.reply_id).await.map_err(away)? {
            let turn = self.0.get(id).await.map_err(away)?;
            if turn.is_some_and(|turn| turn.agent == *agent) {
                n_turns += 1;
                if self.0.judge(id, verdict(&opinion)).await.map_err(away)? {
                    judged.push(id);
                }
            }
        }
        if n_turns == 0 {
            let reply_id = excerpt(&opinion.reply_id);
            let message = format!("no turn of agent {agent} has the reply {reply_id:?}");
            return Err(refuse(StatusCode::NOT_FOUND, message));
        }
        Ok(json!({"judged": judged, "had_a_verdict": n_turns - judged.len()}))
    }
}

fn verdict(opinion: &Opinion) -> Verdict {
    Verdict {
        score: opinion.score,
        by: JudgedBy::Owner,
        votes: vec![Vote {
            score: opinion.score,
            hint: opinion.hint.clone(),
        }],
        hint: opinion.hint.clone(),
        weight: 1.0,
    }
}

fn away(error: impl std::fmt::Display) -> ServiceError {
    refuse(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}

fn refuse(status: StatusCode, message: impl Into<String>) -> ServiceError {
    ServiceError {
        status,
        message: message.into(),
    }
}
