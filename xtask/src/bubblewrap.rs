//! bubblewrap, in which the tests run the commands of an agent that tries to get out.

use anyhow::{Result, bail};

use crate::apt;
use crate::files::runs;

const ADVICE: &str =
    "install bubblewrap so that `bwrap` is on PATH (Debian: apt install bubblewrap)";

/// Installs bubblewrap where root can do so with apt.
///
/// # Errors
/// In words that say why this machine has none.
pub(crate) fn ensure() -> Result<()> {
    if runs("bwrap") {
        return Ok(());
    }
    apt::install(&["bubblewrap"], ADVICE)?;
    if !runs("bwrap") {
        bail!("apt installed a bubblewrap that does not run: {ADVICE}");
    }
    Ok(())
}
