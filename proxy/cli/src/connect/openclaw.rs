//! OpenClaw: `metaclaw start` wires it as well, and its former model becomes its fallback.

use anyhow::{Context as _, bail};
use metaclaw_control::agents::AgentState;
use metaclaw_wiring::{Found, Models, Outcome, Standing, detect};

use super::goal::{Goal, Routed, with_hand};
use crate::{
    agent::{outcome_text, surroundings, wiring},
    commands::context::Context,
};

/// `main` is the name of the agent that a key has to be valid for (`proxy.keys`).
pub(super) const OPENCLAW: Routed<'_> = Routed {
    agent: "main",
    upstream: "openclaw",
    name: "OpenClaw",
};

/// Restores OpenClaw's file, and returns what it asks.
pub(super) fn found(context: &Context) -> anyhow::Result<Found> {
    wiring(&context.home).unwire().map_err(with_hand)?;
    let Some(found) = detect(&surroundings(&context.environment))? else {
        bail!("no OpenClaw is configured here");
    };
    Ok(found)
}

pub(super) fn connect(goal: &Goal) -> anyhow::Result<Vec<String>> {
    goal.check(OPENCLAW.agent)
        .context("`metaclaw start --yes` takes over what OpenClaw asks")?;
    let (wiring, target) = (wiring(&goal.context.home), goal.target(OPENCLAW.agent));
    let found = found(&goal.context)?;
    let Models { ours, former } = Models::planned(&found, &target);
    let told = if goal.running.is_some() {
        wiring.wire(&found, &target).map_err(with_hand)?;
        format!("OpenClaw asks {ours}, and {former} where that fails")
    } else {
        wiring.accept(&found)?;
        "OpenClaw asks MetaClaw whenever MetaClaw runs".to_owned()
    };
    Ok(vec![told])
}

pub(super) fn diff(goal: &Goal) -> anyhow::Result<String> {
    let Some(found) = detect(&surroundings(&goal.context.environment))? else {
        bail!("no OpenClaw is configured here");
    };
    let wiring = wiring(&goal.context.home);
    wiring
        .diff(&found, &goal.target(OPENCLAW.agent))
        .map_err(with_hand)
}

/// Returns what was done, or `None` if OpenClaw was not wired.
pub(super) fn disconnect(context: &Context) -> anyhow::Result<Option<String>> {
    let wiring = wiring(&context.home);
    let was_wired = wiring.record()?.is_some();
    let outcome = wiring.unwire().map_err(with_hand)?;
    wiring.forget()?;
    let said = match outcome {
        Outcome::Nothing if was_wired => Some("its file is as it was, and stays so"),
        outcome => outcome_text(&outcome),
    };
    Ok(said.map(|said| format!("OpenClaw: {said}")))
}

pub(super) fn standing(context: &Context, is_running: bool) -> anyhow::Result<AgentState> {
    let wiring = wiring(&context.home);
    Ok(match (wiring.standing()?, is_running) {
        (Standing::Wired { .. }, true) => AgentState::Wired,
        (Standing::Changed, true) => AgentState::Changed,
        (Standing::Wired { .. } | Standing::Changed, false) => AgentState::Dead,
        (Standing::Unwired, _) if wiring.record()?.is_some() => AgentState::Waits,
        (Standing::Unwired, _) => AgentState::NotWired,
    })
}
