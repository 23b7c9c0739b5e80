//! `metaclaw config`: show, get, set; and the original's `config KEY` and `config KEY VALUE`.

use std::{path::PathBuf, process::ExitCode};

use anyhow::anyhow;
use clap::{Args, Subcommand};

use super::context::Context;
use crate::{
    config::{Effective, edit, example, one_line},
    out,
};

/// Arguments of `config`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    what: Option<What>,
    /// A key, as in rl.batch_size: shows its value.
    key: Option<String>,
    /// Its new value.
    value: Option<String>,
    /// The file, in place of config.yaml in the home folder.
    #[arg(short, long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// As JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Every key that works, with the value in force and where it was set.
    Show,
    /// The value of one key.
    Get {
        /// As in rl.batch_size.
        key: String,
    },
    /// Change one key in the file; its comments stay.
    Set {
        /// As in rl.batch_size.
        key: String,
        /// Its new value.
        value: String,
    },
    /// An example file with every key and its default.
    Example,
    /// A table of all keys, older ones too, and what becomes of each.
    Reference,
}

// === impl ConfigArgs ===

impl ConfigArgs {
    /// Does it.
    pub(super) fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let Self {
            what,
            key,
            value,
            config,
            json,
        } = self;
        let what = what.or(match (key, value) {
            (Some(key), Some(value)) => Some(What::Set { key, value }),
            (Some(key), None) => Some(What::Get { key }),
            (None, _) => None,
        });
        match what {
            None | Some(What::Show) => show(context, config, json)?,
            Some(What::Get { key }) => get(context, config, &key, json)?,
            Some(What::Set { key, value }) => set(context, config, &key, &value)?,
            Some(What::Example) => out::line(example::example().trim_end())?,
            Some(What::Reference) => out::line(example::reference().trim())?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn show(context: &Context, file: Option<PathBuf>, json: bool) -> anyhow::Result<()> {
    let loaded = context.settings(file, Vec::new())?;
    let effective = loaded.effective();
    if json {
        out::json(&effective)?;
    } else {
        let row = |it: &Effective| {
            let origin = it.origin.clone().unwrap_or_else(|| "default".to_owned());
            vec![it.key.clone(), one_line(&it.value), origin]
        };
        let rows: Vec<Vec<String>> = effective.iter().map(row).collect();
        out::line(out::table(&["key", "value", "from"], &rows))?;
    }
    for unknown in &loaded.unknown {
        out::aside(format!("warning: {unknown}"));
    }
    for notice in &loaded.notices {
        out::aside(format!("warning: {notice}"));
    }
    Ok(())
}

fn get(context: &Context, file: Option<PathBuf>, key: &str, json: bool) -> anyhow::Result<()> {
    let loaded = context.settings(file, Vec::new())?;
    let one = loaded.get(key).map_err(|message| anyhow!(message))?;
    if json {
        out::json(&one)?;
    } else {
        out::line(one_line(&one.value))?;
    }
    Ok(())
}

fn set(context: &Context, file: Option<PathBuf>, key: &str, value: &str) -> anyhow::Result<()> {
    context.home.create()?;
    let file = file.unwrap_or_else(|| context.home.config());
    let edited = edit::set_in_file(&file, key, value)?;
    out::aside(format!("{} is set in {}", edited.key, file.display()));
    if let Some(note) = edited.note {
        out::aside(format!("warning: {} has no effect: {note}", edited.key));
    }
    if context.home.holder()?.is_some() {
        out::aside("the running metaclaw takes it at its next start");
    }
    Ok(())
}
