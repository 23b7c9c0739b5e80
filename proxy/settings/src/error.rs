//! What can be wrong with a configuration, in words that say where and what is allowed.

use std::{fmt, io, path::PathBuf};

/// Why there is no configuration to work with.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file that was named cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The file is not YAML.
    #[error("{} is not YAML: {message}", path.display())]
    Yaml {
        path: PathBuf,
        /// What is wrong, with line and column.
        message: String,
    },
    /// Values that are not allowed: all of them, so that one reading shows everything.
    #[error("{}", lines(.0))]
    Values(Vec<Problem>),
    /// A value that passed the table and not its own room.
    #[error("{key} in {origin}: {message}")]
    Room {
        key: String,
        origin: String,
        /// What its room says.
        message: String,
    },
}

/// One value that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub key: String,
    /// Where it stands: a file, the environment, the command line.
    pub origin: String,
    /// The value, masked where it is a secret; empty where the value is not the point.
    pub given: String,
    /// What is wrong with it, or what is allowed.
    pub reason: String,
}

/// A key that nobody knows: a warning, because a newer or older file should still start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    pub key: String,
    pub origin: String,
    /// The known key that reads most like it.
    pub nearest: Option<&'static str>,
}

/// A key that was set and does nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InertUse {
    pub key: String,
    /// Why it does nothing.
    pub reason: &'static str,
}

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    lines.join("\n")
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            origin,
            given,
            reason,
        } = self;
        if given.is_empty() {
            write!(f, "{key} in {origin}: {reason}")
        } else {
            write!(f, "{key} in {origin}: {given:?} is not allowed: {reason}")
        }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown key {} in {}", self.key, self.origin)?;
        match self.nearest {
            Some(nearest) => write!(f, ": did you mean {nearest}?"),
            None => write!(f, ": it has no effect"),
        }
    }
}

impl fmt::Display for InertUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.reason)
    }
}
