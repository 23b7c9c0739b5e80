//! The agents that their owner wired: pointed at the proxy that runs, or left by a crash.

use metaclaw_settings::{Config, Policy};
use metaclaw_wiring::{AgentProfile, OPENCLAW, WireStanding, detect, profile};

use super::check::DoctorCheck;
use crate::{
    commands::context::Context,
    wires::{agent_name, is_answered, restored_text, surroundings, wires},
};

/// `proxy`: the base URL of the proxy that runs.
pub(super) fn checks(
    context: &Context,
    config: &Config,
    proxy: Option<&str>,
    fix: bool,
) -> Vec<DoctorCheck> {
    let wires = wires(&context.home);
    let agents = match wires.agents() {
        Ok(agents) => agents,
        Err(error) => {
            return vec![DoctorCheck::bad(
                "agent",
                error.to_string(),
                "check that you can read this folder",
            )];
        }
    };
    let wired = agents.iter().map(|id| check(context, id, proxy, fix));
    let mut checks: Vec<DoctorCheck> = wired.collect();
    let policy = Policy::from_config(config, &context.environment.cache());
    let policy = policy.unwrap_or(Policy::None);
    let known = agents.iter().filter_map(|id| profile(id));
    let unanswered = known.filter(|agent| !is_answered(agent.caller(), config, &policy));
    checks.extend(unanswered.map(|AgentProfile { id, name, .. }| {
        let said = format!("the settings name no upstream that answers {name}");
        DoctorCheck::bad(
            id,
            said,
            format!("`metaclaw wire {id}` relays what it asks today"),
        )
    }));
    let is_pointed = wires.standing(OPENCLAW).is_ok_and(WireStanding::is_pointed);
    let unread = detect(&surroundings(&context.environment)).err();
    if let Some(error) = unread.filter(|_| !is_pointed) {
        checks.push(DoctorCheck::note(OPENCLAW, error.to_string()));
    }
    if checks.is_empty() {
        checks.push(DoctorCheck::note(
            "agent",
            "none is wired: `metaclaw wire` lists those that are here; any client may use the base URL",
        ));
    }
    checks
}

/// Something that a crash left: says so, or has it restored.
fn left_over(context: &Context, id: &str, fix: bool) -> DoctorCheck {
    let name = agent_name(id);
    if !fix {
        let said = format!("{name} is pointed at a proxy that does not run (a crash, it seems)");
        let remedy = "`metaclaw doctor --fix` puts its files back, `metaclaw start` goes on";
        return DoctorCheck::bad(id, said, remedy);
    }
    // The lock prevents that a proxy starts in the meantime.
    let lock = context.home.lock("doctor").map_err(anyhow::Error::from);
    match lock.and_then(|_lock| Ok(wires(&context.home).unwire(id)?)) {
        Ok(back) => {
            let nothing = || format!("{name}: nothing to do");
            DoctorCheck::mended(id, restored_text(id, &back).unwrap_or_else(nothing))
        }
        Err(error) => {
            let copies = "put its files back by hand: wiring/*.before in the home are the copies";
            DoctorCheck::bad(id, error.to_string(), copies)
        }
    }
}

fn check(context: &Context, id: &str, proxy: Option<&str>, fix: bool) -> DoctorCheck {
    let (name, wires) = (agent_name(id), wires(&context.home));
    if fix && let Err(error) = wires.remove_unfinished(id) {
        return DoctorCheck::bad(
            id,
            error.to_string(),
            "check that you can read its folder and remove files from it",
        );
    }
    let (standing, record) = match (wires.standing(id), wires.record(id)) {
        (Ok(standing), Ok(Some(record))) => (standing, record),
        (Ok(_), Ok(None)) => return DoctorCheck::note(id, format!("{name} is not wired")),
        (Err(error), _) | (_, Err(error)) => {
            return DoctorCheck::bad(
                id,
                error.to_string(),
                "check that you can read this file, and correct it",
            );
        }
    };
    match (standing, proxy) {
        (WireStanding::Unknown | WireStanding::Waits, _) if profile(id).is_none() => {
            DoctorCheck::note(
                id,
                format!("{name} is no longer supported: `metaclaw unwire {id}` forgets it"),
            )
        }
        (WireStanding::Unknown | WireStanding::Waits, None) => {
            DoctorCheck::fine(id, format!("{name} asks MetaClaw from the next start on"))
        }
        (WireStanding::Unknown | WireStanding::Waits, Some(_)) => DoctorCheck::bad(
            id,
            format!("{name} does not ask MetaClaw, which runs"),
            format!("`metaclaw wire {id}`"),
        ),
        (WireStanding::Wired, Some(proxy)) if record.origin != proxy.trim_end_matches("/v1") => {
            let said = format!("{name} asks {}, and the proxy is at {proxy}", record.origin);
            DoctorCheck::bad(id, said, "`metaclaw stop`, then `metaclaw start`")
        }
        (WireStanding::Wired, Some(_)) => DoctorCheck::fine(id, format!("{name} asks MetaClaw")),
        (WireStanding::Changed, Some(_)) => DoctorCheck::note(
            id,
            format!(
                "the files of {name} were changed while MetaClaw ran: `metaclaw wire {id}` points it here again"
            ),
        ),
        (WireStanding::Wired | WireStanding::Changed, None) => left_over(context, id, fix),
    }
}
