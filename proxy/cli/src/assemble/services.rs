//! What the gateway takes calls for and other rooms do.

use std::{fmt, str::FromStr, sync::Arc};

use http::StatusCode;
use metaclaw_chat::{Score, excerpt};
use metaclaw_control::status::TrainerState;
use metaclaw_gateway::{
    Answering, Call, MemoryService, Service, Services, Serving, upstream_reply_id,
};
use metaclaw_learner::{About, Feedback, FeedbackError, Learner, StepReport};
use metaclaw_skills::MemoryStore;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::{
    memory::{MemoryAnswers, failure},
    metrics::MetricSources,
};
use crate::traces;

const WHICH: [&str; 3] = ["session", "turn", "reply_id"];
const FIELDS: [&str; 5] = ["session", "turn", "reply_id", "score", "text"];
const MAX_TEXT: usize = 2_000;

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
        page_port: None,
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
                .map_err(|error| failure(StatusCode::SERVICE_UNAVAILABLE, error.to_string()))
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

const SHAPE: &str =
    r#"give {"session" | "turn" | "reply_id": "..", "score": -1, 0 or 1, "text"?: ".."}"#;
#[derive(Clone)]
struct OwnersFeedback(Learner);

// === impl OwnersFeedback ===

impl Service for OwnersFeedback {
    fn call(&self, call: Call) -> Answering<'_> {
        Box::pin(async move {
            let feedback = read_feedback(&call.body).map_err(|error| {
                let message = format!("{error}; {SHAPE}");
                failure(StatusCode::BAD_REQUEST, message)
            })?;
            let rated = self.0.rate(&call.agent, &feedback).await;
            let rated = rated.map_err(|error| failure(status(&error), error.to_string()))?;
            Ok(json!({"judged": rated.turns, "overruled": rated.n_overruled}))
        })
    }
}

fn status(error: &FeedbackError) -> StatusCode {
    match error {
        FeedbackError::Unknown { .. } => StatusCode::NOT_FOUND,
        FeedbackError::NoReply { .. } => StatusCode::BAD_REQUEST,
        FeedbackError::Off { .. } | FeedbackError::Log(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

fn read_feedback(body: &Value) -> Result<Feedback, String> {
    let fields = body.as_object().ok_or("the body is no JSON object")?;
    if let Some(unknown) = fields.keys().find(|name| !FIELDS.contains(&name.as_str())) {
        return Err(format!("the field {:?} is not known", excerpt(unknown)));
    }
    let text = text_of(fields, "text")?;
    let length = text.map_or(0, |text| text.chars().count());
    if length > MAX_TEXT {
        return Err(format!("text has {length} characters: {MAX_TEXT} at most"));
    }
    Ok(Feedback {
        about: about(fields)?,
        score: score(fields)?,
        text: text.map(str::to_owned),
    })
}

fn about(fields: &Map<String, Value>) -> Result<About, String> {
    let mut given = Vec::new();
    for name in WHICH {
        given.extend(text_of(fields, name)?.map(|value| (name, value)));
    }
    match given[..] {
        [("session", value)] => parsed("session", value).map(About::Session),
        [("turn", value)] => parsed("turn", value).map(About::Turn),
        // The log knows a reply by its upstream's own id.
        [(_, value)] => Ok(About::Reply(upstream_reply_id(value).to_owned())),
        [] => Err("none of session, turn and reply_id says which reply is meant".to_owned()),
        _ => Err("more than one of session, turn and reply_id say which reply is meant".to_owned()),
    }
}

fn parsed<T: FromStr<Err: fmt::Display>>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|error| format!("{name}: {error}"))
}

fn score(fields: &Map<String, Value>) -> Result<Score, String> {
    let given = fields.get("score").unwrap_or(&Value::Null);
    let number = given.as_i64().and_then(|as_i64| i8::try_from(as_i64).ok());
    let score = number.and_then(|number| Score::try_from(number).ok());
    score.ok_or_else(|| {
        let given = given.to_string();
        format!("score {} is not allowed: -1, 0 or 1", excerpt(&given))
    })
}

fn text_of<'f>(fields: &'f Map<String, Value>, name: &str) -> Result<Option<&'f str>, String> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => {
            let given = other.to_string();
            Err(format!("{name} {} is not allowed: a text", excerpt(&given)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_named_in_one_way() {
        let about = |body: Value| read_feedback(&body).map(|feedback| feedback.about);
        let session = about(json!({"session": "a", "score": 1}));
        assert_eq!(session, Ok(About::Session("a".parse().unwrap())));
        let turn = about(json!({"turn": "3-1", "score": 1}));
        assert_eq!(turn, Ok(About::Turn("3-1".parse().unwrap())));
        let reply =
            read_feedback(&json!({"reply_id": "r", "score": -1, "text": "too long"})).unwrap();
        assert_eq!(reply.about, About::Reply("r".to_owned()));
        assert_eq!(
            (reply.score, reply.text.as_deref()),
            (Score::Bad, Some("too long"))
        );
    }

    #[test]
    fn what_is_wrong_is_said_by_field_value_and_what_is_allowed() {
        let long = "x".repeat(5_000);
        for (body, said) in [
            (json!([1]), "the body is no JSON object"),
            (Value::Null, "the body is no JSON object"),
            (json!({"score": 1}), "none of session, turn and reply_id"),
            (
                json!({"session": "a", "turn": "1-0", "score": 1}),
                "more than one of session",
            ),
            (
                json!({"session": 7, "score": 1}),
                "session 7 is not allowed: a text",
            ),
            (json!({"session": "", "score": 1}), "session: "),
            (json!({"turn": "x", "score": 1}), "turn: "),
            (
                json!({"session": "a"}),
                "score null is not allowed: -1, 0 or 1",
            ),
            (
                json!({"session": "a", "score": 0.5}),
                "score 0.5 is not allowed: -1, 0 or 1",
            ),
            (
                json!({"session": "a", "score": 7}),
                "score 7 is not allowed: -1, 0 or 1",
            ),
            (
                json!({"session": "a", "score": 1, "text": long}),
                "text has 5000 characters: 2000 at most",
            ),
            (
                json!({"session": "a", "score": 1, "hint": "x"}),
                "the field \"hint\" is not known",
            ),
            (json!({"reply_id": "a", "score": long}), "x…"),
        ] {
            let error = read_feedback(&body).unwrap_err();
            assert!(error.contains(said) && error.len() < 300, "{error}");
        }
    }
}
