//! The Python package: `pip install` puts the program beside Python's own.
//!
//! The format is that of <https://packaging.python.org/en/latest/specifications/binary-distribution-format/>.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use metaclaw_fetch::writing;
use sha2::{Digest, Sha256};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::binary::Version;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A file of the wheel. `RECORD`, which lists the others, is made from them.
#[derive(Debug)]
struct Member {
    name: String,
    content: Vec<u8>,
    mode: u32,
}

/// Writes the wheel into `folder` and returns its file name.
///
/// `glibc` is the oldest C library that `program` runs with: pip refuses the wheel on a system that has an older one.
/// `readme` is shown by package indexes, `licences` are files that go in beside it.
///
/// # Errors
/// A file that cannot be read or written.
pub(super) fn write(
    folder: &Path,
    program: &Path,
    glibc: Version,
    readme: &str,
    licences: &[&Path],
) -> Result<String> {
    let Version(major, minor) = glibc;
    let tag = format!("py3-none-manylinux_{major}_{minor}_x86_64");
    let name = format!("metaclaw-{VERSION}-{tag}.whl");
    let info = format!("metaclaw-{VERSION}.dist-info");
    let mut members = vec![
        Member::text(format!("{info}/METADATA"), metadata(readme)),
        Member::text(format!("{info}/WHEEL"), wheel(&tag)),
        Member {
            // pip copies what lies here into the folder of programs and makes it executable.
            name: format!("metaclaw-{VERSION}.data/scripts/metaclaw"),
            content: read(program)?,
            mode: 0o755,
        },
    ];
    for licence in licences {
        let file = licence.file_name().unwrap_or_default().to_string_lossy();
        members.push(Member {
            name: format!("{info}/licenses/{file}"),
            content: read(licence)?,
            mode: 0o644,
        });
    }
    members.push(record(&info, &members));
    let path = folder.join(&name);
    writing(zip(&members, &path), &path)?;
    Ok(name)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn metadata(readme: &str) -> String {
    format!(
        "Metadata-Version: 2.4\n\
         Name: metaclaw\n\
         Version: {VERSION}\n\
         Summary: A proxy that an AI agent talks through, and that makes the model behind it better\n\
         License-Expression: MIT OR Apache-2.0\n\
         Requires-Python: >=3.7\n\
         Description-Content-Type: text/markdown\n\
         \n\
         {readme}"
    )
}

fn wheel(tag: &str) -> String {
    format!(
        "Wheel-Version: 1.0\nGenerator: metaclaw xtask ({VERSION})\nRoot-Is-Purelib: false\nTag: {tag}\n"
    )
}

/// The list of all members with hash and size. It cannot have its own.
fn record(info: &str, members: &[Member]) -> Member {
    let mut lines = String::new();
    for Member { name, content, .. } in members {
        let hash = URL_SAFE_NO_PAD.encode(Sha256::digest(content));
        let _ = writeln!(lines, "{name},sha256={hash},{}", content.len());
    }
    let name = format!("{info}/RECORD");
    let _ = writeln!(lines, "{name},,");
    Member::text(name, lines)
}

fn zip(members: &[Member], to: &Path) -> io::Result<()> {
    let mut archive = ZipWriter::new(BufWriter::new(File::create(to)?));
    for member in members {
        // The time of a zip's files is 1980 unless one is given: the same files make the same wheel.
        let options = SimpleFileOptions::default().unix_permissions(member.mode);
        archive.start_file(&member.name, options)?;
        archive.write_all(&member.content)?;
    }
    archive.finish()?.flush()
}

// === impl Member ===

impl Member {
    fn text(name: String, text: String) -> Self {
        Self {
            name,
            content: text.into_bytes(),
            mode: 0o644,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// pip installs it, and what it installed runs: a shell script stands in for the program.
    #[test]
    fn pip_installs_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("metaclaw");
        fs::write(&program, "#!/bin/sh\necho started\n").unwrap();
        let licence = folder.path().join("LICENSE-MIT");
        fs::write(&licence, "free").unwrap();
        let name = write(
            folder.path(),
            &program,
            Version(2, 28),
            "# MetaClaw\n",
            &[&licence],
        )
        .unwrap();

        let target = folder.path().join("target");
        let mut pip = Command::new("python3");
        pip.args([
            "-m",
            "pip",
            "install",
            "--no-index",
            "--no-deps",
            "--prefix",
        ])
        .arg(&target)
        .arg(folder.path().join(name));
        let installed = pip.output().unwrap();
        assert!(
            installed.status.success(),
            "{}",
            String::from_utf8_lossy(&installed.stderr)
        );
        let mut open = vec![target];
        let mut program = None;
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                } else if path.ends_with("bin/metaclaw") {
                    program = Some(path);
                }
            }
        }
        let said = Command::new(program.expect("a program")).output().unwrap();
        assert_eq!(said.stdout, b"started\n");
    }
}
