//! `POST /v1/rollouts`, `GET /v1/rollouts/ID` and `GET /v1/rollouts/wanted`.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use metaclaw_chat::{AgentId, RolloutId, excerpt, now_ms};
use metaclaw_turns::{Rollout, RolloutState};
use serde::Deserialize;
use serde_json::{Value, json};

use super::open_rollouts::{RolloutError, Rollouts, key_hash, new_key, shortened};
use crate::{
    auth::caller::{Caller, KeyName},
    body::Body,
    identity,
    respond::{GatewayError, json_response},
    route::ROLLOUTS,
    services::{Call, Services},
};

const TIMEOUT_S: u64 = 3_600;
const MAX_TIMEOUT_S: u64 = 24 * 3_600;
/// The longest name of an adapter or a run in bytes, because open rollouts stay in memory.
const MAX_NAME: usize = 512;
const MAX_GROUP: u32 = 1_024;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NewRollout {
    #[serde(default)]
    agent: Option<AgentId>,
    task: metaclaw_chat::TaskId,
    /// The task's name, if it is not given.
    #[serde(default)]
    group: Option<metaclaw_chat::GroupId>,
    #[serde(default = "one")]
    group_size: u32,
    #[serde(default)]
    attempt: u32,
    #[serde(default)]
    held_out: bool,
    #[serde(default)]
    adapter: Option<String>,
    #[serde(default)]
    run: Option<String>,
    #[serde(default)]
    timeout_s: Option<u64>,
}

fn one() -> u32 {
    1
}

pub(crate) async fn serve_rollouts(
    rollouts: Option<Arc<Rollouts>>,
    services: Services,
    request: Request<Bytes>,
) -> Result<Response<Body>, GatewayError> {
    let rollouts = rollouts.ok_or(RolloutError::Unrecorded)?;
    let (head, raw) = request.into_parts();
    let caller = Caller::from_extensions(&head.extensions)?;
    let below = head.uri.path().strip_prefix(ROLLOUTS).unwrap_or_default();
    if head.method == Method::POST && below.is_empty() {
        let agent = identity::agent_of(&head.headers, &caller)?;
        let (mut rollout, key) = new_rollout(&raw, agent, &caller)?;
        rollout.opened_by = head.extensions.get().map(|KeyName(name)| name.clone());
        rollouts.open(rollout.clone()).await?;
        let mut answer = shown(&rollout)?;
        let host = head.uri.authority().map(http::uri::Authority::as_str);
        addresses(&mut answer, &rollout.id, host, &head.headers);
        answer["api_key"] = json!(key);
        return Ok(json_response(StatusCode::CREATED, &answer));
    }
    let id = below.trim_start_matches('/');
    if id == "wanted" {
        let agent = match query(head.uri.query(), "agent") {
            Some(name) => identity::admitted(name.parse().map_err(invalid("agent"))?, &caller)?,
            None => identity::agent_of(&head.headers, &caller)?,
        };
        let nothing = json!({"adapter": null, "held_out": 0});
        let wanted = match services.wanted {
            Some(wanted) => {
                let body = Value::Null;
                wanted.call(Call { agent, body }).await?
            }
            None => nothing,
        };
        return Ok(json_response(StatusCode::OK, &wanted));
    }
    let answer = existing(&rollouts, id, &caller).await?;
    Ok(json_response(StatusCode::OK, &answer))
}

