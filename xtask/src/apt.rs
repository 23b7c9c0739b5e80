//! Debian's packages, for programs that the tests run and that no other registry has.

use std::process::Command;

use anyhow::{Context, Result, bail};
use metaclaw_fetch::command;

/// Installs packages with apt.
///
/// # Errors
/// If this is not root, or apt fails. Each message ends in `advice`.
pub(crate) fn install(packages: &[&str], advice: &str) -> Result<()> {
    let user = command::output(Command::new("id").arg("-u"))?;
    if user.trim() != "0" {
        bail!("only root can install {}: {advice}", packages.join(" and "));
    }
    // Another apt may be at work; it is waited for.
    let apt = |args: &[&str]| {
        let mut apt = Command::new("apt-get");
        apt.args(["-qq", "-o", "DPkg::Lock::Timeout=600"])
            .args(args);
        apt.env("DEBIAN_FRONTEND", "noninteractive");
        command::output(&mut apt).with_context(|| advice.to_owned())
    };
    apt(&["update"])?;
    apt(&[&["install", "-y", "--no-install-recommends"], packages].concat())?;
    Ok(())
}
