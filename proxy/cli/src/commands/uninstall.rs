//! `metaclaw uninstall`: everything as it was before, and our home gone.

use std::{fs, io, path::Path, process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use clap::Args;
use metaclaw_control::home::Home;

use super::{context::Context, service, stop};
use crate::{out, wires};

use metaclaw_chat::if_there;

/// For replies that are under way.
const END: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub(crate) struct UninstallArgs {
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
    /// Keep the folder of wishes and skills.
    #[arg(long)]
    keep_lessons: bool,
}

// === impl UninstallArgs ===

impl UninstallArgs {
    pub(super) async fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let home = &context.home;
        let ours = self.ours(home)?;
        out::line(plan(home, &ours))?;
        if !self.yes {
            if !out::can_ask() {
                bail!("nothing was changed: `metaclaw uninstall --yes` does it without asking");
            }
            if !out::ask("Do all of this?", false)? {
                out::line("nothing was changed")?;
                return Ok(ExitCode::FAILURE);
            }
        }
        // The unit of another home stays.
        if service::is_of(context)
            && let Some(path) = service::remove(&context.environment)?
        {
            out::line(format!("removed {}", path.display()))?;
        }
        for proxy in home.all() {
            end(context, proxy).await?;
        }
        for name in self.ours(home)? {
            let path = home.dir().join(&name);
            remove(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
        out::line(last_words(home, context)?)?;
        Ok(ExitCode::SUCCESS)
    }

    fn ours(&self, home: &Home) -> io::Result<Vec<String>> {
        let mut names = home.own_entries()?;
        names.retain(|name| !(self.keep_lessons && name == "skills"));
        Ok(names)
    }
}

async fn end(context: &Context, home: Home) -> anyhow::Result<()> {
    let wires = wires::wires(&home);
    let of_proxy = Context {
        environment: context.environment.clone(),
        home,
        port: None,
    };
    if let Some(pid) = stop::end(&of_proxy, END).await? {
        out::line(format!("stopped process {pid}"))?;
    }
    // Before the record goes: without it nobody knows what was changed.
    for said in wires::release(&wires)? {
        out::line(said)?;
    }
    Ok(())
}

fn plan(home: &Home, ours: &[String]) -> String {
    let dir = home.dir().display();
    let what = if ours.is_empty() {
        format!("nothing in {dir} is MetaClaw's")
    } else {
        format!("removes from {dir}: {}", ours.join(", "))
    };
    format!(
        "stops MetaClaw, puts the files of OpenClaw and other agents back, takes away the service unit, where there are any;\n{what}"
    )
}

fn last_words(home: &Home, context: &Context) -> io::Result<String> {
    let dir = home.dir();
    let mut lines = Vec::new();
    match fs::remove_dir(dir) {
        Ok(()) => lines.push(format!("{} is gone", dir.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            lines.push(format!("there is no {}", dir.display()));
        }
        Err(_) => {
            let left = home.entries()?.join(", ");
            lines.push(format!(
                "left in {}, as it is not ours: {left}",
                dir.display()
            ));
        }
    }
    let cache = context.environment.cache();
    if cache.exists() {
        lines.push(format!(
            "models that were fetched are still in {}",
            cache.display()
        ));
    }
    let program = std::env::current_exe()?;
    lines.push(format!(
        "the program is still {}: remove it as you installed it (pipx, pip, npm), or delete it",
        program.display()
    ));
    Ok(lines.join("\n"))
}

/// Removes a file, or a folder with all in it; of a link the link alone.
fn remove(path: &Path) -> io::Result<()> {
    let removed = if fs::symlink_metadata(path)?.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    if_there(removed).map(drop)
}
