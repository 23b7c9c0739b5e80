//! Checks the agents that `metaclaw wire` named. After a crash they may use a proxy that does not run.

use metaclaw_wiring::{AgentProfile, PROFILES, WireStanding};

use super::check::DoctorCheck;
use crate::{
    commands::context::Context,
    wires::{told, wires},
};

/// Returns a check for each wired agent.
pub(super) fn checks(context: &Context, is_running: bool, fix: bool) -> Vec<DoctorCheck> {
    let agents = PROFILES.into_iter();
    agents
        .filter_map(|agent| check(context, agent, is_running, fix))
        .collect()
}

fn check(
    context: &Context,
    agent: &'static dyn AgentProfile,
    is_running: bool,
    fix: bool,
) -> Option<DoctorCheck> {
    let (id, name) = (agent.id(), agent.name());
    let standing = match wires(&context.home).standing(agent) {
        Ok(standing) => standing,
        Err(error) => return Some(DoctorCheck::bad(id, error.to_string(), "look at that file")),
    };
    Some(match (standing, is_running) {
        (WireStanding::Unknown, _) => return None,
        (WireStanding::Waits, false) => {
            DoctorCheck::fine(id, format!("{name} asks MetaClaw from the next start on"))
        }
        (WireStanding::Waits, true) => DoctorCheck::bad(
            id,
            format!("{name} does not ask MetaClaw, which runs"),
            format!("`metaclaw wire {id}`"),
        ),
        (WireStanding::Wired, true) => DoctorCheck::fine(id, format!("{name} asks MetaClaw")),
        (WireStanding::Changed, true) => DoctorCheck::note(
            id,
            format!(
                "the files of {name} were changed while MetaClaw ran: `metaclaw wire {id}` points it here again"
            ),
        ),
        (WireStanding::Wired | WireStanding::Changed, false) => left_over(context, agent, fix),
    })
}

/// Reports files that a crash left changed, and restores them with `fix`.
fn left_over(context: &Context, agent: &'static dyn AgentProfile, fix: bool) -> DoctorCheck {
    let (id, name) = (agent.id(), agent.name());
    if !fix {
        let said = format!("{name} is pointed at a proxy that does not run (a crash, it seems)");
        let remedy = "`metaclaw doctor --fix` puts its files back, `metaclaw start` goes on";
        return DoctorCheck::bad(id, said, remedy);
    }
    // The lock prevents that a proxy starts in the meantime.
    let unwired = context.home.lock("doctor").map_err(anyhow::Error::from);
    match unwired.and_then(|_lock| Ok(wires(&context.home).unwire(agent)?)) {
        Ok(back) => DoctorCheck::mended(
            id,
            told(agent, &back).unwrap_or_else(|| format!("{name}: nothing to do")),
        ),
        Err(error) => {
            let remedy = format!(
                "put its files back by hand: wiring/{id}.*.before in the home are the copies"
            );
            DoctorCheck::bad(id, error.to_string(), remedy)
        }
    }
}
