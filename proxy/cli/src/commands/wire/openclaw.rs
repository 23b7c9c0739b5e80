//! OpenClaw: `metaclaw start` wires it as well, and its former model becomes its fallback.

use anyhow::{Context as _, bail};
use metaclaw_wiring::{Models, Outcome, Standing, detect};

use super::{
    goal::{Goal, with_hand},
    row::{Row, State},
};
use crate::{
    agent::{outcome_text, surroundings, wiring},
    commands::context::Context,
    out,
};

pub(super) const ID: &str = "openclaw";
const NAME: &str = "OpenClaw";
/// The name of the agent that a key has to be valid for (`proxy.keys`).
const AGENT: &str = "main";

pub(super) fn wire(context: &Context, dry_run: bool) -> anyhow::Result<()> {
    let goal = Goal::load(context)?;
    goal.check(AGENT)
        .context("`metaclaw start --yes` takes over what OpenClaw asks")?;
    let (wiring, target) = (wiring(&context.home), goal.target(AGENT));
    if wiring.is_wired_to(&target)? {
        return Ok(out::line("OpenClaw asks MetaClaw already")?);
    }
    if !dry_run {
        wiring.unwire().map_err(with_hand)?;
    }
    let Some(found) = detect(&surroundings(&context.environment))? else {
        bail!("no OpenClaw is configured here");
    };
    let Models { ours, former } = Models::planned(&found, &target);
    if dry_run {
        let diff = wiring.diff(&found, &target).map_err(with_hand)?;
        return Ok(out::line(diff.trim_end())?);
    }
    context.home.create()?;
    if goal.running.is_some() {
        wiring.wire(&found, &target).map_err(with_hand)?;
        out::line(format!(
            "OpenClaw asks {ours}, and {former} where that fails"
        ))?;
    } else {
        wiring.accept(&found)?;
        out::line("OpenClaw asks MetaClaw from the next `metaclaw start` on")?;
    }
    out::line(
        "`metaclaw stop` puts its file back until the next start, `metaclaw unwire openclaw` for good",
    )?;
    Ok(())
}

pub(super) fn unwire(context: &Context) -> anyhow::Result<bool> {
    let wiring = wiring(&context.home);
    let was_wired = wiring.record()?.is_some();
    let outcome = wiring.unwire().map_err(with_hand)?;
    wiring.forget()?;
    let said = match outcome {
        Outcome::Nothing if was_wired => Some("its file is as it was, and stays so"),
        outcome => outcome_text(&outcome),
    };
    if let Some(said) = said {
        out::line(format!("OpenClaw: {said}"))?;
    }
    Ok(was_wired)
}

pub(super) fn row(context: &Context, is_running: bool) -> anyhow::Result<Option<Row>> {
    let wiring = wiring(&context.home);
    let is = match (wiring.standing()?, is_running) {
        (Standing::Wired { .. }, true) => State::Wired,
        (Standing::Changed, true) => State::Changed,
        (Standing::Wired { .. } | Standing::Changed, false) => State::Dead,
        (Standing::Unwired, _) if wiring.record()?.is_some() => State::Waits,
        (Standing::Unwired, _) => State::NotWired,
    };
    let found = detect(&surroundings(&context.environment));
    if is == State::NotWired && matches!(found, Ok(None)) {
        return Ok(None);
    }
    let said = match found {
        Err(error) if is == State::NotWired => error.to_string(),
        _ => is.text(ID),
    };
    Ok(Some(Row {
        agent: ID.to_owned(),
        name: NAME.to_owned(),
        is,
        said,
    }))
}
