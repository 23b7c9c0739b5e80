//! Uses pip to find a wheel, and to make a virtual environment with given packages.
//!
//! pip knows the user's package index, mirror and proxies. So this repository needs no address.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use crate::command;
use crate::disk::{is_stamped, writing};

/// A wheel on the package index, or in a local folder that pip is configured to use.
#[derive(Debug, Clone)]
pub struct Wheel {
    /// The requirement, for example `torch==2.11.0`.
    pub requirement: String,
    /// Its address: `https:`, `http:` or `file:`.
    pub url: String,
    /// SHA-256 of the whole file in hexadecimal.
    pub sha256: String,
}

impl Wheel {
    /// Returns the last part of its address.
    pub fn file_name(&self) -> &str {
        self.url.rsplit('/').next().unwrap_or(&self.url)
    }
}

/// Asks pip for the address of the wheel of `requirement` for this machine. Nothing is installed.
///
/// # Errors
/// Fails if there is no Python or pip, no connection, or no such wheel.
pub fn locate(requirement: &str) -> Result<Wheel> {
    // `--only-binary` is needed because pip would build a source package just to look into it, and only the wheel's
    // files are used.
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
    // pip before 23.1 has only the field `hash`, "sha256=…".
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

/// Makes a virtual environment in `folder` with exactly these requirements, unless it exists already. Returns the path
/// of its Python.
///
/// # Errors
/// Fails if there is no Python, pip or venv, no connection, or no such package.
pub fn environment(folder: &Path, requirements: &[&str]) -> Result<PathBuf> {
    environment_with(Path::new("python3"), folder, requirements, &[])
}

/// Makes such an environment with the Python `by`, and also installs the packages `alone` without their own requirements.
/// Those of them that are needed are in `requirements`.
///
/// # Errors
/// Fails like [`environment`].
pub fn environment_with(
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
