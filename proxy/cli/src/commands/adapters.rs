//! `metaclaw adapters`: the weights that were learned.

use std::{io, path::Path, process::ExitCode};

use clap::{Args, Subcommand};

use super::{context::Context, source::running};
use crate::{assemble, control::AdapterView, out};

/// Arguments of `adapters`.
#[derive(Debug, Args)]
pub(crate) struct AdaptersArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Each adapter, and which agents are served with it.
    List {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
}

// === impl AdaptersArgs ===

impl AdaptersArgs {
    /// Does it.
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let What::List { json } = self.what;
        let adapters: Vec<AdapterView> = if let Some(client) = running(&context.home).await? {
            client.ask("adapters", &()).await?
        } else {
            let loaded = context.settings(None, Vec::new())?;
            let folder = assemble::checkpoint_dir(&loaded.config, &context.home);
            on_disk(&folder.join("adapters"))?
        };
        if json {
            out::json(&adapters)?;
        } else {
            let row = |it: &AdapterView| {
                let held = it.n_leases.to_string();
                vec![it.name.clone(), it.agents.join(", "), held]
            };
            let rows: Vec<Vec<String>> = adapters.iter().map(row).collect();
            out::line(out::table(&["adapter", "serves", "held by"], &rows))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The adapters in a folder; who is served with them only the running process knows.
fn on_disk(folder: &Path) -> io::Result<Vec<AdapterView>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        // Half-written ones have no configuration yet.
        if entry.path().join("adapter_config.json").is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    let view = |name| AdapterView {
        name,
        agents: Vec::new(),
        n_leases: 0,
    };
    Ok(names.into_iter().map(view).collect())
}
