//! `cargo xtask docs` runs the commands of README, CONTRIBUTING.md and docs/ in a scratch home with a scripted upstream.
//!
//! [`table::RUN`] says for each command what it should do; [`elsewhere::ELSEWHERE`] says which test runs it, or why it
//! cannot be run here. A command without an entry and an entry without a command are errors, which `cargo xtask lint` finds too.

mod elsewhere;
mod entry;
mod pages;
mod script;
mod table;
mod upstream;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use metaclaw_fetch::command;

use self::elsewhere::ELSEWHERE;
use self::entry::{CommandGroup, Coverage, DocEntry};
use self::pages::{DocCommand, commands, sources, unknown_subcommands};
use self::table::RUN;
use crate::cargo::cargo;
use crate::places::Places;

/// Checks the table, then runs the commands. `--check` only checks the table.
pub(crate) fn run(places: &Places, args: &[String]) -> Result<()> {
    match args {
        [] => {}
        [only] if only == "--check" => return check(places),
        _ => bail!("it takes only --check"),
    }
    check(places)?;
    let bin_dir = if let Some(given) = std::env::var_os("METACLAW_TEST_BIN_DIR") {
        PathBuf::from(given)
    } else {
        command::run(&mut cargo(places, &["build", "-p", "metaclaw"]))?;
        places.target.join("debug")
    };
    for DocEntry { command, how } in elsewhere() {
        if let Coverage::Excused(why) = how {
            println!("not run {command}: {why}");
        }
    }
    run_commands(places, &bin_dir)
}

/// Returns the commands that tests run, and those that cannot be run here.
fn elsewhere() -> Vec<DocEntry> {
    ELSEWHERE.iter().flat_map(CommandGroup::entries).collect()
}

/// Runs the commands with the programs of a folder.
pub(crate) fn run_commands(places: &Places, bin_dir: &Path) -> Result<()> {
    script::run(&places.root, bin_dir)
}

/// Checks that the table fits the pages. This runs nothing and takes less than a second.
pub(crate) fn check(places: &Places) -> Result<()> {
    let commands = commands(&places.root)?;
    let entries = [RUN, &elsewhere()].concat();
    let mut gaps = gaps(&commands, &entries, &test_names(&places.root)?);
    gaps.extend(unknown_subcommands(&places.root)?);
    if !gaps.is_empty() {
        bail!(
            "xtask/src/docs/table.rs and elsewhere.rs do not fit the pages, or they are wrong:\n{}",
            gaps.join("\n")
        );
    }
    println!("{}", summary(&commands, &entries));
    Ok(())
}

/// Returns what does not fit: commands without an entry, entries without a command, tests that do not exist.
fn gaps(commands: &[DocCommand], entries: &[DocEntry], tests: &BTreeSet<String>) -> Vec<String> {
    let mut gaps = Vec::new();
    let documented: BTreeSet<&str> = commands.iter().map(|it| it.text.as_str()).collect();
    let mut covered = BTreeSet::new();
    for DocEntry { command, how } in entries {
        if matches!(how, Coverage::Preparation) {
            continue;
        }
        if !covered.insert(*command) {
            gaps.push(format!("the entry `{command}` occurs twice"));
        }
        if !documented.contains(command) {
            gaps.push(format!("no page has the command of the entry `{command}`"));
        }
        if let Coverage::Test(name) = how
            && !tests.contains(*name)
        {
            gaps.push(format!(
                "no test has the name {name}, which the entry `{command}` gives"
            ));
        }
    }
    let missing = commands.iter().filter(|it| !covered.contains(&*it.text));
    gaps.extend(missing.map(|it| format!("{}:{}: no entry for `{}`", it.page, it.line, it.text)));
    gaps
}

fn summary(commands: &[DocCommand], entries: &[DocEntry]) -> String {
    let n = |of: fn(&Coverage) -> bool| entries.iter().filter(|it| of(&it.how)).count();
    format!(
        "{} commands on the pages, {} different ones: {} are run by `cargo xtask docs`, {} by tests, {} cannot be run here",
        commands.len(),
        n(|how| !matches!(how, Coverage::Preparation)),
        n(|how| matches!(how, Coverage::Run { .. })),
        n(|how| matches!(how, Coverage::Test(_))),
        n(|how| matches!(how, Coverage::Excused(_)))
    )
}

/// Returns the names of all functions in the workspace's Rust files.
fn test_names(root: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for path in sources(root, "rs")? {
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let functions = text.lines().filter_map(|line| {
            let line = line.trim_start();
            let line = line.strip_prefix("async ").unwrap_or(line);
            line.strip_prefix("fn ")?.split_once('(')
        });
        names.extend(functions.map(|(name, _)| name.to_owned()));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .unwrap()
            .to_owned()
    }

    #[test]
    fn every_command_of_the_docs_has_an_entry() {
        let commands = commands(&root()).unwrap();
        let gaps = gaps(
            &commands,
            &[RUN, &elsewhere()].concat(),
            &test_names(&root()).unwrap(),
        );
        assert_eq!(gaps, Vec::<String>::new());
        assert_eq!(unknown_subcommands(&root()).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn ci_runs_the_test_that_the_readme_names() {
        let last = |file| {
            let text = std::fs::read_to_string(root().join(file)).unwrap();
            text.lines().last().unwrap().to_owned()
        };
        assert_eq!(last(".ci/run"), "exec cargo xtask test");
        assert_eq!(last(".github/workflows/ci.yml"), "      - run: .ci/run");
        let nightly = last(".github/workflows/nightly.yml");
        assert_eq!(nightly, "      - run: cargo xtask test --all");
    }

    #[test]
    fn readme_and_contributing_need_the_same_packages() {
        for page in ["README.md", "CONTRIBUTING.md"] {
            let text = std::fs::read_to_string(root().join(page)).unwrap();
            let needed = "`apt install g++ python3-pip python3-venv npm`";
            assert_eq!(text.matches(needed).count(), 1, "{page}");
        }
    }

    #[test]
    fn a_command_without_an_entry_and_an_entry_without_a_command_are_found() {
        let command = DocCommand {
            page: "README.md".to_owned(),
            line: 7,
            text: "metaclaw fly".to_owned(),
        };
        let walk = entry::tested("a_test", &["metaclaw walk"]);
        let run = entry::excused("it needs legs", &["metaclaw run"]);
        let entries: Vec<DocEntry> = walk.entries().chain(run.entries()).collect();
        let tests = BTreeSet::from(["another_test".to_owned()]);
        assert_eq!(
            gaps(&[command], &entries, &tests),
            [
                "no page has the command of the entry `metaclaw walk`",
                "no test has the name a_test, which the entry `metaclaw walk` gives",
                "no page has the command of the entry `metaclaw run`",
                "README.md:7: no entry for `metaclaw fly`",
            ]
        );
    }
}
