//! Errors of a configuration, which say where the fault is and what is allowed.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The named file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The file is not YAML.
    #[error("{} is not YAML: {message}", path.display())]
    Yaml {
        path: PathBuf,
        /// What is wrong, with line and column.
        message: String,
    },
    /// Values that are not allowed; all are listed at once.
    #[error("{}", lines(.0))]
    Values(Vec<Problem>),
    /// A value that has the right kind, and that its section's own check refuses.
    #[error("{key} in {origin}: {message}")]
    Room {
        key: String,
        origin: String,
        /// The message of the section's check.
        message: String,
    },
}

/// One value that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub key: String,
    /// The source of the value: a file, the environment, the command line.
    pub origin: String,
    /// The value, masked if it is a secret; empty if the value is not the fault.
    pub given: String,
    /// What is wrong with it, or what is allowed.
    pub reason: String,
}

/// An unknown key, which causes only a warning, because a newer or older file should still start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    pub key: String,
    pub origin: String,
    /// The most similar known key.
    pub nearest: Option<&'static str>,
}

/// A key that was set and has no effect.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
#[display("{key}: {reason}")]
pub struct InertUse {
    pub key: String,
    /// Why it has no effect.
    pub reason: &'static str,
}

// === impl SettingsError ===

impl SettingsError {
    pub(crate) fn unread(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| Self::Read { path, source }
    }
}

fn lines(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    lines.join("\n")
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}: ", self.key, self.origin)?;
        if !self.given.is_empty() {
            write!(f, "{:?} is not allowed: ", self.given)?;
        }
        f.write_str(&self.reason)
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
