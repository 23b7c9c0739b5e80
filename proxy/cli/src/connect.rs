//! Points the agents of this machine at the proxy, each at its own provider or at the model of the settings, and
//! restores their files. Commands do it, and the page.

use anyhow::{anyhow, ensure};
use metaclaw_control::agents::{AgentState, FoundAgent};
use metaclaw_wiring::{AgentProfile, AskedToday, PROFILES, WireStanding, detect, profile};

use self::{
    goal::{Goal, Routed, asks_text, with_hand},
    openclaw::OPENCLAW,
    own_settings::OwnSettings,
};
use crate::{
    commands::context::Context,
    wires::{agent_name, restored_text, surroundings, wires},
};

pub(crate) mod goal;
mod openclaw;
mod own_settings;

/// The agent's name on the command line.
pub(crate) const OPENCLAW_ID: &str = OPENCLAW.upstream;

/// Returns how the settings name the agent, or `None` if MetaClaw does not know it.
pub(crate) fn routed(id: &str) -> Option<Routed<'static>> {
    if id == OPENCLAW_ID {
        return Some(OPENCLAW);
    }
    let AgentProfile { id, name, .. } = profile(id)?;
    Some(Routed {
        agent: id,
        upstream: id,
        name,
    })
}

/// Restores the agent's files, and returns what it asks, or `None` if they do not say it.
pub(crate) fn asked_today(context: &Context, id: &str) -> anyhow::Result<Option<AskedToday>> {
    if id == OPENCLAW_ID {
        return Ok(Some((&openclaw::found(context)?).into()));
    }
    wires(&context.home).unwire(id).map_err(with_hand)?;
    let asked = |agent: &AgentProfile| agent.asked_today(&surroundings(&context.environment));
    Ok(profile(id).and_then(asked))
}

/// Has the agent keep its own model and login, unless the owner's settings name other upstreams for it.
pub(crate) fn keep(goal: &mut Goal, agent: Routed<'_>, asks: &AskedToday) -> anyhow::Result<()> {
    if goal.is_settled(agent) {
        return Ok(());
    }
    // What OpenClaw asks may answer for learning too.
    if agent.upstream == OPENCLAW_ID && goal.loaded.config.llm.api_base.is_none() {
        return goal.adopt(&openclaw::found(&goal.context)?);
    }
    let (home, file) = (goal.context.home.clone(), goal.file.clone());
    let settings = OwnSettings::new(&home, &file, agent);
    let before = settings.in_file()?;
    goal.keep(agent, asks)?;
    settings.record(before)
}

/// Points the agent at the proxy: at once if it runs, else whenever it runs. Returns what to tell.
pub(crate) fn connect(goal: &Goal, id: &str) -> anyhow::Result<Vec<String>> {
    let Some(agent) = profile(id) else {
        return openclaw::connect(goal);
    };
    goal.check(id)?;
    let home = &goal.context.home;
    home.create()?;
    let (wires, surroundings) = (wires(home), surroundings(&goal.context.environment));
    let (target, name) = (goal.target(id), &agent.name);
    let (notes, told) = if goal.running.is_some() {
        let origin = &target.origin;
        let told = format!("{name} asks MetaClaw at {origin}, {}", agent.takes_effect);
        (wires.wire(agent, &surroundings, &target), told)
    } else {
        let told = format!("{name} asks MetaClaw whenever MetaClaw runs");
        wires.unwire(id).map_err(with_hand)?;
        (wires.accept(agent, &surroundings, &target), told)
    };
    let notes = notes.map_err(with_hand)?.into_iter();
    let notes = notes.map(|note| format!("note: {note}"));
    Ok([told].into_iter().chain(notes).collect())
}

/// Restores the agent's files for good, and takes its provider out of the settings. Returns what was done, or `None` if it
/// was not wired.
pub(crate) fn disconnect(context: &Context, id: &str) -> anyhow::Result<Option<String>> {
    let files = if id == OPENCLAW_ID {
        openclaw::disconnect(context)?
    } else {
        restore(context, id)?
    };
    let file = context.settings_file();
    let take_back = |agent| OwnSettings::new(&context.home, &file, agent).take_back();
    let told = files.into_iter().chain(routed(id).and_then(take_back));
    let told: Vec<String> = told.collect();
    Ok((!told.is_empty()).then(|| told.join("; ")))
}

fn restore(context: &Context, id: &str) -> anyhow::Result<Option<String>> {
    let wires = wires(&context.home);
    let was_wired = wires.agents()?.iter().any(|wired| wired == id);
    ensure!(
        profile(id).is_some() || was_wired,
        "{id:?} is no agent that MetaClaw knows or has wired: `metaclaw wire` lists them"
    );
    let back = wires.unwire(id).map_err(with_hand)?;
    wires.forget(id)?;
    let as_it_was = || {
        format!(
            "{}: its files are as they were, and stay so",
            agent_name(id)
        )
    };
    Ok(restored_text(id, &back).or_else(|| was_wired.then(as_it_was)))
}

