//! The proxy as a Python wheel and as an npm package, and OpenClaw's extension.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use metaclaw_fetch::{Packed, command, pack, writing};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::binary::Version;
use crate::files;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const SUMMARY: &str =
    "A proxy that an AI agent talks through, and that makes the model behind it better";

/// Writes the wheel (<https://packaging.python.org/en/latest/specifications/binary-distribution-format/>) of the files of
/// an archive into `folder`, and returns its file name. pip puts the program beside Python's own, and refuses the wheel
/// on a system whose C library is older than `glibc`.
///
/// # Errors
/// A file that cannot be read or written.
pub(super) fn wheel(folder: &Path, glibc: Version, files: &[Packed]) -> Result<String> {
    let Version(major, minor) = glibc;
    let tag = format!("py3-none-manylinux_{major}_{minor}_x86_64");
    let info = format!("metaclaw-{VERSION}.dist-info");
    let about = format!(
        "Wheel-Version: 1.0\nGenerator: metaclaw xtask ({VERSION})\nRoot-Is-Purelib: false\nTag: {tag}\n"
    );
    let mut members = vec![(format!("{info}/WHEEL"), about.into_bytes(), 0o644)];
    for file in files {
        let content =
            fs::read(&file.from).with_context(|| format!("cannot read {}", file.from.display()))?;
        members.push(match file.name.as_str() {
            "README.md" => {
                let head = format!(
                    "Metadata-Version: 2.4\nName: metaclaw\nVersion: {VERSION}\nSummary: {SUMMARY}\n\
                     License-Expression: MIT OR Apache-2.0\nRequires-Python: >=3.7\n\
                     Description-Content-Type: text/markdown\n\n"
                );
                let metadata = [head.as_bytes(), &content].concat();
                (format!("{info}/METADATA"), metadata, 0o644)
            }
            // pip copies what lies here into the folder of programs and makes it executable.
            "metaclaw" => {
                let name = format!("metaclaw-{VERSION}.data/scripts/metaclaw");
                (name, content, 0o755)
            }
            "config.example.yaml" => continue,
            licence => (format!("{info}/licenses/{licence}"), content, 0o644),
        });
    }
    // RECORD lists all members with hash and size. It cannot have its own.
    let mut record = String::new();
    for (name, content, _) in &members {
        let hash = URL_SAFE_NO_PAD.encode(Sha256::digest(content));
        let _ = writeln!(record, "{name},sha256={hash},{}", content.len());
    }
    let _ = writeln!(record, "{info}/RECORD,,");
    members.push((format!("{info}/RECORD"), record.into_bytes(), 0o644));
    let name = format!("metaclaw-{VERSION}-{tag}.whl");
    let path = folder.join(&name);
    let zip = || -> io::Result<()> {
        let mut archive = ZipWriter::new(BufWriter::new(File::create(&path)?));
        for (name, content, mode) in &members {
            // The time of a zip's files is 1980 unless one is given: the same files make the same wheel.
            let options = SimpleFileOptions::default().unix_permissions(*mode);
            archive.start_file(name, options)?;
            archive.write_all(content)?;
        }
        archive.finish()?.flush()
    };
    writing(zip(), &path)?;
    Ok(name)
}

/// Writes the npm package of the files of an archive into `folder`, and returns its file name. npm links the program
/// itself, without a script of Node's before it, which would take 40 ms at each start.
///
/// # Errors
/// A file that cannot be read or written.
pub(super) fn npm(folder: &Path, stage: &Path, glibc: Version, files: &[Packed]) -> Result<String> {
    // npm refuses the package on other systems; npm 8 and later also where the C library is not glibc.
    let package = json!({
        "name": "metaclaw",
        "version": VERSION,
        "description": format!("{SUMMARY} (Linux on x86-64, glibc {glibc} or newer)"),
        "license": "MIT OR Apache-2.0",
        "bin": {"metaclaw": "metaclaw"},
        "os": ["linux"],
        "cpu": ["x64"],
        "libc": ["glibc"],
    });
    let manifest = stage.join("package.json");
    writing(fs::write(&manifest, format!("{package:#}\n")), &manifest)?;
    let name = format!("metaclaw-{VERSION}.tgz");
    let files = [files, &[Packed::file(manifest, "package.json")]].concat();
    pack("package", &files, &folder.join(&name))?;
    Ok(name)
}

