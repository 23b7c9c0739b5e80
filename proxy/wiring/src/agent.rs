//! The known agents, and where their configurations are.

use std::path::{Path, PathBuf};

/// An agent whose configuration can be read and changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agent {
    /// OpenClaw, by its `openclaw.json`.
    OpenClaw,
}

/// Where agents' configurations are searched: the caller's environment and home folder, or a test's own.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// Variables of the environment.
    pub variables: Vec<(String, String)>,
    /// The user's home folder.
    pub home: PathBuf,
}

// === impl Agent ===

impl Agent {
    pub const ALL: [Self; 1] = [Self::OpenClaw];

    /// Returns the name as people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenClaw => "OpenClaw",
        }
    }

    /// Returns the value of `claw_type`.
    pub fn id(self) -> &'static str {
        match self {
            Self::OpenClaw => "openclaw",
        }
    }
}

// === impl Surroundings ===

impl Surroundings {
    /// Returns a variable that is set to more than white space.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut set = self.variables.iter().filter(|(given, _)| given == name);
        let value = set.next()?.1.trim();
        Some(value).filter(|value| !value.is_empty())
    }

    /// Expands a path as people write it: `~` is the home folder.
    pub(crate) fn path(&self, given: &str) -> PathBuf {
        match given.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                self.home.join(rest.trim_start_matches('/'))
            }
            _ => Path::new(given).to_owned(),
        }
    }
}
