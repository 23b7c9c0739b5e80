//! `metaclaw report`: what happened in a day, or in several.

use clap::Args;
use jiff::civil::Date;
use metaclaw_chat::now_ms;
use metaclaw_control::{
    cloud_spend::kept,
    figures::{Period, date_of},
    operations::process::GetReport,
    report::markdown,
};

use super::{calling::call, context::Context};
use crate::{assemble::prices, out};

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The day in UTC, as in 2026-11-22. Without it, today.
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = day, conflicts_with = "days")]
    day: Option<Date>,
    /// The number of days, of which the last is today.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=366))]
    days: Option<u32>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn day(text: &str) -> Result<Date, String> {
    let day = text.parse();
    day.map_err(|_| "a day is written as in 2026-11-22".to_owned())
}

// === impl ReportArgs ===

impl ReportArgs {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<()> {
        let last = self.day.unwrap_or_else(|| date_of(now_ms()));
        let period = Period::until(last, self.days.unwrap_or(1));
        let report = call(context, "report", GetReport(period)).await?;
        if self.json {
            out::json(&report)?;
        } else {
            out::line(markdown(&report))?;
            let prices = prices(&context.settings(None, Vec::new())?.config.rl);
            let spend = kept(&context.home.cloud_spend(), prices.as_ref(), now_ms());
            if let Some(spend) = spend {
                out::line(format!("Training server: {}.", spend.line()))?;
            }
        }
        Ok(())
    }
}
