//! Reads JSON bodies of the trainer's own routes.

use axum::extract::{FromRequest, Request};
use metaclaw_trainer_api::wire::{
    AdamSettings, CheckpointLoadRequest, CloseRunRequest, CreateRequest, ForwardBackwardRequest,
    ForwardRequest, LoadAdapterRequest, OptimStepRequest, PruneRequest, SaveWeightsRequest,
    UnloadAdapterRequest,
};
use metaclaw_trainer_chat::json::read_with;

pub(crate) use metaclaw_trainer_chat::json::{check_values, count_values, mended, parse};

use crate::error::Result;
use crate::{error::ApiError, fields, state::TrainerApp};

#[derive(Debug)]
pub(crate) struct Asked<T>(pub(crate) TrainerApp, pub(crate) T);

/// The body of a route.
pub(crate) trait ReadApiJson: Sized + Send + 'static {
    /// The fields of the body, and how each is treated.
    /// The heading of its table in `data/fields.md`.
    const ROUTE: &'static str;

    /// Reads the fields that are used.
    ///
    /// # Errors
    /// Returns 400 with the field.
    fn read(body: &[u8]) -> Result<Self>;
}

macro_rules! read_as_it_stands {
    ($($name:ty: $route:literal,)*) => {$(
        impl ReadApiJson for $name {
            const ROUTE: &'static str = $route;

            fn read(body: &[u8]) -> Result<Self> {
                parse(body)
            }
        }
    )*};
}
read_as_it_stands! {
    CreateRequest: "POST /v1/lora/create",
    ForwardRequest: "POST /v1/train/forward",
    ForwardBackwardRequest: "POST /v1/train/forward_backward",
    SaveWeightsRequest: "POST /v1/weights/save",
    CheckpointLoadRequest: "POST /v1/checkpoint/load",
    PruneRequest: "POST /v1/checkpoints/prune",
    CloseRunRequest: "POST /v1/lora/close",
    LoadAdapterRequest: "POST /v1/load_lora_adapter",
    UnloadAdapterRequest: "POST /v1/unload_lora_adapter",
}

impl ReadApiJson for OptimStepRequest {
    const ROUTE: &'static str = "POST /v1/train/optim_step";

    fn read(body: &[u8]) -> Result<Self> {
        // The fields are first read one by one, because the error of a flattened field does not contain its name.
        parse::<AdamSettings>(body)?;
        parse(body)
    }
}

impl<T: ReadApiJson> FromRequest<TrainerApp> for Asked<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &TrainerApp) -> Result<Self> {
        let body = read_with(request, app, read).await?;
        Ok(Self(app.clone(), body))
    }
}

/// Reads a body in which every field must belong to the route.
///
/// # Errors
/// 400 naming the field.
pub(crate) fn read<T: ReadApiJson>(body: &[u8]) -> Result<T> {
    fields::check(body, fields::of_route(T::ROUTE))?;
    T::read(body)
}
