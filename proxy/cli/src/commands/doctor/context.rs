//! The policy model's context: whether OpenClaw's requests fit.

use metaclaw_control::{
    client::ControlClient, operations::process::GetStatus, policy_context::too_short,
};
use metaclaw_settings::{Loaded, Policy};

use super::check::DoctorCheck;
use crate::{commands::context::Context, model_context::of_folder};

const NAME: &str = "context";

/// A note where it is too short; nothing where it is long enough, or not known: a model that lies in a folder says it
/// itself, of all others the running proxy knows.
pub(super) async fn check(context: &Context, loaded: &Loaded) -> Option<DoctorCheck> {
    let tokens = match of_running(context).await {
        Some(tokens) => Some(tokens),
        None => of_model(context, loaded),
    };
    Some(DoctorCheck::note(NAME, too_short(tokens?)?))
}

async fn of_running(context: &Context) -> Option<u64> {
    let client = ControlClient::of_running(&context.home).await.ok()??;
    client.call(&GetStatus).await.ok()?.context
}

fn of_model(context: &Context, loaded: &Loaded) -> Option<u64> {
    match Policy::from_config(&loaded.config, &context.environment.cache()).ok()? {
        Policy::Local { model } => of_folder(&model).map(u64::from),
        Policy::None | Policy::Remote { .. } | Policy::Cloud(_) => None,
    }
}
