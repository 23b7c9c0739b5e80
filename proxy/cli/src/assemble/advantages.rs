//! Sets up the owner's own advantages of rollouts: `rl.advantages`.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use metaclaw_chat::Span;
use metaclaw_learner::AdvantageFunction;
use metaclaw_settings::address::is_here;

use super::{function::Function, plan::StartPlan};

/// The timeout for the advantages of one step.
const TIMEOUT: Span = Span::secs(120);

/// Returns the function, or `None` if none is configured.
///
/// # Errors
/// Returns an error if its address cannot be used, or replies may not be sent to it.
pub(super) fn advantages(plan: &StartPlan) -> anyhow::Result<Option<AdvantageFunction>> {
    let config = &plan.loaded.config;
    let Some(url) = &config.rl.advantages else {
        return Ok(None);
    };
    ensure!(
        is_here(url) || config.privacy.cloud_training_ok == Some(true),
        "rl.advantages {url} is another machine, which would be sent the replies of rollouts: set privacy.cloud_training_ok: true to allow it"
    );
    let function = Function::new(plan, url, None, TIMEOUT).context("rl.advantages")?;
    Ok(Some(AdvantageFunction::new(Arc::new(function))))
}
