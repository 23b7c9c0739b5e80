//! `GET /v1/models`.

use axum::{Json, extract::State};
use metaclaw_trainer_terms::AdapterName;
use serde::Serialize;

use crate::{error::ApiError, front::Front, model::Model};

#[derive(Debug, Serialize)]
pub(crate) struct ModelsReply {
    object: &'static str,
    data: Vec<ModelEntry>,
}

#[derive(Debug, Serialize)]
struct ModelEntry {
    id: String,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    /// The base model of an adapter, as in vLLM.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_model_len: Option<usize>,
}

/// Lists the base model, then every adapter. If there is no model yet, lists only the adapters.
pub(crate) async fn list(State(front): State<Front>) -> Result<Json<ModelsReply>, ApiError> {
    let base = front.model().ok();
    let name = base.as_ref().map_or("", |base| base.name());
    let own = base.as_ref().map(|base| of_base(base));
    let adapters = front.sampler().adapters().await?.into_iter();
    let adapters = adapters.map(|adapter| of_adapter(&adapter, name));
    Ok(Json(ModelsReply {
        object: "list",
        data: own.into_iter().chain(adapters).collect(),
    }))
}

fn of_base(base: &Model) -> ModelEntry {
    ModelEntry {
        id: base.name().to_owned(),
        object: "model",
        created: 0,
        owned_by: "metaclaw",
        parent: None,
        max_model_len: Some(base.context()),
    }
}

fn of_adapter(adapter: &AdapterName, base: &str) -> ModelEntry {
    ModelEntry {
        id: adapter.as_str().to_owned(),
        object: "model",
        created: 0,
        owned_by: "metaclaw",
        parent: Some(base.to_owned()),
        max_model_len: None,
    }
}