/// Packs OpenClaw's extension of the checkout at `root` into `folder`, by npm, and returns the archive's file name.
/// `openclaw plugins install npm-pack:FILE` reads it.
///
/// # Errors
/// Its version is not that of the workspace, or npm fails.
pub(super) fn openclaw_extension(folder: &Path, root: &Path) -> Result<String> {
    let source = root.join("addons/packages/openclaw");
    let manifest = source.join("package.json");
    let (text, shown) = (files::read(&manifest)?, manifest.display());
    let package = serde_json::from_str::<Value>(&text);
    let found = &package.with_context(|| format!("{shown} is no JSON"))?["version"];
    ensure!(
        found == VERSION,
        "{shown} has version {found}, and the workspace has {VERSION}: write {VERSION} there"
    );
    let mut npm = Command::new("npm");
    npm.args(["pack", "--silent", "--pack-destination"]);
    command::run(npm.arg(folder).current_dir(source))?;
    Ok(format!("metaclaw-openclaw-{VERSION}.tgz"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(command: &mut Command) -> String {
        let output = command.output().unwrap();
        let [said, failed] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        assert!(output.status.success(), "{said}{failed}");
        said
    }

    /// pip and npm install the packages, and what they installed runs: a shell script stands in for the program.
    #[test]
    fn pip_and_npm_install_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let files = ["metaclaw", "README.md", "LICENSE-MIT"].map(|name| {
            let path = folder.join(name);
            fs::write(&path, "#!/bin/sh\necho started\n").unwrap();
            Packed {
                is_program: name == "metaclaw",
                ..Packed::file(path, name)
            }
        });
        let prefix = folder.join("prefix");
        let pip = "-m pip install --no-index --no-deps --ignore-installed --prefix";
        let wheel = wheel(folder, Version(2, 28), &files).unwrap();
        let mut python = Command::new("python3");
        python.args(pip.split(' ')).arg(&prefix);
        output(python.arg(folder.join(wheel)));
        // Debian's pip adds `local` to a prefix.
        let places = ["bin/metaclaw", "local/bin/metaclaw"].map(|name| prefix.join(name));
        let program = places.iter().find(|path| path.exists());
        assert_eq!(output(&mut Command::new(program.unwrap())), "started\n");

        let prefix = folder.join("npm");
        let package = npm(folder, folder, Version(2, 28), &files).unwrap();
        let install = "install --global --offline --loglevel=error --prefix";
        let mut node = Command::new("npm");
        node.args(install.split(' ')).arg(&prefix);
        output(node.arg(folder.join(package)));
        let program = prefix.join("bin/metaclaw");
        assert_eq!(output(&mut Command::new(program)), "started\n");
    }

    #[test]
    fn the_extension_passes_its_tests_and_its_archive_has_what_openclaw_loads() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut node = Command::new("node");
        node.arg("--test")
            .current_dir(root.join("addons/packages/openclaw"));
        let said = output(&mut node);
        assert!(said.contains("pass 18"), "{said}");

        let folder = tempfile::tempdir().unwrap();
        let name = openclaw_extension(folder.path(), root).unwrap();
        let listed = output(
            Command::new("tar")
                .arg("-tzf")
                .arg(folder.path().join(name)),
        );
        let listed = listed.replace("package/", "");
        let mut files: Vec<&str> = listed.lines().collect();
        files.sort_unstable();
        let expected =
            "README.md index.js metaclaw.js openclaw.plugin.json package.json sessions.js";
        assert_eq!(files.join(" "), expected);
    }
}
