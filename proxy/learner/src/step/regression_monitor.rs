//! Watches whether an agent's verdicts get worse while an adapter serves, and rolls back.
//!
//! The gate tests an adapter once, with MetaClaw's questions; its owner uses it all day. Verdicts on replies and on
//! turns that call tools are watched separately ([`change_point`]), because tools fail for reasons of their own.

use std::sync::Arc;

use metaclaw_chat::AgentId;
use metaclaw_trainer_api::AdapterName;
use metaclaw_turns::{Step, StepOutcome};

use super::context::TrainingContext;
use crate::{
    error::TrainError,
    gate::{Judged, change_point, verdicts},
    status::WasTakenBack,
};

/// Rolls back an adapter since which an agent's verdicts got worse: the one before it serves again.
///
/// # Errors
/// Returns [`TrainError::NoTrainer`] while the previous adapter cannot be tried, and the log's errors.
pub(crate) async fn watch(
    context: &mut TrainingContext,
    agent: &AgentId,
) -> Result<(), TrainError> {
    let shared = Arc::clone(&context.shared);
    let funnel = shared.persist(|| shared.log.funnel(Some(agent))).await?;
    let seen = Some((funnel.judged, shared.n_changed_verdicts()));
    if !context.gate.is_on() || context.agent(agent).watched.seen == seen {
        return Ok(());
    }
    let serving = shared.persist(|| shared.log.serving()).await?;
    let serving = serving.into_iter().find(|(whose, _)| whose == agent);
    if let Some((_, serving)) = serving {
        let steps = shared.persist(|| shared.log.steps(agent)).await?;
        let behind = behind(&steps, &serving);
        let watched = &mut context.agent(agent).watched;
        let kinds = verdicts(&shared, agent, (&steps, watched)).await?;
        for (verdicts, of) in kinds.iter().zip(["replies", "turns that call tools"]) {
            if let Some((culprit, why)) = culprit(verdicts, of, &behind) {
                take_back(context, (&behind, culprit), &why).await?;
                break;
            }
        }
    }
    context.agent(agent).watched.seen = seen;
    Ok(())
}

/// Returns the steps that made an adapter, last one first.
fn behind<'s>(steps: &'s [Step], adapter: &str) -> Vec<&'s Step> {
    let mut behind: Vec<&Step> = Vec::new();
    let mut name = Some(adapter);
    // Parents are older than their children; a record that says otherwise ends the chain here.
    while let Some(step) =
        name.and_then(|name| steps.iter().find(|it| adapter_of(it) == Some(name)))
        && behind.len() < steps.len()
    {
        behind.push(step);
        name = step.begun.parent.as_deref();
    }
    behind
}

/// Returns the last rollback, while no step has been trained since.
pub(crate) fn taken_back(steps: &[Step]) -> Option<WasTakenBack> {
    let told = steps.iter().filter_map(|step| {
        let taken_back = step.taken_back.clone()?;
        Some(WasTakenBack {
            adapter: adapter_of(step)?.to_owned(),
            to: taken_back.to,
            why: taken_back.why,
            at_ms: taken_back.at_ms,
        })
    });
    let last = told.max_by_key(|it| it.at_ms)?;
    let since = |step: &Step| adapter_of(step).is_some() && step.taken_ms > last.at_ms;
    (!steps.iter().any(since)).then_some(last)
}

fn adapter_of(step: &Step) -> Option<&str> {
    match &step.outcome {
        Some(StepOutcome::Trained { adapter, .. }) => Some(adapter),
        Some(StepOutcome::Declined { .. } | StepOutcome::Released { .. }) | None => None,
    }
}

/// Returns which of the steps behind the serving adapter made verdicts worse, and the numbers in words. If they got
/// worse under the base model, or under steps that are not in the weights any more, no step is the cause.
fn culprit(verdicts: &[Judged], of: &str, behind: &[&Step]) -> Option<(usize, String)> {
    let are_bad: Vec<bool> = verdicts.iter().map(|it| it.is_bad).collect();
    let at = change_point(&are_bad)?;
    let adapter = verdicts.get(at)?.adapter.as_deref()?;
    let culprit = behind
        .iter()
        .position(|it| adapter_of(it) == Some(adapter))?;
    let n_bad = |some: &[bool]| some.iter().filter(|is_bad| **is_bad).count();
    let (before, since) = are_bad.split_at(at);
    let why = format!(
        "of {} verdicts on {of} since it answered {} are bad, of {} before {}",
        since.len(),
        n_bad(since),
        before.len(),
        n_bad(before)
    );
    Some((culprit, why))
}

/// Serves the newest adapter from before that step that the server still has, or the base model.
async fn take_back(
    context: &mut TrainingContext,
    (behind, culprit): (&[&Step], usize),
    why: &str,
) -> Result<(), TrainError> {
    let Some(serving) = behind.first() else {
        return Ok(());
    };
    let runner = context.runner().await?;
    let mut to: Option<AdapterName> = None;
    for step in &behind[culprit + 1..] {
        let Some(name) = adapter_of(step).and_then(|name| name.parse().ok()) else {
            continue;
        };
        let answers = runner.answers(&name).await;
        if answers.map_err(|error| context.no_trainer(&error))? {
            to = Some(name);
            break;
        }
    }
    let (shared, agent) = (Arc::clone(&context.shared), &serving.begun.agent);
    let name = to.as_ref().map(AdapterName::to_string);
    let roll_back = || shared.log.roll_back(serving, name.clone(), why);
    if shared.persist(roll_back).await? {
        let (from, to) = (adapter_of(serving), to.as_ref());
        let serves = to.map_or("the base model", AdapterName::as_str);
        tracing::error!(%agent, from, serves, why, "the adapter is taken back: verdicts got worse");
        (shared.on_swap)(agent, to);
        context.agent(agent).resume = None;
    }
    Ok(())
}
