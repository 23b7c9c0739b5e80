//! `cargo xtask test` runs the checks for a change before it is pushed, and with `--all` everything.
//!
//! There is one build: clippy checks the workspace's crates as they are compiled for the tests, with the features of
//! all that is tested. A separate clippy command would have to check all dependencies and crates again (193 s of two
//! cores).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use metaclaw_fetch::command;

use crate::bubblewrap;
use crate::cargo::{self, cargo_with_clippy, has_nextest};
use crate::circles;
use crate::clients;
use crate::docs;
use crate::fuzz;
use crate::lint;
use crate::places::Places;
use crate::report::StageReport;
use crate::wall;

/// Features that are off by default, and are tested too.
const ALL_FEATURES: [&str; 2] = ["--features", "metaclaw/otel"];

const SHORT_ROUND: [&str; 11] = [
    // The demo: what README's first screen says.
    "chat::the_demo_model_says_paris_token_by_token",
    "chat::the_first_wish_of_the_readme_is_obeyed_and_is_on_the_page",
    // The relay with a real SDK.
    "packages::turns::the_openai_package_sees_and_sends_what_it_would_without_us",
    // A real agent (OpenClaw), its wiring and unwiring, a kill and a restart.
    "wiring::one_yes_relays_completions_and_a_killed_proxy_costs_no_answer",
    // One command for an agent with a login of its own (Claude Code), beside OpenClaw on another model.
    "agents::own_login::claude_code_keeps_its_model_and_key_beside_openclaw",
    "crash::a_turn_that_ended_100_ms_before_a_kill_is_in_the_log_whole_and_once",
    // The loop: verdicts, a training step, the gate, the swap.
    "learning::swap::what_was_complained_about_is_learned_and_swapped_in_under_traffic",
    // The same mechanics on gated delta nets, whose past is states beside pages.
    "learning::nets::random_gated_delta_nets_learn_are_tested_and_are_swapped_under_streams",
    "tinker::the_sdk_trains_saves_loads_and_samples",
    "rollouts::harnesses::the_agents_sdk_of_openai_runs_as_it_is",
    "page::live::a_lesson_appears_within_two_seconds_and_its_undo_takes_it_back",
];
/// The number of cases of each property in the short run, unless the property sets one; proptest's default is 256.
const SHORT_CASES: &str = "32";
/// The number of kills of the proxy in the short run; `--all` has 50.
const SHORT_KILLS: &str = "5";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// Every unit, property, snapshot and doc test, and an end-to-end test of each promise.
    Short,
    /// Also the documentation, all end-to-end tests, and more cases of each property.
    All,
}

/// Runs the set-up, then the checks, cheapest first; the tests come last, so that their summary is the last line.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    let extent = Extent::parse(args)?;
    let mut report = StageReport::default();
    // Needs nothing fetched and nothing built.
    command::run(&mut cargo::cargo(places, &["fmt", "--all", "--check"]))?;
    circles::run(places)?;
    wall::run(places)?;
    docs::check(places)?;
    let model = crate::setup::prepare(places, &mut report)?;
    let variables = environment(places, &model, extent, &mut report)?;
    // Binaries and tests are built by one call, because cargo combines the features of what is built together, so that
    // separate calls would compile shared dependencies again.
    report.stage("clippy and build", |_| {
        let args = [
            &["build", "--workspace", "--all-targets"],
            &ALL_FEATURES[..],
        ]
        .concat();
        command::run(&mut cargo_with_clippy(places, &args))
    })?;
    let all = extent == Extent::All;
    // Both compile all dependencies once more.
    if all || changed(places, &["*Cargo.toml", "Cargo.lock"]) {
        report.stage("clippy as built by default", |_| {
            lint::default_features(places)
        })?;
    }
    if all || changed(places, &["tests/fuzz"]) {
        report.stage("fuzz targets, compiled", |_| fuzz::check(places))?;
    }
    report.stage("doc tests", |_| {
        // The features are the same, because dependent crates would otherwise be compiled again.
        let args = [&["test", "--workspace", "--doc"], &ALL_FEATURES[..]].concat();
        command::run(&mut cargo_with_clippy(places, &args))
    })?;
    if all {
        report.stage("documentation", |_| cargo::doc(places))?;
        report.stage("commands of the pages", |_| {
            docs::run_commands(places, &places.target.join("debug"))
        })?;
    }
    report.print();
    if !has_nextest(places) {
        return plain_tests(places, extent, &variables);
    }
    for args in nextest_calls(extent) {
        // The features come first, because what follows `--` is for the tests.
        let call = ["nextest", "run", "--workspace", "--no-fail-fast"];
        let threads = ["--test-threads", &test_threads()];
        let args = [&call[..], &threads, &ALL_FEATURES, &args[..]].concat();
        command::run(cargo_with_clippy(places, &args).envs(variables.iter().cloned()))?;
    }
    Ok(())
}

