//! libtorch 2.11 behind the link `.libtorch`: for the CPU, or with CUDA after `setup --cuda`.
//!
//! It is searched in this order: `LIBTORCH`, the present link, an installed PyTorch 2.11, the cache folder; otherwise
//! the few files that a CPU needs are taken from the wheel on the Python package index.

mod stubs;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use metaclaw_fetch::torch::{self, REQUIREMENT, VERSION, check};
use metaclaw_fetch::{command, is_stamped, pip, writing};

use crate::places::Places;
use crate::report::Stage;
use crate::wheel;

/// Parts of `torch/lib` that a CPU needs; the rest of the wheel is for CUDA and Python.
const LIBRARIES: [&str; 3] = ["libtorch_cpu.so", "libc10.so", "libgomp.so.1"];

pub(crate) fn ensure(places: &Places, stage: &mut Stage) -> Result<()> {
    let link = places.libtorch_link();
    if let Some(given) = given_by_user(&link) {
        check(&given).with_context(|| format!("LIBTORCH names {}", given.display()))?;
        "as LIBTORCH says".clone_into(&mut stage.note);
        return point(&link, &given);
    }
    if check(&link).is_ok() {
        "there already".clone_into(&mut stage.note);
        return Ok(());
    }
    if let Some(installed) = installed_pytorch() {
        stage.note = format!("of the installed PyTorch, {}", installed.display());
        return point(&link, &installed);
    }
    let folder = places.cache.join("libtorch-2.11.0-cpu");
    fetch(places, &folder, stage)?;
    point(&link, &folder)
}

/// Makes `.libtorch` lead to a libtorch with CUDA. Programs that were built with the other one run on it.
pub(crate) fn ensure_cuda(places: &Places, stage: &mut Stage) -> Result<()> {
    let folder = torch::with_cuda(&places.cache)?;
    stage.note = format!("{REQUIREMENT}, {}", folder.display());
    point(&places.libtorch_link(), &folder)
}

/// Returns the folder that the user has set as `LIBTORCH`. If the variable holds `link`, cargo has set it, not the
/// user.
fn given_by_user(link: &Path) -> Option<PathBuf> {
    let given = PathBuf::from(std::env::var_os("LIBTORCH").filter(|value| !value.is_empty())?);
    (given != link).then_some(given)
}

/// Returns the folder of a PyTorch that `python3` imports, if it has the right release.
fn installed_pytorch() -> Option<PathBuf> {
    let ask = "import torch, os; print(os.path.dirname(torch.__file__))";
    let output = command::attempt(Command::new("python3").args(["-c", ask])).ok()?;
    let folder = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    (output.status.success() && check(&folder).is_ok()).then_some(folder)
}

fn point(link: &Path, folder: &Path) -> Result<()> {
    let shown = folder.display();
    let resolved = folder.canonicalize();
    let folder = resolved.with_context(|| format!("no such folder: {shown}"))?;
    if fs::read_link(link).is_ok_and(|target| target == folder) {
        return Ok(());
    }
    if link.symlink_metadata().is_ok_and(|meta| !meta.is_symlink()) {
        let shown = link.display();
        bail!("{shown} is not a link: move it away, it is made by `cargo xtask setup`");
    }
    // The link is made under another name and renamed, so that it always exists whole.
    let new = link.with_extension("new");
    let _ = fs::remove_file(&new);
    writing(symlink(&folder, &new), &new)?;
    writing(fs::rename(&new, link), link)
}

fn fetch(places: &Places, folder: &Path, stage: &mut Stage) -> Result<()> {
    let stamp = folder.join("complete");
    if is_stamped(&stamp, REQUIREMENT) && check(folder).is_ok() {
        "in the cache folder".clone_into(&mut stage.note);
        return Ok(());
    }
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        bail!(
            "the slim libtorch is taken from the x86-64 Linux wheel; here, set LIBTORCH to an unpacked libtorch {VERSION} \
             or install PyTorch {VERSION} for python3"
        );
    }
    let wheel = pip::locate(REQUIREMENT)?;
    let files = wheel::take(places, &wheel, stage, |name| place(folder, name))?;
    stubs::complete(&folder.join("lib"))?;
    check(folder).with_context(|| format!("fetched {}", folder.display()))?;
    writing(fs::write(&stamp, REQUIREMENT), &stamp)?;
    stage.note = format!("{} files of {}", files.len(), wheel.file_name());
    Ok(())
}

/// The path for a member of the wheel; `None` for files that a CPU does not need.
fn place(folder: &Path, name: &str) -> Option<PathBuf> {
    if let Some(library) = name.strip_prefix("torch/lib/") {
        let is_ours = LIBRARIES.contains(&library);
        return is_ours.then(|| folder.join("lib").join(library));
    }
    if let Some(header) = name.strip_prefix("torch/include/") {
        return Some(folder.join("include").join(header));
    }
    let (first, rest) = name.split_once('/')?;
    let is_notice = rest == "RECORD" || rest.contains("LICENSE") || rest.contains("NOTICE");
    (first.ends_with(".dist-info") && is_notice).then(|| folder.join("notices").join(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_headers_three_libraries_and_the_notices() {
        let licence = "torch-2.11.0.dist-info/licenses/LICENSE";
        for (name, expected) in [
            ("torch/lib/libtorch_cpu.so", Some("t/lib/libtorch_cpu.so")),
            ("torch/include/ATen/ATen.h", Some("t/include/ATen/ATen.h")),
            (licence, Some("t/notices/licenses/LICENSE")),
            ("torch/lib/libtorch_cuda.so", None),
            ("torch/nn/functional.py", None),
            ("torch-2.11.0.dist-info/METADATA", None),
        ] {
            assert_eq!(place(Path::new("t"), name), expected.map(PathBuf::from));
        }
    }

    #[test]
    fn the_link_is_made_mended_and_never_replaces_a_folder() {
        let home = tempfile::tempdir().unwrap();
        let [one, two, link] = ["one", "two", "link"].map(|name| home.path().join(name));
        for folder in [&one, &two] {
            fs::create_dir(folder).unwrap();
            point(&link, folder).unwrap();
            let target = fs::read_link(&link).unwrap();
            assert_eq!(target, folder.canonicalize().unwrap());
        }
        let error = point(&one, &two).unwrap_err().to_string();
        assert!(error.contains("is not a link"), "{error}");
    }
}
