//! `metaclaw report`: what happened in a day, or in several.

use std::{process::ExitCode, sync::Arc};

use clap::Args;
use jiff::{Zoned, civil::Date, tz::TimeZone};
use metaclaw_chat::now_ms;
use metaclaw_settings::Policy;

use super::{
    context::Context,
    library::files,
    source::{TurnSource, running},
};
use crate::{
    assemble::{Purse, kept},
    out,
    report::{self, Period, Report, Sources},
};

/// Arguments of `report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The day, as in 2026-11-22; today without one.
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = day, conflicts_with = "days")]
    day: Option<Date>,
    /// So many days together, today among them.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=366))]
    days: Option<u32>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

fn day(text: &str) -> Result<Date, String> {
    let day = text.parse();
    day.map_err(|_| "a day is written as in 2026-11-22".to_owned())
}

// === impl ReportArgs ===

impl ReportArgs {
    /// Does it.
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let today = Zoned::now().date();
        let last = self.day.unwrap_or(today);
        let period = Period::until(last, self.days.unwrap_or(1));
        let report = of(context, period).await?;
        if self.json {
            out::json(&report)?;
        } else {
            out::line(report::markdown(&report, None))?;
            let backend = context.settings(None, Vec::new())?.config.rl;
            if let Some(spend) = kept(&context.home.cloud_spend(), &backend, now_ms()) {
                out::line(format!("Training server: {}.", spend.line()))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Asks the running process, else looks through the files.
async fn of(context: &Context, period: Period) -> anyhow::Result<Report> {
    if let Some(client) = running(&context.home).await? {
        return Ok(client.ask("report", &period).await?);
    }
    let loaded = context.settings(None, Vec::new())?;
    let policy = Policy::from_config(&loaded.config, &context.environment.cache())?;
    let weights = policy.is_some() && loaded.config.learner.learns();
    match TurnSource::open(context, "report").await? {
        TurnSource::Running(client) => Ok(client.ask("report", &period).await?),
        TurnSource::Files { log, _lock } => {
            let budget = loaded.config.budget.clone();
            let purse = Purse::open(budget, context.home.spend(), log.clone());
            let sources = Sources {
                log: log.clone(),
                library: files(context)?,
                weights,
                purse: Arc::new(purse),
                zone: TimeZone::system(),
            };
            let report = report::gather(&sources, period, now_ms()).await;
            log.close().await;
            report
        }
    }
}
