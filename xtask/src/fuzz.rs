//! `cargo xtask fuzz`: coverage-guided fuzzing of the relay's parsers, on the stable toolchain.
//!
//! It does what cargo-fuzz does with `--sanitizer none`, but without a nightly compiler: the code is built with LLVM's
//! coverage counters and linked with libFuzzer, which keeps every input that reaches something new. It can be
//! continued: a target that has run its minutes on the same code is not run again, a stopped one runs the rest, and its
//! inputs are kept for the next time.

mod build;
mod report;
mod run;

use std::fs;

use anyhow::{Context, Result, bail};

use self::report::FuzzReport;
use crate::places::Places;

/// All targets, in the order of their runs.
const TARGETS: [&str; 6] = ["sse", "translate", "rewrite", "splice", "identity", "heard"];

/// The arguments, parsed.
#[derive(Debug, PartialEq, Eq)]
struct FuzzRequest {
    minutes: u64,
    targets: Vec<&'static str>,
}

/// Builds the targets and runs each for its minutes, one after the other. A finding ends its target, and the command
/// fails after all have run.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    let wish = FuzzRequest::parse(args)?;
    let folder = places.target.join("fuzz");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut report = FuzzReport::read(&folder.join("report.json"))?;
    for target in wish.targets {
        let binary = build::build(places, &folder, target)?;
        let job = run::FuzzJob {
            target,
            binary: &binary,
            seeds: &places.root.join("tests/fuzz/seeds").join(target),
            folder: &folder,
            seconds: wish.minutes * 60,
        };
        job.run(&mut report)?;
    }
    report.print();
    if report.has_findings() {
        bail!(
            "there are findings: run the target's binary with the file as its argument to see one again, in {}",
            folder.display()
        );
    }
    Ok(())
}

/// Checks that every target still compiles, because only `cargo xtask fuzz` builds them, by hand.
pub(crate) fn check(places: &Places) -> Result<()> {
    build::check(places, &places.target.join("fuzz"))
}

// === impl Wish ===

impl FuzzRequest {
    fn parse(args: &[String]) -> Result<Self> {
        let mut minutes = 10;
        let mut targets = Vec::new();
        let mut args = args.iter().map(String::as_str);
        while let Some(arg) = args.next() {
            if arg == "--minutes" {
                let given = args.next().unwrap_or("nothing");
                minutes = given.parse().ok().filter(|n| *n > 0).with_context(|| {
                    format!("--minutes takes a whole number from 1, was given `{given}`")
                })?;
                continue;
            }
            let known = TARGETS.into_iter().find(|target| *target == arg);
            let all = TARGETS.join(", ");
            targets
                .push(known.with_context(|| format!("no such target: `{arg}`; there are {all}"))?);
        }
        if targets.is_empty() {
            targets.extend(TARGETS);
        }
        Ok(Self { minutes, targets })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<FuzzRequest> {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        FuzzRequest::parse(&args)
    }

    #[test]
    fn takes_minutes_and_targets() -> Result<()> {
        let all = parse(&[])?;
        assert_eq!((all.minutes, all.targets.len()), (10, TARGETS.len()));
        let some = parse(&["splice", "--minutes", "3"])?;
        let expected = FuzzRequest {
            minutes: 3,
            targets: vec!["splice"],
        };
        assert_eq!(some, expected);
        Ok(())
    }

    #[test]
    fn refuses_what_it_does_not_know_in_words() {
        let said = |args: &[&str]| parse(args).map_err(|error| error.to_string());
        assert_eq!(
            said(&["--minutes", "ten"]),
            Err("--minutes takes a whole number from 1, was given `ten`".to_owned())
        );
        let unknown = said(&["sss"]);
        assert!(
            matches!(&unknown, Err(text) if text.starts_with("no such target: `sss`; there are sse, ")),
            "{unknown:?}"
        );
    }

    #[test]
    fn every_target_has_seeds_and_is_in_the_crate() -> Result<()> {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz");
        let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
        assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len());
        for target in TARGETS {
            assert!(
                manifest.contains(&format!("name = \"{target}\"")),
                "{target}"
            );
            let seeds = fs::read_dir(root.join("seeds").join(target))?;
            assert!(seeds.count() > 0, "{target} has no seeds");
        }
        Ok(())
    }
}
