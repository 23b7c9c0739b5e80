//! The npm package: `npm install --global` puts the program in the folder of programs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use metaclaw_fetch::{Packed, pack, writing};
use serde_json::json;

use super::binary::Version;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Packs `files`, among them the program `metaclaw`, into `folder` and returns the archive's file name.
///
/// npm links the program itself, without a script of Node's before it, which would take 40 ms at each start.
///
/// # Errors
/// A file that cannot be read or written.
pub(super) fn write(
    folder: &Path,
    stage: &Path,
    glibc: Version,
    mut files: Vec<Packed>,
) -> Result<String> {
    let manifest = stage.join("package.json");
    writing(
        fs::write(&manifest, format!("{:#}\n", package(glibc))),
        &manifest,
    )?;
    files.push(Packed::file(manifest, "package.json"));
    let name = format!("metaclaw-{VERSION}.tgz");
    let path: PathBuf = folder.join(&name);
    pack("package", &files, &path)?;
    Ok(name)
}

/// The manifest. npm refuses the package on other systems; npm 8 and later also where the C library is not glibc.
fn package(glibc: Version) -> serde_json::Value {
    json!({
        "name": "metaclaw",
        "version": VERSION,
        "description": format!(
            "A proxy that an AI agent talks through, and that makes the model behind it better (Linux on x86-64, glibc {glibc} or newer)"
        ),
        "license": "MIT OR Apache-2.0",
        "bin": {"metaclaw": "metaclaw"},
        "os": ["linux"],
        "cpu": ["x64"],
        "libc": ["glibc"],
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// npm installs it, and what it installed runs: a shell script stands in for the program.
    #[test]
    fn npm_installs_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("program");
        fs::write(&program, "#!/bin/sh\necho started\n").unwrap();
        let files = vec![Packed::program(program, "metaclaw")];
        let name = write(folder.path(), folder.path(), Version(2, 28), files).unwrap();

        let prefix = folder.path().join("prefix");
        let mut npm = Command::new("npm");
        npm.args([
            "install",
            "--global",
            "--offline",
            "--loglevel=error",
            "--prefix",
        ])
        .arg(&prefix)
        .arg(folder.path().join(name));
        let installed = npm.output().unwrap();
        assert!(
            installed.status.success(),
            "{}",
            String::from_utf8_lossy(&installed.stderr)
        );
        let said = Command::new(prefix.join("bin/metaclaw")).output().unwrap();
        assert_eq!(said.stdout, b"started\n");
    }
}
