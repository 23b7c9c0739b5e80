//! Tells the commit that this is built from, which a checkpoint's manifest says.

use std::{path::Path, process::Command};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // A package that lies in no checkout has no commit.
    let Some(commit) = git(&["rev-parse", "HEAD"]) else {
        return;
    };
    println!("cargo:rustc-env=METACLAW_COMMIT={commit}");
    // The first grows with every commit. A file that is not there would be looked at as changed at every build.
    for name in ["logs/HEAD", "HEAD"] {
        let file = git(&["rev-parse", "--git-path", name]);
        if let Some(file) = file.filter(|file| Path::new(file).exists()) {
            println!("cargo:rerun-if-changed={file}");
        }
    }
}

/// What git says in one line; none where it is not there or refuses.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !said.trim().is_empty()).then(|| said.trim().to_owned())
}