/// Reads the rollout to open. Returns it with its key, which only the answer to this request contains.
fn new_rollout(
    raw: &[u8],
    agent: AgentId,
    caller: &Caller,
) -> Result<(Rollout, String), GatewayError> {
    let new: NewRollout = serde_json::from_slice(raw).map_err(|error| {
        let shape = r#"give {"task": "..", "agent"?, "group"?, "group_size"?: 1, "attempt"?: 0, "held_out"?: false, "adapter"?, "run"?, "timeout_s"?: 3600}"#;
        let error = shortened(&error);
        RolloutError::Invalid(format!("the body is no new rollout: {error}; {shape}"))
    })?;
    let agent = match new.agent {
        Some(agent) => identity::admitted(agent, caller)?,
        None => agent,
    };
    if !(1..=MAX_GROUP).contains(&new.group_size) || new.attempt >= new.group_size {
        let (size, attempt) = (new.group_size, new.attempt);
        let why = format!(
            "group_size {size} with attempt {attempt} is not allowed: 1 to {MAX_GROUP}, and attempts from 0 up to it"
        );
        return Err(RolloutError::Invalid(why).into());
    }
    for (field, name) in [("adapter", &new.adapter), ("run", &new.run)] {
        let n_bytes = name.as_ref().map_or(0, String::len);
        if n_bytes > MAX_NAME {
            let why = format!("{field} has {n_bytes} bytes: at most {MAX_NAME} are allowed");
            return Err(RolloutError::Invalid(why).into());
        }
    }
    // The learner names adapters `AGENT-LINEAGE-NUMBER`. An agent's name may have hyphens, a lineage has none.
    let its = |name: &str| name.is_empty() || name.rsplitn(3, '-').nth(2) == Some(agent.as_str());
    if let (Caller::Of(_), Some(other)) = (caller, new.adapter.as_ref().filter(|name| !its(name))) {
        let why = format!(
            "adapter {:?} is not one of agent {agent}: a key of some agents may name no others",
            excerpt(other)
        );
        return Err(RolloutError::Invalid(why).into());
    }
    let timeout_s = new.timeout_s.unwrap_or(TIMEOUT_S);
    if !(1..=MAX_TIMEOUT_S).contains(&timeout_s) {
        let why = format!("timeout_s {timeout_s} is not allowed: 1 to {MAX_TIMEOUT_S}");
        return Err(RolloutError::Invalid(why).into());
    }
    let group = match new.group {
        Some(group) => group,
        None => new.task.as_str().parse().map_err(invalid("task"))?,
    };
    let (opened_ms, key) = (now_ms(), new_key());
    let rollout = Rollout {
        id: RolloutId::new(opened_ms, rand::random()),
        agent,
        task: new.task,
        group,
        group_size: new.group_size,
        attempt: new.attempt,
        held_out: new.held_out,
        adapter: new.adapter.filter(|name| !name.is_empty()),
        run: new.run,
        opened_by: None,
        key_hash: key_hash(key.expose()),
        opened_ms,
        deadline_ms: opened_ms + timeout_s * 1_000,
        state: RolloutState::Open,
    };
    Ok((rollout, key.expose().to_owned()))
}

fn invalid<E: std::fmt::Display>(field: &'static str) -> impl Fn(E) -> RolloutError {
    move |error| RolloutError::Invalid(format!("{field}: {error}"))
}

async fn existing(rollouts: &Rollouts, id: &str, caller: &Caller) -> Result<Value, GatewayError> {
    let unknown = || RolloutError::Unknown { id: id.to_owned() };
    let id: RolloutId = id.parse().map_err(|_| unknown())?;
    let log = &rollouts.log;
    let rollout = log.rollout(&id).await.map_err(RolloutError::from)?;
    let rollout = rollout.ok_or_else(unknown)?;
    identity::may_speak_for(&rollout.agent, caller)?;
    let turns = log.rollout_turns(vec![id.clone()]).await;
    let turns = turns.map_err(RolloutError::from)?.remove(&id);
    let mut answer = shown(&rollout)?;
    answer["turns"] = json!(turns.unwrap_or_default());
    Ok(answer)
}

fn shown(rollout: &Rollout) -> Result<Value, RolloutError> {
    let rollout = Rollout {
        key_hash: String::new(),
        ..rollout.clone()
    };
    let shown = serde_json::to_value(&rollout);
    shown.map_err(|error| RolloutError::Invalid(error.to_string()))
}

/// Adds the addresses at which the agent's program is to talk, under the name by which the proxy was asked.
fn addresses(answer: &mut Value, id: &RolloutId, host: Option<&str>, headers: &HeaderMap) {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    // HTTP/2 has the name in the address, HTTP/1 in a header.
    let host = host
        .or_else(|| text(header::HOST.as_str()))
        .unwrap_or("127.0.0.1");
    // A proxy in front of this one may speak TLS.
    let scheme = text("x-forwarded-proto")
        .filter(|scheme| *scheme == "https")
        .unwrap_or("http");
    let address = format!("{scheme}://{host}/rollout/{id}");
    answer["base_url"] = json!(format!("{address}/v1"));
    answer["anthropic_base_url"] = json!(address);
}

fn query<'a>(query: Option<&'a str>, name: &str) -> Option<&'a str> {
    let pairs = query?.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .filter(|(key, _)| *key == name)
        .map(|(_, value)| value)
        .next()
}