/// Returns what would change in the agent's files, and notes.
pub(crate) fn plan(goal: &Goal, id: &str, replaces: bool) -> anyhow::Result<Vec<String>> {
    let context = &goal.context;
    let Some(agent) = profile(id) else {
        return Ok(vec![openclaw::diff(goal)?]);
    };
    let surroundings = surroundings(&context.environment);
    let wires = wires(&context.home);
    let is_as_before = matches!(
        wires.standing(id)?,
        WireStanding::Unknown | WireStanding::Waits
    );
    let asks = agent.asked_today(&surroundings).filter(|_| is_as_before);
    let target = match (routed(id), &asks) {
        (Some(routed), Some(asks)) if !replaces && !goal.is_settled(routed) => {
            goal.own_target(id, asks)
        }
        _ => goal.target(id),
    };
    if wires.is_wired_to(id, &target)? {
        let name = &agent.name;
        return Ok(vec![format!(
            "{name} asks MetaClaw already: nothing would change"
        )]);
    }
    let plan = wires
        .plan(agent, &surroundings, &target)
        .map_err(with_hand)?;
    let notes = plan.notes.iter().map(|note| format!("note: {note}"));
    Ok([plan.diff()].into_iter().chain(notes).collect())
}

/// Returns the agents of this machine, in the order of the documentation.
pub(crate) fn agents(goal: &Goal) -> anyhow::Result<Vec<FoundAgent>> {
    let context = &goal.context;
    let (wires, surroundings) = (wires(&context.home), surroundings(&context.environment));
    let is_running = goal.running.is_some();
    let mut found = Vec::new();
    let (is, openclaw) = (
        openclaw::standing(context, is_running)?,
        detect(&surroundings),
    );
    if is != AgentState::NotWired || !matches!(openclaw, Ok(None)) {
        let asks = openclaw
            .as_ref()
            .ok()
            .and_then(Option::as_ref)
            .map(AskedToday::from);
        let mut row = row(goal, OPENCLAW, is, asks);
        if let Err(error) = openclaw.as_ref().map_err(ToString::to_string)
            && is == AgentState::NotWired
        {
            row.said = error;
        }
        found.push(row);
    }
    let mut ids = wires.agents()?;
    let here = PROFILES.iter().filter(|agent| surroundings.has(agent));
    ids.extend(here.map(|agent| agent.id.clone()));
    // Those that are no longer supported come last.
    let place = |id: &String| PROFILES.iter().position(|agent| agent.id == *id);
    ids.sort_by_key(|id| (place(id).unwrap_or(PROFILES.len()), id.clone()));
    ids.dedup();
    for id in ids {
        let is = state(wires.standing(&id)?, is_running);
        let known = profile(&id);
        let asks = known.and_then(|agent| agent.asked_today(&surroundings));
        let names = Routed {
            agent: &id,
            upstream: &id,
            name: agent_name(&id),
        };
        let mut row = row(goal, names, is, asks);
        if known.is_none() {
            row.said = format!("is no longer supported: `metaclaw unwire {id}`");
        }
        found.push(row);
    }
    Ok(found)
}

fn row(goal: &Goal, agent: Routed<'_>, is: AgentState, asks: Option<AskedToday>) -> FoundAgent {
    let asks = if matches!(is, AgentState::NotWired | AgentState::Waits) {
        asks.map(|asks| asks_text(asks.model.as_deref(), &asks.url))
    } else {
        let target = goal.target(agent.agent);
        target
            .upstream
            .map(|url| asks_text(target.model.as_deref(), &url))
    };
    FoundAgent {
        said: state_text(is, agent.upstream),
        agent: agent.upstream.to_owned(),
        name: agent.name.to_owned(),
        is,
        asks,
    }
}

fn state(standing: WireStanding, is_running: bool) -> AgentState {
    match (standing, is_running) {
        (WireStanding::Unknown, _) => AgentState::NotWired,
        (WireStanding::Waits, _) => AgentState::Waits,
        (WireStanding::Wired, true) => AgentState::Wired,
        (WireStanding::Changed, true) => AgentState::Changed,
        (WireStanding::Wired | WireStanding::Changed, false) => AgentState::Dead,
    }
}

fn state_text(is: AgentState, agent: &str) -> String {
    match is {
        AgentState::NotWired => format!("asks its own model: `metaclaw wire {agent}`"),
        AgentState::Waits => "asks MetaClaw from the next `metaclaw start` on".to_owned(),
        AgentState::Wired => "asks MetaClaw".to_owned(),
        AgentState::Dead => format!(
            "is pointed at a proxy that does not run: `metaclaw start`, or `metaclaw unwire {agent}`"
        ),
        AgentState::Changed => {
            format!("was changed since by others: `metaclaw wire {agent}` points it here again")
        }
    }
}

/// Has the agent keep its own model, whose address has to be known.
pub(crate) fn keep_known(goal: &mut Goal, id: &str) -> anyhow::Result<()> {
    let agent = routed(id).ok_or_else(|| anyhow!("{id:?} is no agent that MetaClaw knows"))?;
    let asks = asked_today(&goal.context, id)?.ok_or_else(|| {
        anyhow!(
            "the settings of {} do not say which model it asks",
            agent.name
        )
    })?;
    keep(goal, agent, &asks)
}
