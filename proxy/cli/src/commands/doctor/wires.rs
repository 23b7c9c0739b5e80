//! Checks the agents that `metaclaw wire` named. After a crash they may use a proxy that does not run.

use metaclaw_wiring::{WireStanding, profile};

use super::check::DoctorCheck;
use crate::{
    commands::context::Context,
    wires::{agent_name, told, wires},
};

/// Returns a check for each wired agent.
pub(super) fn checks(context: &Context, is_running: bool, fix: bool) -> Vec<DoctorCheck> {
    match wires(&context.home).agents() {
        Ok(agents) => agents
            .iter()
            .filter_map(|agent| check(context, agent, is_running, fix))
            .collect(),
        Err(error) => vec![DoctorCheck::bad(
            "wires",
            error.to_string(),
            "check that folder",
        )],
    }
}

fn check(context: &Context, id: &str, is_running: bool, fix: bool) -> Option<DoctorCheck> {
    let name = agent_name(id);
    let standing = match wires(&context.home).standing(id) {
        Ok(standing) => standing,
        Err(error) => {
            return Some(DoctorCheck::bad(id, error.to_string(), "check that file"));
        }
    };
    Some(match (standing, is_running) {
        (WireStanding::Unknown, _) => return None,
        (WireStanding::Waits, _) if profile(id).is_none() => DoctorCheck::note(
            id,
            format!("{name} is no longer supported: `metaclaw unwire {id}` forgets it"),
        ),
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
        (WireStanding::Wired | WireStanding::Changed, false) => left_over(context, id, fix),
    })
}

/// Reports files that a crash left changed, and restores them with `fix`.
fn left_over(context: &Context, id: &str, fix: bool) -> DoctorCheck {
    let name = agent_name(id);
    if !fix {
        let said = format!("{name} is pointed at a proxy that does not run (a crash, it seems)");
        let remedy = "`metaclaw doctor --fix` puts its files back, `metaclaw start` goes on";
        return DoctorCheck::bad(id, said, remedy);
    }
    // The lock prevents that a proxy starts in the meantime.
    let unwired = context.home.lock("doctor").map_err(anyhow::Error::from);
    match unwired.and_then(|_lock| Ok(wires(&context.home).unwire(id)?)) {
        Ok(back) => DoctorCheck::mended(
            id,
            told(id, &back).unwrap_or_else(|| format!("{name}: nothing to do")),
        ),
        Err(error) => {
            let remedy = format!(
                "put its files back by hand: wiring/{id}.*.before in the home are the copies"
            );
            DoctorCheck::bad(id, error.to_string(), remedy)
        }
    }
}
