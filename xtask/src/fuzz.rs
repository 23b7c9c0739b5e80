//! `cargo xtask fuzz`: coverage-guided fuzzing of the relay's parsers, on the stable toolchain.
//!
//! It does what cargo-fuzz does with `--sanitizer none`, but without a nightly compiler: the code is built with LLVM's
//! coverage counters and linked with libFuzzer, which keeps every input that reaches something new. A later run begins
//! with the inputs that are kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use metaclaw_fetch::{command, writing};

use crate::cargo::cargo;
use crate::places::Places;

const TARGETS: [&str; 6] = ["sse", "translate", "rewrite", "splice", "identity", "heard"];
/// libFuzzer's counters, one for each edge of the program, and the operands of comparisons, from which it learns which
/// bytes to try. The flags are those of cargo-fuzz; the `sancov-module` pass is LLVM's and needs no nightly.
const FLAGS: [&str; 9] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    // This keeps branches apart that the compiler would fold into one.
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
    "-Cdebug-assertions",
    "-Ccodegen-units=1",
    "--cfg=fuzzing",
];
/// A longer input reaches nothing that a shorter one does not; one that takes more seconds or MiB is a finding.
const LIMITS: [&str; 3] = ["-max_len=4096", "-timeout=10", "-rss_limit_mb=2048"];

/// Builds the targets and runs each for its minutes, one after the other. A finding ends its target, and the command
/// fails after all have run.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    let (minutes, targets) = parse(args)?;
    let folder = places.target.join("fuzz");
    let mut failed = Vec::new();
    for target in targets {
        let binary = build(places, &folder, target)?;
        if let Err(error) = fuzz(places, &folder, target, &binary, minutes) {
            println!("{target}: {error:#}");
            failed.push(target);
        }
    }
    let (failed, artifacts) = (failed.join(", "), folder.join("artifacts"));
    ensure!(
        failed.is_empty(),
        "there are findings in {failed}; run the target's binary with a file of {} as its argument to see one again",
        artifacts.display()
    );
    Ok(())
}

/// Checks that every target still compiles, because only `cargo xtask fuzz` builds them, by hand.
pub(crate) fn check(places: &Places) -> Result<()> {
    let mut check = cargo(places, &["check", "--bins", "--all-features"]);
    check
        .current_dir(locked(places)?)
        .env("RUSTFLAGS", "--cfg=fuzzing");
    check
        .arg("--target-dir")
        .arg(places.target.join("fuzz/check"));
    command::run(&mut check)
}

fn parse(args: &[String]) -> Result<(u64, Vec<&'static str>)> {
    let (mut minutes, mut targets) = (10, Vec::new());
    let mut args = args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        if arg == "--minutes" {
            let given = args.next().unwrap_or("nothing");
            let number = given.parse::<u64>().ok().filter(|minutes| *minutes > 0);
            minutes = number.with_context(|| {
                format!("--minutes takes a whole number from 1, was given `{given}`")
            })?;
        } else {
            let known = TARGETS.into_iter().find(|target| *target == arg);
            targets.push(known.with_context(|| {
                format!("no such target: `{arg}`; there are {}", TARGETS.join(", "))
            })?);
        }
    }
    if targets.is_empty() {
        targets.extend(TARGETS);
    }
    Ok((minutes, targets))
}

fn build(places: &Places, folder: &Path, target: &str) -> Result<PathBuf> {
    let version = command::output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("`rustc -vV` names no host")?.trim();
    let out = folder.join("build");
    let mut build = cargo(places, &["build", "--release"]);
    build.args(["--bin", target, "--features", target]);
    // With a target triple the flags apply to the target only, not to build scripts and macros.
    build.args(["--target", host, "--target-dir"]).arg(&out);
    build
        .current_dir(locked(places)?)
        .env("RUSTFLAGS", FLAGS.join(" "));
    command::run(&mut build)?;
    Ok(out.join(host).join("release").join(target))
}

/// The folder of the targets, with a lock file of the released versions; cargo adds what fuzzing needs.
fn locked(places: &Places) -> Result<PathBuf> {
    let krate = places.root.join("tests/fuzz");
    let lock = krate.join("Cargo.lock");
    writing(fs::copy(places.root.join("Cargo.lock"), &lock), &lock)?;
    Ok(krate)
}

fn fuzz(places: &Places, folder: &Path, target: &str, binary: &Path, minutes: u64) -> Result<()> {
    let corpus = folder.join("corpus").join(target);
    let artifacts = folder.join("artifacts").join(target);
    for folder in [&corpus, &artifacts] {
        writing(fs::create_dir_all(folder), folder)?;
    }
    let seeds = places.root.join("tests/fuzz/seeds").join(target);
    let mut fuzzer = Command::new(binary);
    // New inputs go to the first folder. The others are only read, so an old finding is tried again.
    fuzzer.args([&corpus, &seeds, &artifacts]);
    fuzzer.arg(format!("-max_total_time={}", minutes * 60));
    fuzzer.arg(format!("-artifact_prefix={}/", artifacts.display()));
    fuzzer.args(["-print_final_stats=1", "-reload=0"]);
    command::run(fuzzer.args(LIMITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_minutes_and_targets_and_refuses_others_in_words() {
        let parsed = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(ToString::to_string).collect();
            parse(&args).map_err(|error| error.to_string())
        };
        assert_eq!(parsed(&[]), Ok((10, TARGETS.to_vec())));
        let three = parsed(&["splice", "--minutes", "3"]);
        assert_eq!(three, Ok((3, vec!["splice"])));
        let no_number = "--minutes takes a whole number from 1, was given `ten`";
        for (args, error) in [
            (&["--minutes", "ten"][..], no_number),
            (&["sss"], "no such target: `sss`; there are sse, "),
        ] {
            let found = parsed(args).unwrap_err();
            assert!(found.starts_with(error), "{found}");
        }
    }

    #[test]
    fn every_target_has_seeds_and_is_in_the_crate() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz");
        let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
        assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len());
        for target in TARGETS {
            let named = format!("name = \"{target}\"");
            assert!(manifest.contains(&named), "{target}");
            let seeds = fs::read_dir(root.join("seeds").join(target)).unwrap();
            assert!(seeds.count() > 0, "{target} has no seeds");
        }
    }
}
