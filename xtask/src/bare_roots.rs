//! `cargo xtask bare-roots`: installs what `cargo xtask dist proxy` made on systems without a compiler.
//!
//! Each system is made by debootstrap and entered by chroot. A script of a new user's first commands runs there, and what
//! it printed is kept for a person to read.

mod upstream;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use metaclaw_fetch::{command, writing};

use crate::places::Places;

/// From the installation to the end of the first turn.
const PROMISED: Duration = Duration::from_secs(60);
const SCRIPT: &str = include_str!("bare_roots/visit.sh");
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Mounts what a system has at each start, and runs the script as a user who has just logged in. `$1` is the root.
const ENTER: &str =
    r#"mount -t proc proc "$1/proc" && exec chroot "$1" su --login visitor --command "$2""#;
/// Installs Debian's packages `$2` in the root `$1`, without those that are only recommended: pip recommends a compiler.
const FILL: &str = r#"mount -t proc proc "$1/proc" && exec chroot "$1" sh -ec '
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update
    apt-get -qq install --no-install-recommends $0
    apt-get clean
    useradd --create-home --shell /bin/bash visitor' "$2""#;
/// What this machine knows of its package index: the address, and the certificates that it trusts.
const INDEX: [&str; 2] = ["/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt"];
/// Where the packages lie in a root.
const FILES: &str = "/srv";

/// A system to install on.
#[derive(Debug)]
struct BareRoot {
    name: &'static str,
    /// The release of Debian.
    suite: &'static str,
    /// What is installed there, separated by spaces.
    packages: &'static str,
    /// Which file of `target/dist` is installed.
    file: PackageFile,
    /// The command that installs `{file}`.
    install: &'static str,
    /// The command that removes the program again.
    remove: &'static str,
    /// Whether the training server's libraries are new enough there.
    runs_trainer: bool,
}

#[derive(Debug, Clone, Copy)]
enum PackageFile {
    Wheel,
    Npm,
}

const ROOTS: [BareRoot; 3] = [
    BareRoot {
        name: "trixie-pipx",
        suite: "trixie",
        packages: "ca-certificates curl procps python3-pip pipx",
        file: PackageFile::Wheel,
        install: "pipx install {file} && pipx ensurepath",
        remove: "pipx uninstall metaclaw",
        runs_trainer: true,
    },
    BareRoot {
        name: "bookworm-npm",
        suite: "bookworm",
        packages: "ca-certificates curl procps nodejs npm",
        file: PackageFile::Npm,
        install: "npm install --global --prefix ~/.local {file}",
        remove: "npm uninstall --global --prefix ~/.local metaclaw",
        runs_trainer: true,
    },
    BareRoot {
        name: "bullseye-pip",
        suite: "bullseye",
        packages: "ca-certificates curl procps python3-pip",
        file: PackageFile::Wheel,
        install: "pip3 install --user {file}",
        remove: "pip3 uninstall --yes metaclaw",
        runs_trainer: false,
    },
];

/// Visits the roots that `args` name, or all of them, and prints where the transcripts lie.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    let named = |root: &&BareRoot| args.is_empty() || args.iter().any(|it| it == root.name);
    let known = ROOTS.map(|it| it.name);
    if let Some(stray) = args.iter().find(|it| !known.contains(&it.as_str())) {
        bail!("takes {}, was given `{stray}`", known.join(", "));
    }
    ensure!(
        is_root()?,
        "debootstrap and chroot need root: run it as root"
    );
    let _lock = places.lock()?;
    let upstream = upstream::start()?;
    let mut n_failed = 0;
    for root in ROOTS.iter().filter(named) {
        match root.visit(places, &upstream) {
            Ok(note) => println!("{}: {note}", root.name),
            Err(error) => {
                n_failed += 1;
                println!("{}: FAILED: {error:#}", root.name);
            }
        }
    }
    ensure!(n_failed == 0, "{n_failed} of the visits failed");
    Ok(())
}

fn is_root() -> Result<bool> {
    let id = command::output(Command::new("id").arg("--user"))?;
    Ok(id.trim() == "0")
}

// === impl BareRoot ===

impl BareRoot {
    /// Unpacks the root, runs the script in it, and removes it; what is to be said of it.
    fn visit(&self, places: &Places, upstream: &str) -> Result<String> {
        let cache = places.cache.join("bare-roots");
        writing(fs::create_dir_all(&cache), &cache)?;
        let archive = self.archive(&cache)?;
        let root = cache.join(self.name);
        remove(&root)?;
        writing(fs::create_dir(&root), &root)?;
        let mut unpack = Command::new("tar");
        command::output(unpack.arg("-C").arg(&root).arg("-xf").arg(&archive))?;
        let visited = self.visit_in(&root, places, upstream);
        remove(&root)?;
        visited
    }

