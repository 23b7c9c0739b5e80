//! npm: installs one exact package into its own folder.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use metaclaw_fetch::{command, is_stamped, writing};

/// Runs `npm install` of one exact package, once; `node` is the Node to use.
pub(crate) fn install(folder: &Path, package: &str, node: Option<&Path>) -> Result<()> {
    let stamp = folder.join("installed");
    if is_stamped(&stamp, package) {
        return Ok(());
    }
    writing(fs::create_dir_all(folder), folder)?;
    let manifest = folder.join("package.json");
    // Without a manifest here, npm would use one in a parent folder.
    writing(fs::write(&manifest, "{\"private\": true}\n"), &manifest)?;
    let mut npm = Command::new("npm");
    let quiet = "install --no-fund --no-audit --no-progress --loglevel=error --save-exact";
    npm.args(quiet.split(' ')).arg(package).current_dir(folder);
    if let Some(node) = node {
        npm.env("PATH", first_on_path(node)?);
    }
    command::run(&mut npm)
        .with_context(|| format!("cannot install {package} into {}", folder.display()))?;
    writing(fs::write(&stamp, package), &stamp)
}

fn first_on_path(folder: &Path) -> Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(folders)
        .with_context(|| format!("{} cannot stand in PATH", folder.display()))
}
