//! `metaclaw doctor`: what is wrong, and what to do about it.

use std::process::ExitCode;

use clap::Args;
use metaclaw_settings::Loaded;

use super::context::Context;
use crate::out;

mod agent;
mod check;
mod context;
mod home;
mod proxy;
mod turns;
mod upstream;
mod wires;

use self::check::{CheckOutcome, DoctorCheck};

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Repair what can be repaired: modes of files, turns of logs that were set aside, files of agents after a crash.
    #[arg(long)]
    fix: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

// === impl DoctorArgs ===

impl DoctorArgs {
    /// Does it.
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let checks = self.checks(context).await;
        if self.json {
            out::json(&checks)?;
        } else {
            for check in &checks {
                out::line(check.line())?;
            }
        }
        let is_well = checks.iter().all(|check| check.is != CheckOutcome::Bad);
        Ok(if is_well {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    async fn checks(&self, context: &Context) -> Vec<DoctorCheck> {
        let loaded = context.settings(None, Vec::new());
        let mut checks = vec![settings(
            context,
            loaded.as_ref().map_err(ToString::to_string),
        )];
        checks.extend(home::checks(context, self.fix));
        let Ok(loaded) = loaded else {
            return checks;
        };
        let (check, running) = proxy::check(context, &loaded).await;
        checks.push(check);
        checks.extend(context::check(context, &loaded).await);
        checks.extend(turns::checks(context, &loaded, self.fix).await);
        checks.push(agent::check(context, running.as_deref(), self.fix));
        checks.extend(wires::checks(context, running.is_some(), self.fix));
        checks.push(upstream::check(&loaded).await);
        checks.push(DoctorCheck::note(
            "service",
            super::service::status(&context.environment),
        ));
        checks
    }
}

/// The settings, and the policy model that they name.
fn settings(context: &Context, loaded: Result<&Loaded, String>) -> DoctorCheck {
    const NAME: &str = "settings";
    let path = context.home.config();
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(error) => return DoctorCheck::bad(NAME, error, "mend the keys that are named"),
    };
    let relays = match context.relays(&loaded.config) {
        Ok(relays) => relays,
        Err(error) => {
            return DoctorCheck::bad(NAME, error.to_string(), "mend the key that is named");
        }
    };
    let unknown: Vec<String> = loaded.unknown.iter().map(ToString::to_string).collect();
    let mode = loaded.config.learner.mode.as_str();
    match (path.exists(), unknown.is_empty()) {
        (false, true) if relays => DoctorCheck::fine(
            NAME,
            format!(
                "from the environment, without {} (mode {mode})",
                path.display()
            ),
        ),
        (false, _) if !relays => DoctorCheck::bad(
            NAME,
            format!(
                "{} is not there, so there is no model to relay to",
                path.display()
            ),
            "`metaclaw setup` asks for one and writes the file; with OpenClaw, `metaclaw start` uses OpenClaw's model",
        ),
        (_, false) => DoctorCheck::note(NAME, unknown.join("; ")),
        (_, true) => DoctorCheck::fine(NAME, format!("{} (mode {mode})", path.display())),
    }
}
