//! `cargo xtask bench relay` compares the proxy with other programs: nginx, which is the system's, or Debian's package
//! unpacked into the cache folder, and gateways that pip and npm install there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};
use metaclaw_fetch::{command, pip, writing};

use super::program::{PROXY, build, has, program, quick_or};
use crate::files;
use crate::npm;
use crate::places::Places;
use crate::report::StageReport;

/// The programs of others, by their names in the bench.
const PEERS: [&str; 3] = ["nginx", "litellm", "portkey"];
const LITELLM: &str = "litellm[proxy]==1.106.2";
const PORTKEY: &str = "@portkey-ai/gateway@1.15.2";

/// Makes a release build, prepares the other programs, and measures; arguments go to the bench. A program that cannot be
/// installed is left out.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    let mut report = StageReport::default();
    let mut peers = Vec::new();
    for name in PEERS {
        let found = report.stage(name, |stage| {
            let _lock = places.lock()?;
            let found = if has(args, "--guard") && name != "nginx" {
                Err(anyhow!("the guard needs only nginx"))
            } else {
                install(places, name)
            };
            if let Err(error) = &found {
                stage.note = format!("left out: {error:#}");
            }
            Ok(found.ok())
        })?;
        peers.push((format!("METACLAW_BENCH_{}", name.to_uppercase()), found));
    }
    report.stage("build", |_| build(places, &[PROXY, &["relay"]].concat()))?;
    report.print();
    let mut bench = program(places, "relay", &quick_or("relay", args), args);
    for (variable, program) in peers {
        match program {
            Some(program) => bench.env(variable, program),
            None => bench.env_remove(variable),
        };
    }
    command::run(&mut bench)
}

fn install(places: &Places, name: &str) -> Result<PathBuf> {
    let folder = places.cache.join(name);
    match name {
        "nginx" => nginx(&folder),
        "litellm" => {
            let python = pip::environment(&folder, &[LITELLM])?;
            Ok(python.with_file_name("litellm"))
        }
        _ => {
            npm::install(&folder, PORTKEY, None)?;
            Ok(folder.join("node_modules/@portkey-ai/gateway/build/start-server.js"))
        }
    }
}

fn nginx(folder: &Path) -> Result<PathBuf> {
    let unpacked = folder.join("usr/sbin/nginx");
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian's folder for servers is not in a user's PATH.
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let named = folders.map(|folder| folder.join("nginx"));
    let mut programs = named.chain([unpacked.clone()]);
    if let Some(found) = programs.find(|program| program.exists()) {
        return runs(found);
    }
    let advice = "nginx is not here and could not be fetched (Debian, Ubuntu: apt install nginx)";
    unpack_debian("nginx", folder).context(advice)?;
    runs(unpacked).context(advice)
}

fn runs(nginx: PathBuf) -> Result<PathBuf> {
    let version = command::attempt(Command::new(&nginx).arg("-v"))?;
    let (shown, why) = (nginx.display(), String::from_utf8_lossy(&version.stderr));
    ensure!(
        version.status.success(),
        "{shown} does not run: {}",
        why.trim()
    );
    Ok(nginx)
}

/// Downloads a package with apt, which checks its signature, and unpacks it; this needs no root.
fn unpack_debian(package: &str, folder: &Path) -> Result<()> {
    writing(fs::create_dir_all(folder), folder)?;
    let mut apt = Command::new("apt-get");
    command::output(apt.args(["download", package]).current_dir(folder))?;
    let is_package = |path: &PathBuf| path.extension().is_some_and(|end| end == "deb");
    let archive = files::list(folder)?.into_iter().find(is_package);
    let archive = archive.context("apt-get downloaded nothing")?;
    command::output(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(folder))?;
    writing(fs::remove_file(&archive), &archive)
}
