//! `metaclaw doctor`: what is wrong, and what to do about it.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::context::Context;
use crate::{
    config::{Loaded, Policy},
    out,
};

mod agent;
mod home;
mod proxy;
mod upstream;

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Mend what can be mended: modes of files, what a crash left in the agent's own file.
    #[arg(long)]
    fix: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    name: &'static str,
    is: Verdict,
    /// What was seen.
    said: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Fine,
    /// Worth a word, and no fault.
    Note,
    Bad,
    /// It was bad, and is mended.
    Mended,
}

// === impl Check ===

impl Check {
    fn fine(name: &'static str, said: impl Into<String>) -> Self {
        Self::new(name, Verdict::Fine, said)
    }

    fn note(name: &'static str, said: impl Into<String>) -> Self {
        Self::new(name, Verdict::Note, said)
    }

    fn mended(name: &'static str, said: impl Into<String>) -> Self {
        Self::new(name, Verdict::Mended, said)
    }

    fn bad(name: &'static str, said: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            remedy: Some(remedy.into()),
            ..Self::new(name, Verdict::Bad, said)
        }
    }

    fn new(name: &'static str, is: Verdict, said: impl Into<String>) -> Self {
        Self {
            name,
            is,
            said: said.into(),
            remedy: None,
        }
    }

    fn line(&self) -> String {
        let mark = match self.is {
            Verdict::Fine => "ok  ",
            Verdict::Note => "note",
            Verdict::Bad => "BAD ",
            Verdict::Mended => "done",
        };
        let remedy = self
            .remedy
            .as_ref()
            .map(|it| format!("\n                -> {it}"));
        format!(
            "{mark}  {:<9} {}{}",
            self.name,
            self.said,
            remedy.unwrap_or_default()
        )
    }
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
        let is_well = checks.iter().all(|check| check.is != Verdict::Bad);
        Ok(if is_well {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    async fn checks(&self, context: &Context) -> Vec<Check> {
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
        checks.push(agent::check(context, running.as_deref(), self.fix));
        checks.push(upstream::check(&loaded).await);
        checks.push(Check::note(
            "service",
            super::service::status(&context.environment),
        ));
        checks
    }
}

/// The settings, and the policy model that they name.
fn settings(context: &Context, loaded: Result<&Loaded, String>) -> Check {
    const NAME: &str = "settings";
    let path = context.home.config();
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(error) => return Check::bad(NAME, error, "mend the keys that are named"),
    };
    let policy = Policy::from_config(&loaded.config, &context.environment.cache());
    if let Err(error) = policy {
        return Check::bad(NAME, error.to_string(), "mend the key that is named");
    }
    let unknown: Vec<String> = loaded.unknown.iter().map(ToString::to_string).collect();
    let mode = loaded.config.mode.as_str();
    match (path.exists(), unknown.is_empty()) {
        (false, _) => Check::bad(
            NAME,
            format!("{} is not there", path.display()),
            "`metaclaw start` writes one from OpenClaw's own, `metaclaw setup` asks",
        ),
        (true, false) => Check::note(NAME, unknown.join("; ")),
        (true, true) => Check::fine(NAME, format!("{} (mode {mode})", path.display())),
    }
}
