//! `POST /v1/feedback` with `rollout`: a rollout is closed with its outcome.

use metaclaw_chat::{RolloutId, excerpt};
use metaclaw_turns::{Rollout, RolloutEnd, RolloutState};
use serde::Deserialize;
use serde_json::{Value, json};

use super::open_rollouts::{RolloutError, Rollouts, shortened};
use crate::{auth::caller::Caller, identity, respond::GatewayError};

const SHAPE: &str = r#"give {"rollout": "ID", "score": -1 to 1, "steps"?: [-1 to 1, ..]}, or {"rollout": "ID", "failed": "why"}"#;
/// Characters of the reason of a failure that are kept.
const MAX_WHY: usize = 500;
const MAX_STEPS: usize = 4_096;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RolloutFeedback {
    rollout: RolloutId,
    #[serde(default)]
    score: Option<f32>,
    #[serde(default)]
    steps: Vec<f32>,
    #[serde(default)]
    failed: Option<String>,
}

pub(crate) fn is_about_rollout(body: &Value) -> bool {
    body.get("rollout").is_some_and(|id| !id.is_null())
}

pub(crate) async fn close_rollout(
    rollouts: &Rollouts,
    caller: &Caller,
    body: Value,
) -> Result<Value, GatewayError> {
    let (id, end) = read(body).map_err(|why| RolloutError::Invalid(format!("{why}; {SHAPE}")))?;
    let known = rollouts.log.rollout(&id).await;
    let known = known.map_err(RolloutError::from)?;
    let known = known.ok_or_else(|| RolloutError::Unknown { id: id.to_string() })?;
    identity::may_speak_for(&known.agent, caller)?;
    let closed = rollouts.close(&id, end).await.map_err(RolloutError::from)?;
    Ok(answer(&closed))
}

fn answer(closed: &Rollout) -> Value {
    match &closed.state {
        RolloutState::Failed { why, .. } => {
            json!({"rollout": closed.id, "state": "failed", "why": why})
        }
        _ => json!({"rollout": closed.id, "state": "scored", "score": closed.outcome()}),
    }
}

fn read(body: Value) -> Result<(RolloutId, RolloutEnd), String> {
    let feedback: RolloutFeedback =
        serde_json::from_value(body).map_err(|error| shortened(&error))?;
    let RolloutFeedback {
        rollout,
        score,
        steps,
        failed,
    } = feedback;
    let end = match (score, failed) {
        (Some(_), Some(_)) => return Err("score and failed exclude each other".to_owned()),
        (None, None) => return Err("neither score nor failed is given".to_owned()),
        (None, Some(why)) => RolloutEnd::Failed {
            why: why.chars().take(MAX_WHY).collect(),
        },
        (Some(outcome), None) => {
            check("score", outcome)?;
            for (at, step) in steps.iter().enumerate() {
                check(&format!("steps[{at}]"), *step)?;
            }
            if steps.len() > MAX_STEPS {
                let n = steps.len();
                return Err(format!("steps has {n} rewards: {MAX_STEPS} at most"));
            }
            RolloutEnd::Scored { outcome, steps }
        }
    };
    Ok((rollout, end))
}

fn check(field: &str, value: f32) -> Result<(), String> {
    if (-1.0..=1.0).contains(&value) {
        return Ok(());
    }
    let given = value.to_string();
    Err(format!(
        "{field} {} is not allowed: -1 to 1",
        excerpt(&given)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0199a0b1c2d3deadbeef";

    #[test]
    fn a_rollout_is_scored_or_it_failed() {
        let end = |body: Value| read(body).map(|(_, end)| end);
        let scored = end(json!({"rollout": ID, "score": 0.5, "steps": [1, -1]}));
        let expected = RolloutEnd::Scored {
            outcome: 0.5,
            steps: vec![1.0, -1.0],
        };
        assert_eq!(scored, Ok(expected));
        let why = "x".repeat(MAX_WHY + 5);
        let failed = end(json!({"rollout": ID, "failed": why}));
        assert!(matches!(failed, Ok(RolloutEnd::Failed { why }) if why.len() == MAX_WHY));
    }

    #[test]
    fn what_is_wrong_is_said_by_field_value_and_what_is_allowed() {
        #[rustfmt::skip]
        let cases = [
            (json!({"rollout": ID}), "neither score nor failed"),
            (json!({"rollout": ID, "score": 1, "failed": "x"}), "exclude each other"),
            (json!({"rollout": ID, "score": 2}), "score 2 is not allowed: -1 to 1"),
            (json!({"rollout": ID, "score": 1, "steps": [0, -3]}), "steps[1] -3 is not allowed"),
            (json!({"rollout": ID, "score": "good"}), "invalid type"),
            (json!({"rollout": "x", "score": 1}), "rollout id \"x\" is not allowed"),
            (json!({"rollout": ID, "score": 1, "text": "t"}), "unknown field `text`"),
            (json!({"rollout": ID, "score": 1, ("x".repeat(1 << 20)): 1}), "unknown field `xxx"),
        ];
        for (body, said) in cases {
            let why = read(body.clone()).unwrap_err();
            assert!(why.contains(said) && why.len() < 400, "{body}: {why}");
        }
    }
}
