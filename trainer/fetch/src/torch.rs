//! libtorch as PyTorch's package contains it: the required release, a check of a folder, and the variant with CUDA.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{disk::room_for, pip};

/// tch 0.24 requires exactly this release.
pub const VERSION: &str = "2.11";
/// The package that contains it.
pub const REQUIREMENT: &str = "torch==2.11.0";
const CUDA: &str = "libtorch_cuda.so";
/// Disk space of PyTorch with NVIDIA's libraries, in bytes.
const CUDA_BYTES: u64 = 8_000_000_000;

/// Installs a libtorch with CUDA: PyTorch's package in a separate environment below `cache`, where NVIDIA's libraries
/// are beside it. Programs that were built with a libtorch for CPUs run with it. Returns the folder that contains
/// `lib`.
///
/// # Errors
/// Fails if there is no room on the disk, no Python with pip and venv, no connection, or if the package index does not
/// have the package.
pub fn with_cuda(cache: &Path) -> Result<PathBuf> {
    let venv = cuda_environment(cache);
    if !venv.exists() {
        room_for("PyTorch with CUDA", CUDA_BYTES, cache)?;
    }
    pip::environment(&venv, &[REQUIREMENT])?;
    let folder = torch_below(&venv)?;
    check(&folder).with_context(|| format!("fetched {}", folder.display()))?;
    if !folder.join("lib").join(CUDA).is_file() {
        bail!(
            "the package index gave a PyTorch without CUDA ({} has no {CUDA}): set LIBTORCH to the folder of a libtorch {VERSION} with CUDA",
            folder.display()
        );
    }
    Ok(folder)
}

/// Returns the folder in which [`with_cuda`] installs it.
pub fn cuda_environment(cache: &Path) -> PathBuf {
    cache.join("libtorch-2.11.0-cuda")
}

fn torch_below(venv: &Path) -> Result<PathBuf> {
    let lib = venv.join("lib");
    let versions = fs::read_dir(&lib).with_context(|| format!("cannot list {}", lib.display()))?;
    let folders = versions.filter_map(|entry| Some(entry.ok()?.path().join("site-packages/torch")));
    let mut found = folders.filter(|folder| folder.is_dir());
    found
        .next()
        .with_context(|| format!("{} has no PyTorch", lib.display()))
}

/// Checks that a folder contains libtorch.
///
/// # Errors
/// Fails if a library or header is missing, or if it is another release.
pub fn check(folder: &Path) -> Result<()> {
    for name in ["libtorch.so", "libtorch_cpu.so", "libc10.so"] {
        if !folder.join("lib").join(name).is_file() {
            bail!("it has no lib/{name}; an unpacked libtorch {VERSION} is wanted");
        }
    }
    let header = folder.join("include/torch/headeronly/version.h");
    let text = fs::read_to_string(&header)
        .with_context(|| format!("it has no {} as libtorch {VERSION} has", header.display()))?;
    match version(&text) {
        Some(found) if found == VERSION => Ok(()),
        found => bail!(
            "it is libtorch {}; {VERSION} is wanted",
            found.as_deref().unwrap_or("of no known version")
        ),
    }
}

fn version(header: &str) -> Option<String> {
    let number = |name: &str| {
        let line = header
            .lines()
            .find_map(|line| line.strip_prefix("#define ")?.strip_prefix(name))?;
        line.trim().parse::<u32>().ok()
    };
    Some(format!(
        "{}.{}",
        number("TORCH_VERSION_MAJOR")?,
        number("TORCH_VERSION_MINOR")?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_version_of_a_header() {
        let header =
            "#pragma once\n#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 11\n";
        assert_eq!(version(header).as_deref(), Some("2.11"));
        assert_eq!(version("#define TORCH_VERSION_MAJOR 2\n"), None);
    }

    #[test]
    fn pytorch_is_found_in_an_environment_whatever_its_python() {
        let venv = tempfile::tempdir().unwrap();
        fs::create_dir_all(venv.path().join("lib/pkgconfig")).unwrap();
        assert!(torch_below(venv.path()).is_err());
        let torch = venv.path().join("lib/python3.12/site-packages/torch");
        fs::create_dir_all(&torch).unwrap();
        assert_eq!(torch_below(venv.path()).unwrap(), torch);
    }

    #[test]
    fn a_folder_without_libtorch_is_refused_in_words() {
        let folder = tempfile::tempdir().unwrap();
        let error = check(folder.path()).unwrap_err().to_string();
        assert!(error.contains("no lib/libtorch.so"), "{error}");
    }
}
