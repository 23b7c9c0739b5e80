//! Sets up the external teacher of `opd.*`.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use metaclaw_chat::Span;
use metaclaw_learner::{ExternalTeacher, LearnerConfig};
use metaclaw_settings::address::is_here;

use super::{function::Function, plan::StartPlan};

/// The timeout for one reply, which the teacher reads without writing any text.
const TIMEOUT: Span = Span::secs(120);

/// Returns the external teacher, or `None` if none is configured.
///
/// # Errors
/// Returns an error if it cannot be reached, its score has no advantage to be added to, or texts may not be sent to it.
pub(super) fn external_teacher(
    plan: &StartPlan,
    config: &LearnerConfig,
) -> anyhow::Result<Option<ExternalTeacher>> {
    let opd = &plan.loaded.config.opd;
    if !opd.enabled {
        return Ok(None);
    }
    let url = opd.teacher_url.as_deref().context("opd.enabled needs opd.teacher_url: where a larger model of the policy's tokenizer is asked, as in http://127.0.0.1:8082/v1")?;
    let model = opd.teacher_model.clone().context(
        "opd.enabled needs opd.teacher_model: the model's name at opd.teacher_url, as in Qwen/Qwen3-32B",
    )?;
    ensure!(
        config.rl.method.has_advantages(),
        "opd.enabled: true adds to what verdicts push, so that rl.method needs metaclaw, binary_rl or grpo (docs/training/methods.md); the opd of rl.method asks no other model"
    );
    let may_hear = plan.loaded.config.privacy.cloud_training_ok == Some(true);
    ensure!(
        is_here(url) || may_hear,
        "opd.teacher_url {url} is another machine, which would be sent what is said: set privacy.cloud_training_ok: true to allow it"
    );
    let url = completions(url);
    let function = Function::new(plan, &url, opd.teacher_api_key.as_ref(), TIMEOUT);
    let function = Arc::new(function.context("opd.teacher_url")?);
    Ok(Some(ExternalTeacher::new(
        function,
        model,
        opd.kl_penalty_coef,
    )))
}

/// The Python original's key holds the address of the API, and the route is added here.
fn completions(url: &str) -> String {
    const ROUTE: &str = "/completions";
    let url = url.trim_end_matches('/');
    if url.ends_with(ROUTE) {
        url.to_owned()
    } else {
        format!("{url}{ROUTE}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_route_is_added_where_it_lacks() {
        let route = "http://127.0.0.1:8082/v1/completions";
        for given in [
            "http://127.0.0.1:8082/v1",
            "http://127.0.0.1:8082/v1/",
            route,
        ] {
            assert_eq!(completions(given), route);
        }
    }
}
