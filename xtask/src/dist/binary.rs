//! Checks built programs, and makes them small.

use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use metaclaw_fetch::command;

/// A version of the C library.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(pub(super) u32, pub(super) u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Copies a program without its symbols.
pub(super) fn strip(from: &Path, to: &Path) -> Result<()> {
    let mut strip = Command::new("strip");
    strip.args(["--strip-all", "-o"]).arg(to).arg(from);
    command::output(&mut strip).map(drop)
}

/// Returns the oldest glibc that a program runs with.
pub(super) fn glibc(program: &Path) -> Result<Version> {
    let mut nm = Command::new("nm");
    nm.args(["-D", "--undefined-only", "--with-symbol-versions"]);
    let symbols = command::output(nm.arg(program))?;
    newest(&symbols).with_context(|| format!("{} wants no glibc", program.display()))
}

fn newest(symbols: &str) -> Option<Version> {
    let versions = symbols.lines().filter_map(|line| {
        let (_, version) = line.rsplit_once("@GLIBC_")?;
        let mut numbers = version.trim().split('.').map(str::parse);
        Some(Version(numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    versions.max()
}

/// Refuses a program that searches libraries in a folder of this machine.
pub(super) fn check_run_path(program: &Path) -> Result<()> {
    let mut readelf = Command::new("readelf");
    let dynamic = command::output(readelf.arg("-d").arg(program))?;
    match foreign(&dynamic) {
        Some(place) => bail!(
            "{} looks for libraries in {place}, which other machines do not have",
            program.display()
        ),
        None => Ok(()),
    }
}

/// Returns a folder of the run path that is not relative to the program.
fn foreign(dynamic: &str) -> Option<&str> {
    let lines = dynamic
        .lines()
        .filter(|line| line.contains("RUNPATH") || line.contains("RPATH"));
    let paths =
        lines.filter_map(|line| Some(line.split_once('[')?.1.trim_end().trim_end_matches(']')));
    let mut places = paths.flat_map(|path| path.split(':'));
    places.find(|place| !place.starts_with("$ORIGIN/lib"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_says_which_glibc_is_needed() {
        let symbols = "                 U memcpy@GLIBC_2.14\n                 U fstat@GLIBC_2.33\n\
                       \x20                U __cxa_finalize@GLIBC_2.2.5\n                 U _ZSt3@GLIBCXX_3.4.30\n";
        assert_eq!(newest(symbols), Some(Version(2, 33)));
        assert!(Version(2, 9) < Version(2, 28));
        assert_eq!(newest(""), None);
    }

    #[test]
    fn a_folder_of_the_builder_in_the_run_path_is_found() {
        let line = |path: &str| format!(" 0x1d (RUNPATH)  Library runpath: [{path}]\n");
        let own = line("$ORIGIN/lib-cuda:$ORIGIN/lib");
        assert_eq!(foreign(&own), None);
        let built = line("$ORIGIN/lib:/home/me/.cache/libtorch/lib");
        assert_eq!(foreign(&built), Some("/home/me/.cache/libtorch/lib"));
        assert_eq!(
            foreign(&line("$ORIGIN/../../.libtorch/lib")),
            Some("$ORIGIN/../../.libtorch/lib")
        );
    }
}
