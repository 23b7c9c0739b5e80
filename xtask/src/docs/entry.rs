//! What is known of a command of the pages.

/// How a command of the pages is checked.
#[derive(Debug, Clone, Copy)]
pub(super) enum Coverage {
    /// It is on no page. It prepares what follows, and has to succeed.
    Preparation,
    /// `cargo xtask docs` runs it.
    Run {
        /// Parts of the command that differ in the scratch home, and what stands there.
        replace: &'static [(&'static str, &'static str)],
        exit: i32,
        /// Words of its output.
        says: &'static [&'static str],
    },
    /// The test with this name runs it.
    Test(&'static str),
    /// It cannot be run here, for this reason.
    Excused(&'static str),
}

/// A command as it is written on the pages, and how it is checked.
#[derive(Debug, Clone, Copy)]
pub(super) struct DocEntry {
    pub(super) command: &'static str,
    pub(super) how: Coverage,
}

/// Commands that are checked in the same way.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommandGroup {
    how: Coverage,
    commands: &'static [&'static str],
}

/// A command that succeeds and prints these words.
pub(super) const fn runs(command: &'static str, says: &'static [&'static str]) -> DocEntry {
    runs_as(command, &[], 0, says)
}

/// A command that is run with some parts replaced, and ends with an exit code. `$PROXY` is the proxy's address.
pub(super) const fn runs_as(
    command: &'static str,
    replace: &'static [(&'static str, &'static str)],
    exit: i32,
    says: &'static [&'static str],
) -> DocEntry {
    let how = Coverage::Run {
        replace,
        exit,
        says,
    };
    DocEntry { command, how }
}

pub(super) const fn prepares(command: &'static str) -> DocEntry {
    let how = Coverage::Preparation;
    DocEntry { command, how }
}

/// Commands that the test with this name runs.
pub(super) const fn tested(test: &'static str, commands: &'static [&'static str]) -> CommandGroup {
    let how = Coverage::Test(test);
    CommandGroup { how, commands }
}

/// Commands that cannot be run here, for this reason.
pub(super) const fn excused(why: &'static str, commands: &'static [&'static str]) -> CommandGroup {
    let how = Coverage::Excused(why);
    CommandGroup { how, commands }
}

impl CommandGroup {
    pub(super) fn entries(&self) -> impl Iterator<Item = DocEntry> {
        let entry = |command: &&'static str| DocEntry {
            command,
            how: self.how,
        };
        self.commands.iter().map(entry)
    }
}