    /// The system as debootstrap made it, packed once.
    fn archive(&self, cache: &Path) -> Result<PathBuf> {
        let archive = cache.join(format!("{}.tar", self.name));
        if archive.is_file() {
            return Ok(archive);
        }
        println!(
            "{}: debootstrap makes {}, which takes some minutes",
            self.name,
            archive.display()
        );
        let folder = cache.join(format!("{}.partial", self.name));
        remove(&folder)?;
        let mut make = Command::new("debootstrap");
        make.args(["--variant=minbase", self.suite]);
        command::output(make.arg(&folder))?;
        // debootstrap itself cannot order the hundreds of packages that npm is made of.
        let mut fill = Command::new("unshare");
        fill.args(["--mount", "--", "sh", "-c", FILL, "sh"]);
        command::output(fill.arg(&folder).arg(self.packages))?;
        let partial = archive.with_extension("tar.partial");
        let mut pack = Command::new("tar");
        pack.arg("-C").arg(&folder);
        command::output(pack.arg("-cf").arg(&partial).arg("."))?;
        writing(fs::rename(&partial, &archive), &archive)?;
        remove(&folder)?;
        Ok(archive)
    }

    fn visit_in(&self, root: &Path, places: &Places, upstream: &str) -> Result<String> {
        let dist = places.target.join("dist");
        let file = copy(&self.file.find(&dist)?, root)?;
        let trainer = dist.join(format!("metaclaw-trainer-{VERSION}-x86_64-linux.tar.gz"));
        let trainer = if self.runs_trainer && trainer.is_file() {
            copy(&dist.join("SHA256SUMS"), root)?;
            copy(&trainer, root)?
        } else {
            String::new()
        };
        // pipx asks a package index for a newer pip, as this machine would.
        for path in INDEX {
            let to = root.join(path.trim_start_matches('/'));
            if Path::new(path).is_file() {
                writing(fs::copy(path, &to), &to)?;
            }
        }
        let script = root.join("srv/visit.sh");
        writing(fs::write(&script, SCRIPT), &script)?;
        let install = self.install.replace("{file}", &file);
        let visit = format!(
            "INSTALL='{install}' REMOVE='{}' UPSTREAM='{upstream}' MODEL={} TRAINER='{trainer}' bash {FILES}/visit.sh 2>&1",
            self.remove,
            upstream::MODEL
        );
        let mut enter = Command::new("unshare");
        // What the visit leaves running ends with it.
        enter.args(["--mount", "--pid", "--fork", "--kill-child", "--"]);
        enter.args(["sh", "-c", ENTER, "sh"]).arg(root).arg(visit);
        let output = command::attempt(&mut enter)?;
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        let transcript = dist.join(format!("visit-{}.txt", self.name));
        writing(fs::write(&transcript, &text), &transcript)?;
        let shown = transcript.display();
        ensure!(
            output.status.success() && text.contains(upstream::REPLY),
            "it did not get to its end: {shown}"
        );
        let took = first_turn(&text).with_context(|| format!("{shown} has no time"))?;
        ensure!(
            took < PROMISED,
            "the first turn took {took:?}, and {PROMISED:?} is promised: {shown}"
        );
        Ok(format!(
            "first turn {:.1} s after the installation began; {shown}",
            took.as_secs_f64()
        ))
    }
}

// === impl PackageFile ===

impl PackageFile {
    fn find(self, dist: &Path) -> Result<PathBuf> {
        let extension = match self {
            Self::Wheel => "whl",
            Self::Npm => "tgz",
        };
        let start = format!("metaclaw-{VERSION}");
        let entries = fs::read_dir(dist).into_iter().flatten().flatten();
        let mut paths = entries.map(|entry| entry.path());
        let found = paths.find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&start) && path.extension().is_some_and(|it| it == extension)
        });
        found.with_context(|| {
            format!(
                "{} has no such package: run `cargo xtask dist proxy` first",
                dist.display()
            )
        })
    }
}

/// Copies a file into the root; its path there.
fn copy(file: &Path, root: &Path) -> Result<String> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let to = root.join(FILES.trim_start_matches('/')).join(&*name);
    fs::copy(file, &to).with_context(|| format!("cannot copy {}", file.display()))?;
    Ok(format!("{FILES}/{name}"))
}

fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        writing(fs::remove_dir_all(folder), folder)?;
    }
    Ok(())
}

/// The time that the script measured.
fn first_turn(transcript: &str) -> Option<Duration> {
    let (_, rest) = transcript.split_once("FIRST TURN after ")?;
    let (number, _) = rest.split_once(" ms")?;
    number.parse().ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_the_first_turn_is_read_from_the_transcript() {
        let text = "$ metaclaw start\n\nFIRST TURN after 4321 ms\n$ metaclaw status\n";
        assert_eq!(first_turn(text), Some(Duration::from_millis(4321)));
        assert_eq!(first_turn("FAILED"), None);
    }
}