/// One more than there are cores: the tests wait for a quarter of their time.
fn test_threads() -> String {
    let n_cores = std::thread::available_parallelism().map_or(1, usize::from);
    (n_cores + 1).to_string()
}

/// Returns whether files differ from the branch that this one is to be merged into; also if git cannot tell.
fn changed(places: &Places, paths: &[&str]) -> bool {
    let git = |args: &[&str]| {
        let mut git = Command::new("git");
        git.current_dir(&places.root).args(args);
        git
    };
    let Ok(base) = command::output(&mut git(&["merge-base", "HEAD", "origin/HEAD"])) else {
        return true;
    };
    let mut diff = git(&["diff", "--quiet", base.trim(), "--"]);
    command::attempt(diff.args(paths)).map_or(true, |output| !output.status.success())
}

/// Returns the arguments of each call of `cargo nextest`. Tests that need downloads are marked as ignored.
fn nextest_calls(extent: Extent) -> Vec<Vec<&'static str>> {
    match extent {
        Extent::All => vec![vec!["--run-ignored=all"]],
        Extent::Short => vec![
            vec!["--run-ignored=default"],
            [&["--run-ignored=only", "--", "--exact"], &SHORT_ROUND[..]].concat(),
        ],
    }
}

/// By cargo's own runner: first what needs nothing, then, one test at a time, what has the machine for itself.
fn plain_tests(
    places: &Places,
    extent: Extent,
    variables: &[(&'static str, PathBuf)],
) -> Result<()> {
    let all = ["--ignored", "--test-threads=1"];
    let short = [&["--ignored", "--exact"], &SHORT_ROUND[..]].concat();
    let last = match extent {
        Extent::All => &all[..],
        Extent::Short => &short,
    };
    let mut outcome = Ok(());
    for args in [&[][..], last] {
        let call = ["test", "--workspace", "--all-targets", "--no-fail-fast"];
        let args = [&call[..], &ALL_FEATURES, &["--"], args].concat();
        let tests = command::run(cargo_with_clippy(places, &args).envs(variables.iter().cloned()));
        outcome = outcome.and(tests);
    }
    outcome
}

fn environment(
    places: &Places,
    model: &Path,
    extent: Extent,
    report: &mut StageReport,
) -> Result<Vec<(&'static str, PathBuf)>> {
    let _lock = places.lock()?;
    report.stage("bubblewrap", |_| bubblewrap::ensure())?;
    let mut variables = vec![
        ("METACLAW_CACHE", places.cache.clone()),
        ("METACLAW_TEST_BIN_DIR", places.target.join("debug")),
        ("METACLAW_TEST_MODEL", model.to_owned()),
        // On two cores, two tests run at once, and waiting threads of one take time from the other: a golden test of
        // the engine took 35 s of CPU with two threads, and 13 with one.
        ("OMP_NUM_THREADS", "1".into()),
    ];
    match extent {
        Extent::Short => {
            variables.extend(clients::few(places, report)?);
            variables.push(("PROPTEST_CASES", SHORT_CASES.into()));
            variables.push(("METACLAW_TEST_KILLS", SHORT_KILLS.into()));
        }
        Extent::All => variables.extend(clients::all(places, report)?),
    }
    Ok(variables)
}

// === impl Extent ===

impl Extent {
    fn parse(args: &[String]) -> Result<Self> {
        match args {
            [] => Ok(Self::Short),
            [all] if all == "--all" => Ok(Self::All),
            [stray, ..] => bail!("takes --all or nothing, was given `{stray}`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_all_or_nothing() {
        let parse = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(ToString::to_string).collect();
            Extent::parse(&args).map_err(|error| error.to_string())
        };
        assert_eq!(parse(&[]), Ok(Extent::Short));
        assert_eq!(parse(&["--all"]), Ok(Extent::All));
        let refused = "takes --all or nothing, was given `--al`";
        assert_eq!(parse(&["--al"]), Err(refused.to_owned()));
    }
}
