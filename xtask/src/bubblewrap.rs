//! bubblewrap, in which the tests run the commands of an agent that tries to get out.

use std::process::Command;

use anyhow::{Result, bail};

use crate::apt;

const ADVICE: &str =
    "install bubblewrap so that `bwrap` is on PATH (Debian: apt install bubblewrap)";

/// Installs bubblewrap where root can do so with apt.
///
/// # Errors
/// In words that say why this machine has none.
pub(crate) fn ensure() -> Result<()> {
    if runs() {
        return Ok(());
    }
    apt::install(&["bubblewrap"], ADVICE)?;
    if !runs() {
        bail!("apt installed a bubblewrap that does not run: {ADVICE}");
    }
    Ok(())
}

fn runs() -> bool {
    let version = Command::new("bwrap").arg("--version").output();
    version.is_ok_and(|output| output.status.success())
}
