//! OpenClaw, and the agents that `metaclaw wire` named: pointed at the proxy that runs, or left by a crash.

use metaclaw_wiring::{Standing, WireStanding, detect, profile};

use super::check::DoctorCheck;
use crate::{
    agent::{outcome_text, surroundings, wiring},
    commands::context::Context,
    wires::{self, agent_name, wires},
};

const NAME: &str = "agent";

/// `proxy`: the base URL of the proxy that runs.
pub(super) fn check(context: &Context, proxy: Option<&str>, fix: bool) -> DoctorCheck {
    let wiring = wiring(&context.home);
    let standing = match wiring.standing() {
        Ok(standing) => standing,
        Err(error) => return DoctorCheck::bad(NAME, error.to_string(), "check that file"),
    };
    match (standing, proxy) {
        (Standing::Unwired, _) => unwired(context, proxy.is_some()),
        (Standing::Wired { .. } | Standing::Changed, None) => {
            left_over(context, NAME, "OpenClaw", fix, || {
                let outcome = wiring.unwire()?;
                Ok(outcome_text(&outcome).map(|said| format!("OpenClaw: {said}")))
            })
        }
        (Standing::Changed, Some(_)) => DoctorCheck::note(
            NAME,
            "OpenClaw's model was changed while we ran: it asks another one now",
        ),
        (
            Standing::Wired {
                base_url,
                has_fallback,
            },
            Some(proxy),
        ) => {
            let same = |url: &str| url.trim_end_matches("/v1").to_owned();
            if same(&base_url) != same(proxy) {
                let said = format!("OpenClaw asks {base_url}, and the proxy is at {proxy}");
                DoctorCheck::bad(NAME, said, "`metaclaw stop`, then `metaclaw start`")
            } else if has_fallback {
                DoctorCheck::fine(
                    NAME,
                    format!("OpenClaw asks {base_url} first, and its former model next"),
                )
            } else {
                let said = "OpenClaw asks us, and nobody where we do not answer";
                DoctorCheck::bad(
                    NAME,
                    said,
                    "`metaclaw stop`, then `metaclaw start` puts its former model next",
                )
            }
        }
    }
}

/// Something that a crash left: says so, or has it restored.
fn left_over(
    context: &Context,
    check: &str,
    agent: &str,
    fix: bool,
    restore: impl FnOnce() -> anyhow::Result<Option<String>>,
) -> DoctorCheck {
    if !fix {
        let said = format!("{agent} is pointed at a proxy that does not run (a crash, it seems)");
        let remedy = "`metaclaw doctor --fix` puts its files back, `metaclaw start` goes on";
        return DoctorCheck::bad(check, said, remedy);
    }
    // The lock prevents that a proxy starts in the meantime.
    let lock = context.home.lock("doctor").map_err(anyhow::Error::from);
    match lock.and_then(|_lock| restore()) {
        Ok(said) => {
            let nothing = || format!("{agent}: nothing to do");
            DoctorCheck::mended(check, said.unwrap_or_else(nothing))
        }
        Err(error) => {
            let copies = "put its files back by hand: wiring/*.before in the home are the copies";
            DoctorCheck::bad(check, error.to_string(), copies)
        }
    }
}

fn unwired(context: &Context, is_running: bool) -> DoctorCheck {
    let is_accepted = wiring(&context.home).record().ok().flatten().is_some();
    match (detect(&surroundings(&context.environment)), is_accepted) {
        (Err(error), _) => DoctorCheck::note(NAME, error.to_string()),
        (Ok(None), _) => DoctorCheck::note(
            NAME,
            "no OpenClaw is configured here; `metaclaw wire` lists the other agents",
        ),
        (Ok(Some(_)), true) if is_running => DoctorCheck::bad(
            NAME,
            "OpenClaw does not ask us",
            "`metaclaw stop`, then `metaclaw start`, whose line `agent` says why",
        ),
        (Ok(Some(found)), true) => DoctorCheck::fine(
            NAME,
            format!(
                "OpenClaw asks {}/{} itself, until the next start",
                found.provider, found.model
            ),
        ),
        (Ok(Some(_)), false) => DoctorCheck::note(
            NAME,
            "OpenClaw does not ask us: `metaclaw start --yes` points it at the proxy",
        ),
    }
}

pub(super) fn check_wires(context: &Context, is_running: bool, fix: bool) -> Vec<DoctorCheck> {
    match wires(&context.home).agents() {
        Ok(agents) => agents
            .iter()
            .filter_map(|agent| check_wire(context, agent, is_running, fix))
            .collect(),
        Err(error) => vec![DoctorCheck::bad(
            "wires",
            error.to_string(),
            "check that folder",
        )],
    }
}

fn check_wire(context: &Context, id: &str, is_running: bool, fix: bool) -> Option<DoctorCheck> {
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
        (WireStanding::Wired | WireStanding::Changed, false) => {
            left_over(context, id, name, fix, || {
                let back = wires(&context.home).unwire(id)?;
                Ok(wires::restored_text(id, &back))
            })
        }
    })
}
