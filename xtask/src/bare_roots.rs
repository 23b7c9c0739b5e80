//! `cargo xtask bare-roots`: installs what `cargo xtask dist proxy` made on systems without a compiler.
//!
//! `root.sh` makes each system by debootstrap and enters it by chroot. A script of a new user's first commands runs there
//! (`visit.sh`), and what it printed is kept for a person to read.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use metaclaw_fetch::command;

use crate::files;
use crate::places::Places;
use crate::upstream;

/// The systems that `root.sh` knows.
const NAMES: [&str; 3] = ["trixie-pipx", "bookworm-npm", "bullseye-pip"];
/// From the installation to the end of the first turn.
const PROMISED: Duration = Duration::from_secs(60);

pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    if let Some(stray) = args.iter().find(|arg| !NAMES.contains(&arg.as_str())) {
        bail!("takes {}, was given `{stray}`", NAMES.join(", "));
    }
    let user = command::output(Command::new("id").arg("--user"))?;
    ensure!(
        user.trim() == "0",
        "debootstrap and chroot need root: run it as root"
    );
    let _lock = places.lock()?;
    let upstream = upstream::start()?;
    let mut n_failed = 0;
    for name in NAMES {
        if !args.is_empty() && !args.iter().any(|arg| arg == name) {
            continue;
        }
        println!("{name}: if it is the first visit, debootstrap takes some minutes");
        match visit(places, name, &upstream) {
            Ok(note) => println!("{name}: {note}"),
            Err(error) => {
                n_failed += 1;
                println!("{name}: FAILED: {error:#}");
            }
        }
    }
    ensure!(n_failed == 0, "{n_failed} of the visits failed");
    Ok(())
}

fn visit(places: &Places, name: &str, upstream: &str) -> Result<String> {
    let dist = places.target.join("dist");
    let scripts = places.root.join("xtask/src/bare_roots");
    let transcript = dist.join(format!("visit-{name}.txt"));
    let mut visit = Command::new("bash");
    visit.arg(scripts.join("root.sh"));
    visit.envs([
        ("NAME", name),
        ("UPSTREAM", upstream),
        ("MODEL", upstream::MODEL),
    ]);
    visit.envs([
        ("SCRIPTS", &scripts),
        ("DIST", &dist),
        ("TRANSCRIPT", &transcript),
    ]);
    visit.env("VERSION", env!("CARGO_PKG_VERSION"));
    visit.env("CACHE", places.cache.join("bare-roots"));
    let shown = transcript.display();
    command::output(&mut visit).with_context(|| format!("it did not get to its end: {shown}"))?;
    let text = files::read(&transcript)?;
    ensure!(
        text.contains(upstream::WORDS),
        "the model's words are not in {shown}"
    );
    let took = first_turn(&text).with_context(|| format!("{shown} has no time"))?;
    ensure!(
        took < PROMISED,
        "the first turn took {took:?}, and {PROMISED:?} is promised: {shown}"
    );
    let seconds = took.as_secs_f64();
    Ok(format!(
        "first turn {seconds:.1} s after the installation began; {shown}"
    ))
}

fn first_turn(transcript: &str) -> Option<Duration> {
    let (_, rest) = transcript.split_once("FIRST TURN after ")?;
    let (number, _) = rest.split_once(" ms")?;
    number.parse().ok().map(Duration::from_millis)
}
