//! Chromium, which the tests of the page at `/ui` open it in, and the package that drives it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::files::runs;
use crate::{apt, npm};

/// The driver has no dependencies and brings no browser of its own.
pub(crate) const DRIVER: &str = "playwright-core@1.65.1";
const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
const ADVICE: &str =
    "install Chromium so that `chromium` is on PATH (Debian: apt install chromium)";
const FONT_ADVICE: &str =
    "Chromium draws no letters here: install a font (Debian: apt install fonts-dejavu-core)";
/// A page whose title is the text that is drawn on it.
const DRAWN: &str =
    "data:text/html,<p>drawn</p><script>document.title = document.body.innerText</script>";

#[derive(Debug)]
pub(crate) struct Chromium {
    pub(crate) program: PathBuf,
    pub(crate) driver: PathBuf,
}

/// Installs the driver in `folder` with the Node in the folder `node`, and Chromium and a font where root can do so with
/// apt.
///
/// # Errors
/// In words that say why this machine has no Chromium, or npm's message.
pub(crate) fn ensure(folder: &Path, node: &Path) -> Result<Chromium> {
    let program = match find() {
        Some(program) => program,
        None => install()?,
    };
    if !draws(&program) {
        apt::install(&["fonts-dejavu-core"], FONT_ADVICE)?;
    }
    npm::install(folder, DRIVER, Some(node))?;
    let driver = folder.to_owned();
    Ok(Chromium { program, driver })
}

/// The first program on PATH that runs. Ubuntu's `chromium-browser` may be a script that only names a snap.
fn find() -> Option<PathBuf> {
    find_in(&std::env::var_os("PATH").unwrap_or_default())
}

fn find_in(path: &OsStr) -> Option<PathBuf> {
    let folders: Vec<PathBuf> = std::env::split_paths(path).collect();
    let named = |name: &&str| {
        let mut programs = folders.iter().map(|folder| folder.join(name));
        programs.find(|program| program.exists())
    };
    PROGRAMS
        .iter()
        .filter_map(named)
        .find(|program| runs(program))
}

/// Whether it draws letters. On a machine without any font, the pages have no text that a test could find.
fn draws(program: &Path) -> bool {
    let args = ["--headless=new", "--no-sandbox", "--dump-dom", DRAWN];
    let dom = Command::new(program).args(args).output();
    dom.is_ok_and(|dom| String::from_utf8_lossy(&dom.stdout).contains("<title>drawn</title>"))
}

fn install() -> Result<PathBuf> {
    apt::install(&["chromium"], ADVICE)?;
    find().with_context(|| format!("apt installed a Chromium that does not run: {ADVICE}"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_program_that_does_not_run_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let found = || find_in(folder.path().as_os_str());
        assert_eq!(found(), None);
        for (name, text) in [
            ("chromium-browser", "#!/bin/sh\nexit 1\n"),
            ("google-chrome", "#!/bin/sh\necho Chrome 1\n"),
        ] {
            let program = folder.path().join(name);
            fs::write(&program, text).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        }
        assert_eq!(found(), Some(folder.path().join("google-chrome")));
    }
}
