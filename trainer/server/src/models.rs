//! Which model a request asks for, and which there are.

use std::sync::{Mutex, PoisonError};

use axum::{
    Json,
    extract::{Path, State},
};
use metaclaw_trainer_api::{
    AdapterName,
    wire::{AdaptersReply, UnloadReply},
};
use serde::Serialize;

use crate::{app::App, error::ApiError, host::Host};

/// What names the base model beside its own name.
const BASE: &str = "base";
/// What names no model.
const DEFAULT: &str = "default";

/// Which adapter serves requests that name none.
#[derive(Debug, Default)]
pub(crate) struct Models {
    /// The one last saved in this process's life: the fork's behaviour. After a restart it is the base
    /// again until somebody says otherwise; our gateway always names one.
    last_saved: Mutex<Option<AdapterName>>,
}

/// `GET /v1/models`.
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
    /// The base of an adapter, as vLLM shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_model_len: Option<usize>,
}

// === impl Models ===

impl Models {
    /// A new adapter is there: requests that name none go to it from now on.
    pub(crate) fn saved(&self, name: AdapterName) {
        *self
            .last_saved
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(name);
    }

    fn last_saved(&self) -> Option<AdapterName> {
        let last = self.last_saved.lock();
        last.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether an adapter may have this name: one that means the base could never be asked for.
    ///
    /// # Errors
    /// 400 naming the field.
    pub(crate) fn check_free(name: &AdapterName, host: &Host) -> Result<(), ApiError> {
        let name = name.as_str();
        if name != BASE && name != DEFAULT && name != host.base() {
            return Ok(());
        }
        let text =
            format!("name {name:?} is not allowed for an adapter: it asks for another model");
        Err(ApiError::field("name", text))
    }

    /// The adapter that `model` means; `None` is the base.
    ///
    /// # Errors
    /// 404 `model_not_found`, naming what there is.
    pub(crate) fn resolve(
        &self,
        model: Option<&str>,
        host: &Host,
    ) -> Result<Option<AdapterName>, ApiError> {
        let name = match model {
            None | Some("" | DEFAULT) => return Ok(self.last_saved()),
            Some(name) if name == BASE || name == host.base() => return Ok(None),
            Some(name) => name,
        };
        match name.parse::<AdapterName>() {
            Ok(adapter) if host.has_adapter(&adapter) => Ok(Some(adapter)),
            Ok(_) | Err(_) => Err(unknown(name, host)),
        }
    }
}

fn unknown(name: &str, host: &Host) -> ApiError {
    const SHOWN: usize = 20;
    let adapters = host.adapter_names().unwrap_or_default();
    let more = adapters.len().saturating_sub(SHOWN);
    let mut there: Vec<&str> = adapters
        .iter()
        .map(AdapterName::as_str)
        .take(SHOWN)
        .collect();
    there.insert(0, host.base());
    let there = there.join(", ");
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    ApiError::unknown_model(format!(
        "model {name:?} is not here: there is {there}{more}"
    ))
}

/// `GET /v1/models`: the base, then every adapter.
pub(crate) async fn list(State(app): State<App>) -> Result<Json<ModelsReply>, ApiError> {
    let base = app.host.base();
    let entry = |id: String, parent: Option<String>| ModelEntry {
        id,
        object: "model",
        created: 0,
        owned_by: "metaclaw",
        max_model_len: parent.is_none().then(|| app.host.context()),
        parent,
    };
    let adapters = app.host.adapter_names()?.into_iter();
    let adapters = adapters.map(|name| entry(name.as_str().to_owned(), Some(base.to_owned())));
    let data = std::iter::once(entry(base.to_owned(), None))
        .chain(adapters)
        .collect();
    Ok(Json(ModelsReply {
        object: "list",
        data,
    }))
}

/// `GET /v1/adapters`.
pub(crate) async fn adapters(State(app): State<App>) -> Result<Json<AdaptersReply>, ApiError> {
    let adapters = app.host.adapters().await?;
    Ok(Json(AdaptersReply { adapters }))
}

/// `DELETE /v1/adapters/{name}`.
pub(crate) async fn unload(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Json<UnloadReply>, ApiError> {
    let name: AdapterName = name
        .parse()
        .map_err(|error| ApiError::field("name", format!("{error}")))?;
    let unloaded = app.host.unload(name).await?;
    Ok(Json(UnloadReply { unloaded }))
}
