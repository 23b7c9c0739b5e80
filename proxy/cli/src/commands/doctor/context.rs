//! The policy model's context: whether OpenClaw's requests fit.

use metaclaw_settings::{Loaded, Policy};
use serde_json::Value;

use super::check::Check;
use crate::{
    commands::{Context, source::running},
    policy_context::{of_folder, too_short},
};

const NAME: &str = "context";

/// A note where it is too short; nothing where it is long enough, or not known: a model that lies in a folder says it
/// itself, of all others the running proxy knows.
pub(super) async fn check(context: &Context, loaded: &Loaded) -> Option<Check> {
    let tokens = match of_running(context).await {
        Some(tokens) => Some(tokens),
        None => of_model(context, loaded),
    };
    Some(Check::note(NAME, too_short(tokens?)?))
}

async fn of_running(context: &Context) -> Option<u64> {
    let client = running(&context.home).await.ok()??;
    let status: Value = client.ask("status", &()).await.ok()?;
    status["context"].as_u64()
}

fn of_model(context: &Context, loaded: &Loaded) -> Option<u64> {
    match Policy::from_config(&loaded.config, &context.environment.cache()).ok()? {
        Policy::Local { model } => of_folder(&model).map(u64::from),
        Policy::None | Policy::Remote { .. } | Policy::Cloud(_) => None,
    }
}
