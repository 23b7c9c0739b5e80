//! `cargo xtask bare-roots`: installs what `cargo xtask dist proxy` made on systems without a compiler.
//!
//! Each system is made by debootstrap and entered by chroot (`root.sh`). A script of a new user's first commands runs
//! there (`visit.sh`), and what it printed is kept for a person to read.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use metaclaw_fetch::command;

use crate::places::Places;
use crate::upstream;

/// From the installation to the end of the first turn.
const PROMISED: Duration = Duration::from_secs(60);
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A system to install on.
#[derive(Debug)]
struct BareRoot {
    name: &'static str,
    /// The release of Debian.
    suite: &'static str,
    packages: &'static str,
    /// The extension of the file in `target/dist` that is installed.
    extension: &'static str,
    /// The command that installs `{file}`.
    install: &'static str,
    /// The command that removes the program again.
    remove: &'static str,
    /// Whether the training server's libraries are new enough there.
    runs_trainer: bool,
}

const ROOTS: [BareRoot; 3] = [
    BareRoot {
        name: "trixie-pipx",
        suite: "trixie",
        packages: "ca-certificates curl procps python3-pip pipx",
        extension: "whl",
        install: "pipx install {file} && pipx ensurepath",
        remove: "pipx uninstall metaclaw",
        runs_trainer: true,
    },
    BareRoot {
        name: "bookworm-npm",
        suite: "bookworm",
        packages: "ca-certificates curl procps nodejs npm",
        extension: "tgz",
        install: "npm install --global --prefix ~/.local {file}",
        remove: "npm uninstall --global --prefix ~/.local metaclaw",
        runs_trainer: true,
    },
    BareRoot {
        name: "bullseye-pip",
        suite: "bullseye",
        packages: "ca-certificates curl procps python3-pip",
        extension: "whl",
        install: "pip3 install --user {file}",
        remove: "pip3 uninstall --yes metaclaw",
        runs_trainer: false,
    },
];

/// Visits the roots that `args` name, or all of them, and prints where the transcripts lie.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    let known = ROOTS.map(|root| root.name);
    if let Some(stray) = args.iter().find(|arg| !known.contains(&arg.as_str())) {
        bail!("takes {}, was given `{stray}`", known.join(", "));
    }
    let user = command::output(Command::new("id").arg("--user"))?;
    ensure!(
        user.trim() == "0",
        "debootstrap and chroot need root: run it as root"
    );
    let _lock = places.lock()?;
    let upstream = upstream::start()?;
    let mut n_failed = 0;
    for root in &ROOTS {
        if !args.is_empty() && !args.iter().any(|arg| arg == root.name) {
            continue;
        }
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

// === impl BareRoot ===

impl BareRoot {
    /// Runs the script in a fresh copy of the system. Returns what is to be said of it.
    fn visit(&self, places: &Places, upstream: &str) -> Result<String> {
        let dist = places.target.join("dist");
        let scripts = places.root.join("xtask/src/bare_roots");
        let package = self.package(&dist)?;
        let mut files = vec![scripts.join("visit.sh"), package.clone()];
        let trainer = dist.join(format!("metaclaw-trainer-{VERSION}-x86_64-linux.tar.gz"));
        let mut trainer_inside = String::new();
        if self.runs_trainer && trainer.is_file() {
            trainer_inside = inside(&trainer);
            files.extend([trainer, dist.join("SHA256SUMS")]);
        }
        let files: Vec<String> = files
            .iter()
            .map(|file| file.display().to_string())
            .collect();
        let transcript = dist.join(format!("visit-{}.txt", self.name));
        let mut visit = Command::new("bash");
        visit
            .arg(scripts.join("root.sh"))
            .env("NAME", self.name)
            .env("SUITE", self.suite)
            .env("PACKAGES", self.packages)
            .env("CACHE", places.cache.join("bare-roots"))
            .env("TRANSCRIPT", &transcript)
            .env("FILES", files.join(" "))
            .env("INSTALL", self.install.replace("{file}", &inside(&package)))
            .env("REMOVE", self.remove)
            .env("UPSTREAM", upstream)
            .env("MODEL", upstream::MODEL)
            .env("TRAINER", trainer_inside);
        let shown = transcript.display();
        command::output(&mut visit)
            .with_context(|| format!("it did not get to its end: {shown}"))?;
        let text =
            fs::read_to_string(&transcript).with_context(|| format!("cannot read {shown}"))?;
        ensure!(
            text.contains(upstream::WORDS),
            "the model's words are not in {shown}"
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

    fn package(&self, dist: &Path) -> Result<PathBuf> {
        let start = format!("metaclaw-{VERSION}");
        let mut files = fs::read_dir(dist).into_iter().flatten().flatten();
        let found = files.find(|file| {
            let name = file.file_name().to_string_lossy().into_owned();
            name.starts_with(&start) && name.ends_with(&format!(".{}", self.extension))
        });
        let found = found.with_context(|| {
            format!(
                "{} has no such package: run `cargo xtask dist proxy` first",
                dist.display()
            )
        })?;
        Ok(found.path())
    }
}

/// Where a file lies in a root.
fn inside(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default();
    format!("/srv/{}", name.display())
}

/// The time that the script measured.
fn first_turn(transcript: &str) -> Option<Duration> {
    let (_, rest) = transcript.split_once("FIRST TURN after ")?;
    let (number, _) = rest.split_once(" ms")?;
    number.parse().ok().map(Duration::from_millis)
}
