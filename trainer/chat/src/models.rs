//! `GET /v1/models`.

use axum::{Json, extract::State};
use serde_json::{Value, json};

use crate::{error::Result, front::Front};

/// Lists the base model, then every adapter. If there is no model yet, lists only the adapters.
pub(crate) async fn list(State(front): State<Front>) -> Result<Json<Value>> {
    let base = front.model().ok();
    let name = base.as_ref().map_or("", |base| base.name());
    let context = base.as_ref().map(|base| base.context());
    let own = context.map(|context| entry(name, "max_model_len", &context.into()));
    let adapters = front.sampler().adapters().await?.into_iter();
    // The base model of an adapter is named as in vLLM.
    let adapters = adapters.map(|adapter| entry(adapter.as_str(), "parent", &name.into()));
    let all: Vec<Value> = own.into_iter().chain(adapters).collect();
    Ok(Json(json!({"object": "list", "data": all})))
}

fn entry(id: &str, about: &str, value: &Value) -> Value {
    json!({"id": id, "object": "model", "created": 0, "owned_by": "metaclaw", about: value})
}
