//! The clients that the end-to-end tests drive, in the cache folder: Python packages and OpenClaw with its Node.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::command;
use crate::pip;
use crate::places::{Places, is_stamped, writing};
use crate::report::{Report, Stage};

const PYTHON: [&str; 2] = ["openai==3.51.0", "anthropic==2.10.0"];
/// With which no request is answered: without it one test is left out.
const WANDB: &str = "wandb==0.31.0";
/// OpenClaw refuses Node below 24.16; this package carries the binary.
const NODE: &str = "node@24.21.0";
const OPENCLAW: &str = "openclaw@2026.9.6";

/// Where they are.
#[derive(Debug)]
pub(crate) struct Clients {
    /// A Python that imports the packages.
    python: PathBuf,
    /// A Python that imports wandb, where pip could install it.
    wandb: Option<PathBuf>,
    /// The folder that holds `node`.
    node: PathBuf,
    /// The folder whose `node_modules/.bin` holds `openclaw`.
    openclaw: PathBuf,
}

impl Clients {
    /// The variables by which the tests are told.
    pub(crate) fn environment(&self) -> Vec<(&'static str, &Path)> {
        let mut variables: Vec<(&'static str, &Path)> = vec![
            ("METACLAW_TEST_PYTHON", &self.python),
            ("METACLAW_TEST_NODE", &self.node),
            ("METACLAW_TEST_OPENCLAW", &self.openclaw),
        ];
        let wandb = self.wandb.as_deref();
        variables.extend(wandb.map(|python| ("METACLAW_TEST_WANDB", python)));
        variables
    }
}

/// Installs what is missing.
pub(crate) fn ensure(places: &Places, report: &mut Report) -> Result<Clients> {
    let home = places.cache.join("openclaw");
    let python = report.stage("Python clients", |stage| {
        stage.note = PYTHON.join(", ");
        pip::environment(&places.cache.join("clients"), &PYTHON)
    })?;
    let wandb = report.stage("wandb", |stage| {
        let folder = places.cache.join("wandb-client");
        Ok(match pip::environment(&folder, &[WANDB]) {
            Ok(python) => {
                WANDB.clone_into(&mut stage.note);
                Some(python)
            }
            Err(error) => {
                stage.note = format!("not installed, and its test is left out: {error:#}");
                None
            }
        })
    })?;
    let node_home = home.join("node");
    report.stage("Node", |stage| npm_install(&node_home, NODE, None, stage))?;
    let node = node_home.join("node_modules").join("node").join("bin");
    let openclaw = home.join("openclaw");
    report.stage("OpenClaw", |stage| {
        npm_install(&openclaw, OPENCLAW, Some(&node), stage)
    })?;
    Ok(Clients {
        python,
        wandb,
        node,
        openclaw,
    })
}

/// `npm install` of one exact package into a folder of its own, once; `node` is the Node that it shall run under.
fn npm_install(folder: &Path, package: &str, node: Option<&Path>, stage: &mut Stage) -> Result<()> {
    package.clone_into(&mut stage.note);
    let stamp = folder.join("installed");
    if is_stamped(&stamp, package) {
        return Ok(());
    }
    writing(fs::create_dir_all(folder), folder)?;
    let manifest = folder.join("package.json");
    // Without a manifest of its own npm would climb to one in a parent folder.
    writing(fs::write(&manifest, "{\"private\": true}\n"), &manifest)?;
    let mut npm = Command::new("npm");
    npm.args([
        "install",
        "--no-fund",
        "--no-audit",
        "--no-progress",
        "--loglevel=error",
        "--save-exact",
        package,
    ]);
    npm.current_dir(folder);
    if let Some(node) = node {
        npm.env("PATH", first_on_path(node)?);
    }
    command::run(&mut npm)
        .with_context(|| format!("cannot install {package} into {}", folder.display()))?;
    writing(fs::write(&stamp, package), &stamp)
}

fn first_on_path(folder: &Path) -> Result<std::ffi::OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(folders)
        .with_context(|| format!("{} cannot stand in PATH", folder.display()))
}
