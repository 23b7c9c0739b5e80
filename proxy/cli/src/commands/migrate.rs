//! `metaclaw migrate`: a home of the Python MetaClaw into this one.

use std::{fmt::Write as _, path::PathBuf};

use clap::Args;
use metaclaw_chat::AgentId;
use metaclaw_control::migration::{
    MigratedKind, MigrationItem, MigrationOutcome, MigrationReport, MigrationRequest, migrate,
};
use metaclaw_settings::address::user_folder;

use super::context::Context;
use crate::{assemble::checkpoint_dir, out};

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    /// The home of the Python MetaClaw, which is only read. Without it, ~/.metaclaw.
    dir: Option<PathBuf>,
    /// A folder of PEFT adapters, for example the checkpoints of the fork's training server. May be repeated.
    #[arg(long, value_name = "DIR")]
    adapters: Vec<PathBuf>,
    /// The agent of these adapters. Without it, OpenClaw's `main`, or `_default` if claw_type names another agent.
    #[arg(long)]
    agent: Option<AgentId>,
    /// Print what would be imported, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

// === impl MigrateArgs ===

impl MigrateArgs {
    pub(super) fn run(self, context: &Context) -> anyhow::Result<()> {
        let request = MigrationRequest {
            from: (self.dir).unwrap_or_else(|| user_folder().join(".metaclaw")),
            adapters: self.adapters,
            agent: self.agent,
            dry_run: self.dry_run,
        };
        let checkpoints = || {
            let loaded = context.settings(None, Vec::new())?;
            Ok(checkpoint_dir(&loaded.config, &context.home))
        };
        let report = migrate(&request, &context.home, &checkpoints)?;
        Ok(out::answer(&report, self.json, text)?)
    }
}

fn text(report: &MigrationReport) -> String {
    let (from, to) = (report.from.display(), report.to.display());
    let suffix = if report.dry_run {
        " (--dry-run: nothing is written)"
    } else {
        ""
    };
    let mut text = format!("{from} into {to}{suffix}\n");
    let mut parts: [(&str, Vec<Row<'_>>); 4] = [
        ("taken", Vec::new()),
        ("here already", Vec::new()),
        ("not taken, because this home has its own", Vec::new()),
        ("left", Vec::new()),
    ];
    for MigrationItem {
        kind,
        name,
        outcome,
    } in &report.items
    {
        let (part, why) = match outcome {
            MigrationOutcome::Taken => (0, ""),
            MigrationOutcome::Present => (1, ""),
            MigrationOutcome::Kept(why) => (2, why.as_str()),
            MigrationOutcome::Left(why) => (3, why.as_str()),
        };
        let rows = &mut parts[part].1;
        match rows
            .iter_mut()
            .find(|row| (row.kind, row.why) == (*kind, why))
        {
            Some(row) => row.names.push(name),
            None => rows.push(Row {
                kind: *kind,
                why,
                names: vec![name],
            }),
        }
    }
    let (_, taken) = &parts[0];
    let has_adapter = taken.iter().any(|row| row.kind == MigratedKind::Adapter);
    for (title, rows) in parts.iter().filter(|(_, rows)| !rows.is_empty()) {
        let _ = writeln!(text, "\n{title}");
        for Row { kind, why, names } in rows {
            let colon = if why.is_empty() { "" } else { ": " };
            let names = names.join(", ");
            let _ = writeln!(text, "  {kind:9} {names}{colon}{why}");
        }
    }
    if has_adapter {
        text.push_str("\nAn adapter serves after `metaclaw adapters use NAME`, if the gate lets it through. That needs its base model in trainer.model.\n");
    }
    if !report.dry_run {
        text.push_str("\nNext: `metaclaw doctor` checks whether everything works, `metaclaw start` starts the proxy.\n");
    }
    text.trim_end().to_owned()
}

struct Row<'r> {
    kind: MigratedKind,
    why: &'r str,
    names: Vec<&'r str>,
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

        Next: `metaclaw doctor` checks whether everything works, `metaclaw start` starts the proxy.
        ");
    }
}
