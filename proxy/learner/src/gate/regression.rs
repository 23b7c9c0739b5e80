//! While an adapter serves: whether its agent's verdicts get worse, and what then serves in its place.
//!
//! The gate looks at an adapter once, with questions of ours; its owner looks at it all day. Verdicts on replies and on turns
//! that call tools are watched apart ([`change_point`]): tools fail for reasons of their own.

use metaclaw_chat::AgentId;
use metaclaw_trainer_api::{AdapterName, BackendError};
use metaclaw_turns::{LogError, Step, StepOutcome};

use super::{
    cusum::change_point,
    verdict_history::{JudgedReply, VerdictHistory, VerdictsSeen, verdicts},
};
use crate::{shared::Shared, status::WasTakenBack, trainer::StepRunner};

/// Verdicts got worse since a step's adapter answers.
pub(crate) struct Regression {
    /// The steps that made what serves, the last one first.
    behind: Vec<Step>,
    /// The place among them of the one that made verdicts worse.
    culprit: usize,
    /// The numbers in words.
    why: String,
}

/// How many verdicts of an agent there are: while that stays, there is nothing new to look at.
///
/// # Errors
/// The log's.
pub(crate) async fn seen(shared: &Shared, agent: &AgentId) -> Result<VerdictsSeen, LogError> {
    let funnel = shared.persist(|| shared.log.funnel(Some(agent))).await?;
    Ok(VerdictsSeen {
        n_judged: funnel.judged,
        n_changed: shared.n_changed_verdicts(),
    })
}

/// Whether an agent's verdicts got worse under what serves.
///
/// # Errors
/// The log's.
pub(crate) async fn regression(
    shared: &Shared,
    agent: &AgentId,
    history: &mut VerdictHistory,
) -> Result<Option<Regression>, LogError> {
    let serving = shared.persist(|| shared.log.serving()).await?;
    let Some((_, serving)) = serving.into_iter().find(|(whose, _)| whose == agent) else {
        return Ok(None);
    };
    let steps = shared.persist(|| shared.log.steps(agent)).await?;
    let behind = behind(&steps, &serving);
    let kinds = verdicts(shared, agent, &steps, history).await?;
    for (verdicts, of) in kinds.iter().zip(["replies", "turns that call tools"]) {
        if let Some((culprit, why)) = culprit(verdicts, of, &behind) {
            let behind = behind.into_iter().cloned().collect();
            return Ok(Some(Regression {
                behind,
                culprit,
                why,
            }));
        }
    }
    Ok(None)
}

/// The steps that made an adapter, the last one first.
fn behind<'s>(steps: &'s [Step], adapter: &str) -> Vec<&'s Step> {
    let mut behind: Vec<&Step> = Vec::new();
    let mut name = Some(adapter);
    // Parents are older than their children; what is written otherwise ends here.
    while let Some(step) =
        name.and_then(|name| steps.iter().find(|it| adapter_of(it) == Some(name)))
        && behind.len() < steps.len()
    {
        behind.push(step);
        name = step.begun.parent.as_deref();
    }
    behind
}

/// What was taken back last, while no step has been trained since.
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

/// Which of the steps behind what serves made verdicts worse, and the numbers in words. Where they got worse under the base
/// model, or under what is not in the weights any more, none did.
fn culprit(verdicts: &[JudgedReply], of: &str, behind: &[&Step]) -> Option<(usize, String)> {
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

// === impl Regression ===

impl Regression {
    /// The newest adapter from before the culprit that the server still has; none is the base model.
    ///
    /// # Errors
    /// The server's, while it cannot be asked.
    pub(crate) async fn replacement(
        &self,
        runner: &StepRunner,
    ) -> Result<Option<AdapterName>, BackendError> {
        for step in self.behind.iter().skip(self.culprit + 1) {
            if let Some(name) = adapter_of(step).and_then(|name| name.parse().ok())
                && runner.answers(&name).await?
            {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Has `to` serve in the place of what serves; whether that served still.
    ///
    /// # Errors
    /// The log's.
    pub(crate) async fn take_back(
        &self,
        shared: &Shared,
        to: Option<AdapterName>,
    ) -> Result<bool, LogError> {
        let (Some(serving), why) = (self.behind.first(), self.why.as_str()) else {
            return Ok(false);
        };
        let name = to.as_ref().map(AdapterName::to_string);
        let roll_back = || shared.log.roll_back(serving, name.clone(), why);
        if !shared.persist(roll_back).await? {
            return Ok(false);
        }
        let (agent, from, to) = (&serving.begun.agent, adapter_of(serving), to.as_ref());
        let serves = to.map_or("the base model", AdapterName::as_str);
        tracing::error!(%agent, from, serves, why, "the adapter is taken back: verdicts got worse");
        (shared.on_swap)(agent, to);
        Ok(true)
    }
}
