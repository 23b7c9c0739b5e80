//! OpenClaw's extension: `openclaw plugins install npm-pack:FILE` reads the archive.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use metaclaw_fetch::command;
use serde_json::Value;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Packs the extension of the checkout at `root` into `folder`, by npm, and returns the archive's file name.
///
/// # Errors
/// Its version is not that of the workspace, or npm fails.
pub(super) fn write(folder: &Path, root: &Path) -> Result<String> {
    let source = source(root);
    let manifest = source.join("package.json");
    let text = std::fs::read_to_string(&manifest)
        .with_context(|| format!("cannot read {}", manifest.display()))?;
    let package: Value = serde_json::from_str(&text)
        .with_context(|| format!("{} is no JSON", manifest.display()))?;
    ensure!(
        package["version"] == VERSION,
        "{} has version {}, and the workspace has {VERSION}: write {VERSION} there",
        manifest.display(),
        package["version"]
    );
    let mut npm = Command::new("npm");
    npm.args(["pack", "--silent", "--pack-destination"])
        .arg(folder);
    command::run(npm.current_dir(source))?;
    Ok(format!("metaclaw-openclaw-{VERSION}.tgz"))
}

fn source(root: &Path) -> std::path::PathBuf {
    root.join("packages").join("openclaw")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        manifest.parent().unwrap()
    }

    #[test]
    fn the_archive_has_what_openclaw_loads_and_no_tests() {
        let folder = tempfile::tempdir().unwrap();
        let name = write(folder.path(), root()).unwrap();
        let mut tar = Command::new("tar");
        let listed = tar
            .arg("-tzf")
            .arg(folder.path().join(name))
            .output()
            .unwrap();
        let mut files: Vec<String> = String::from_utf8(listed.stdout)
            .unwrap()
            .lines()
            .map(|line| line.trim_start_matches("package/").to_owned())
            .collect();
        files.sort();
        let expected = [
            "README.md",
            "index.js",
            "metaclaw.js",
            "openclaw.plugin.json",
            "package.json",
            "sessions.js",
        ];
        assert_eq!(files, expected);
    }

    #[test]
    fn the_extension_passes_its_own_tests() {
        let mut node = Command::new("node");
        let output = node
            .arg("--test")
            .current_dir(source(root()))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
        assert!(said.contains("pass 18"), "{said}");
    }
}
