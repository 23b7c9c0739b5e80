//! `metaclaw migrate`: a home of the Python MetaClaw into this one.

use std::{fmt::Write as _, path::PathBuf, process::ExitCode};

use clap::Args;
use metaclaw_chat::AgentId;
use metaclaw_control::{
    instance::LogOpening,
    migration::{
        MigratedKind, MigrationItem, MigrationOutcome, MigrationReport, MigrationRequest, migrate,
    },
};
use metaclaw_settings::address::user_folder;

use super::{calling::instance, context::Context};
use crate::out;

/// Arguments of `migrate`.
#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    /// The home of the Python MetaClaw; without one, ~/.metaclaw. It is only read.
    dir: Option<PathBuf>,
    /// A folder of records (conversations.jsonl), which the Python MetaClaw wrote where it was started. May be repeated.
    #[arg(long, value_name = "DIR")]
    records: Vec<PathBuf>,
    /// A folder with PEFT adapters, such as the checkpoint folder of the fork's training server. May be repeated.
    #[arg(long, value_name = "DIR")]
    adapters: Vec<PathBuf>,
    /// The agent that records and adapters belong to. Without it, OpenClaw's `main`, or `_default` if claw_type names
    /// another agent.
    #[arg(long)]
    agent: Option<AgentId>,
    /// Say what would be taken, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

// === impl MigrateArgs ===

impl MigrateArgs {
    /// Does it.
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let json = self.json;
        let old = || user_folder().join(".metaclaw");
        let request = MigrationRequest {
            from: self.dir.unwrap_or_else(old),
            records: self.records,
            adapters: self.adapters,
            agent: self.agent,
            dry_run: self.dry_run,
        };
        let instance = instance(context, "migrate", LogOpening::OrBegin);
        let report = migrate(&request, &context.home, &instance).await;
        instance.close().await;
        let report = report?;
        out::answer(&report, json, text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The report as a person reads it.
fn text(report: &MigrationReport) -> String {
    let (from, to) = (report.from.display(), report.to.display());
    let mut text = if report.dry_run {
        format!("{from} into {to}, if it were not for --dry-run (nothing is written)\n")
    } else {
        format!("{from} into {to}\n")
    };
    let is = |wanted: fn(&MigrationOutcome) -> bool| {
        let items = report.items.iter();
        items
            .filter(move |item| wanted(&item.outcome))
            .collect::<Vec<_>>()
    };
    let taken = is(|it| *it == MigrationOutcome::Taken);
    let present = is(|it| *it == MigrationOutcome::Present);
    list(&mut text, "taken", &taken);
    list(&mut text, "here already", &present);
    reasons(
        &mut text,
        "not taken, because this home has its own",
        &is(|it| matches!(it, MigrationOutcome::Kept(_))),
    );
    reasons(
        &mut text,
        "left",
        &is(|it| matches!(it, MigrationOutcome::Left(_))),
    );
    let has_adapter = taken.iter().any(|it| it.kind == MigratedKind::Adapter);
    if has_adapter {
        text.push_str("\nAn adapter serves after `metaclaw adapters use NAME`, if the gate lets it through. That needs its base model in trainer.model.\n");
    }
    if !report.dry_run {
        text.push_str("\nNext: `metaclaw doctor` looks whether everything works, `metaclaw start` starts the proxy.\n");
    }
    text.trim_end().to_owned()
}

/// Names by their kind, a line for each kind.
fn list(text: &mut String, title: &str, items: &[&MigrationItem]) {
    if items.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{title}");
    let mut items = items.iter().peekable();
    while let Some(item) = items.next() {
        let mut names = item.name.clone();
        while let Some(next) = items.next_if(|it| it.kind == item.kind) {
            let _ = write!(names, ", {}", next.name);
        }
        let _ = writeln!(text, "  {:9} {names}", item.kind.as_str());
    }
}

/// Names with the reason, those of one reason together.
fn reasons(text: &mut String, title: &str, items: &[&MigrationItem]) {
    if items.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{title}");
    let mut groups: Vec<(MigratedKind, &str, Vec<&str>)> = Vec::new();
    for item in items {
        let (MigrationOutcome::Kept(why) | MigrationOutcome::Left(why)) = &item.outcome else {
            continue;
        };
        let known = groups
            .iter_mut()
            .find(|(kind, reason, _)| *kind == item.kind && reason == why);
        match known {
            Some((_, _, names)) => names.push(&item.name),
            None => groups.push((item.kind, why, vec![&item.name])),
        }
    }
    for (kind, why, names) in groups {
        let _ = writeln!(text, "  {:9} {}: {why}", kind.as_str(), names.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_was_taken_and_why_the_rest_was_not() {
        let item = |kind, name: &str, outcome| MigrationItem {
            kind,
            name: name.to_owned(),
            outcome,
        };
        let left = |why: &str| MigrationOutcome::Left(why.to_owned());
        let setting = MigratedKind::Setting;
        let report = MigrationReport {
            from: "/old".into(),
            to: "/new".into(),
            dry_run: false,
            items: vec![
                item(setting, "llm.model_id", MigrationOutcome::Taken),
                item(setting, "mode", MigrationOutcome::Taken),
                item(setting, "skills.dir", left("it is in the old home")),
                item(setting, "memory.dir", left("it is in the old home")),
                item(
                    setting,
                    "proxy.port",
                    MigrationOutcome::Kept("another value".to_owned()),
                ),
                item(MigratedKind::Skill, "short", MigrationOutcome::Present),
                item(
                    MigratedKind::Adapter,
                    "main-0badcafe-000001",
                    MigrationOutcome::Taken,
                ),
            ],
        };
        insta::assert_snapshot!(text(&report), @r"
        /old into /new

        taken
          setting   llm.model_id, mode
          adapter   main-0badcafe-000001

        here already
          skill     short

        not taken, because this home has its own
          setting   proxy.port: another value

        left
          setting   skills.dir, memory.dir: it is in the old home

        An adapter serves after `metaclaw adapters use NAME`, if the gate lets it through. That needs its base model in trainer.model.

        Next: `metaclaw doctor` looks whether everything works, `metaclaw start` starts the proxy.
        ");
    }
}
