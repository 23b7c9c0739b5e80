//! Points the agents of this machine at the proxy, each at its own provider or at the model of the settings, and
//! restores their files. Commands do it, and the page.

use anyhow::{Context as _, ensure};
use metaclaw_control::agents::{AgentState, FoundAgent};
use metaclaw_settings::address::{host, is_here};
use metaclaw_wiring::{
    AgentProfile, AskedToday, OPENCLAW, PROFILES, WireStanding, detect, profile,
};

use self::{
    goal::{Goal, asks_text},
    own_settings::OwnSettings,
};
use crate::{
    asked::{Hearing, Judging, hearer},
    commands::context::Context,
    wires::{agent_name, order_text, restored_text, surroundings, wires, with_hand},
};

pub(crate) mod goal;
mod own_settings;

/// Restores the agent's files, and returns what it asks, or `None` if they do not say it.
pub(crate) fn asked_today(
    context: &Context,
    agent: &AgentProfile,
) -> anyhow::Result<Option<AskedToday>> {
    wires(&context.home).unwire(&agent.id).map_err(with_hand)?;
    Ok(agent.asked_today(&surroundings(&context.environment))?)
}

/// Has the agent keep its own model and login, unless the owner's settings name other upstreams for it.
pub(crate) fn keep(goal: &mut Goal, agent: &AgentProfile, asks: &AskedToday) -> anyhow::Result<()> {
    if goal.is_settled(agent) {
        return Ok(());
    }
    goal.check_address(agent, asks)?;
    // What OpenClaw asks may answer for learning too.
    if agent.id == OPENCLAW
        && goal.loaded.config.llm.api_base.is_none()
        && let Some(found) = detect(&surroundings(&goal.context.environment))?
    {
        return goal.adopt(&found);
    }
    // What cannot be done is refused before the settings are changed.
    let target = goal.own_target(agent.caller(), asks);
    let surroundings = surroundings(&goal.context.environment);
    let planned = wires(&goal.context.home).plan(agent, &surroundings, &target);
    planned.map_err(with_hand)?;
    let (home, file) = (goal.context.home.clone(), goal.file.clone());
    let settings = OwnSettings::new(&home, &file, agent);
    let before = settings.in_file()?;
    goal.keep(agent, asks)?;
    settings.record(before)
}

/// Has the other model of the settings answer the agent. What an earlier `wire` wrote for it is taken out.
/// Returns what to tell.
pub(crate) fn replace(goal: &mut Goal, agent: &AgentProfile) -> anyhow::Result<Option<String>> {
    let told = OwnSettings::new(&goal.context.home, &goal.file, agent).take_back();
    goal.replace(agent)?;
    Ok(told)
}

/// Points the agent at the proxy: at once if it runs, else whenever it runs. Returns what to tell.
pub(crate) fn connect(goal: &Goal, agent: &AgentProfile) -> anyhow::Result<Vec<String>> {
    goal.check(agent.caller())?;
    let home = &goal.context.home;
    home.create()?;
    let (wires, surroundings) = (wires(home), surroundings(&goal.context.environment));
    let (target, name) = (goal.target(agent.caller()), &agent.name);
    let (notes, told) = if goal.running.is_some() {
        let notes = wires.wire(agent, &surroundings, &target);
        let (origin, from) = (&target.origin, &agent.takes_effect);
        let told = order_text(&wires, agent);
        let told = told.unwrap_or_else(|| format!("{name} asks MetaClaw at {origin}, {from}"));
        (notes, told)
    } else {
        let told = format!("{name} asks MetaClaw whenever MetaClaw runs");
        wires.unwire(&agent.id).map_err(with_hand)?;
        (wires.accept(agent, &surroundings, &target), told)
    };
    let notes = notes.map_err(with_hand)?.into_iter();
    let notes = notes.chain(learning_note(goal));
    let notes = notes.map(|note| format!("note: {note}"));
    Ok([told].into_iter().chain(notes).collect())
}

/// Returns where the words of every agent go besides its own provider, if that is another machine.
fn learning_note(goal: &Goal) -> Option<String> {
    let (config, policy) = (&goal.loaded.config, &goal.policy);
    let judging = Judging::from_config(config, policy).ok()?;
    let Hearing::Model(model) = hearer(config, policy, &judging)? else {
        return None;
    };
    (!is_here(&model.url)).then(|| {
        let host = host(&model.url);
        format!("to detect wishes and judge replies, MetaClaw may send what you say to any agent to {host} (llm.*, judge.*)")
    })
}

/// Restores the agent's files for good, and takes its provider out of the settings. Returns what was done, or `None` if it
/// was not wired.
pub(crate) fn disconnect(context: &Context, id: &str) -> anyhow::Result<Option<String>> {
    let files = restore(context, id)?;
    let file = context.settings_file();
    let take_back = |agent| OwnSettings::new(&context.home, &file, agent).take_back();
    let told = files.into_iter().chain(profile(id).and_then(take_back));
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
pub(crate) fn plan(
    goal: &Goal,
    agent: &AgentProfile,
    replaces: bool,
) -> anyhow::Result<Vec<String>> {
    let (context, id) = (&goal.context, &agent.id);
    let surroundings = surroundings(&context.environment);
    let wires = wires(&context.home);
    let is_open = !replaces && !wires.standing(id)?.is_pointed() && !goal.is_settled(agent);
    let target = match agent.asked_today(&surroundings) {
        Ok(Some(asks)) if is_open => goal.own_target(agent.caller(), &asks),
        _ => goal.target(agent.caller()),
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
    let mut ids = wires.agents()?;
    let here = PROFILES.iter().filter(|agent| surroundings.has(agent));
    ids.extend(here.map(|agent| agent.id.clone()));
    // Those that are no longer supported come last.
    let place = |id: &String| PROFILES.iter().position(|agent| agent.id == *id);
    ids.sort_by_key(|id| (place(id).unwrap_or(PROFILES.len()), id.clone()));
    ids.dedup();
    let found = ids.into_iter().map(|id| {
        let is = state(wires.standing(&id)?, goal.running.is_some());
        let (asks, said) = match profile(&id) {
            None => (
                None,
                format!("is no longer supported: `metaclaw unwire {id}`"),
            ),
            Some(agent) if matches!(is, AgentState::NotWired | AgentState::Waits) => {
                match agent.asked_today(&surroundings) {
                    Ok(asks) => {
                        let asks = asks.map(|asks| asks_text(asks.model.as_deref(), &asks.url));
                        (asks, state_text(is, &id))
                    }
                    Err(error) => (None, error.to_string()),
                }
            }
            Some(agent) => {
                let target = goal.target(agent.caller());
                let asks = |url: String| asks_text(target.model.as_deref(), &url);
                (target.upstream.clone().map(asks), state_text(is, &id))
            }
        };
        Ok(FoundAgent {
            said,
            name: agent_name(&id).to_owned(),
            agent: id,
            is,
            asks,
        })
    });
    found.collect()
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
        AgentState::NotWired => format!("not connected: `metaclaw wire {agent}` connects it"),
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
pub(crate) fn keep_known(goal: &mut Goal, agent: &AgentProfile) -> anyhow::Result<()> {
    let asks = asked_today(&goal.context, agent)?.with_context(|| {
        format!(
            "the settings of {} do not say which model it asks",
            agent.name
        )
    })?;
    keep(goal, agent, &asks)
}
