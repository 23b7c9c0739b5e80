//! The environment, read once. Nothing else in this program looks at it.

use std::path::PathBuf;

use metaclaw_settings::address::user_folder;

/// All variables that are text.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    pub(crate) variables: Vec<(String, String)>,
}

// === impl Environment ===

impl Environment {
    pub(crate) fn from_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self {
            variables: std::env::vars_os().filter_map(text).collect(),
        }
    }

    #[cfg(test)]
    pub(crate) fn from_pairs<const N: usize>(variables: [(&str, &str); N]) -> Self {
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self {
            variables: variables.into(),
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let set = self.variables.iter().find(|(given, _)| given == name);
        set.map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    /// MetaClaw's home: `METACLAW_HOME`, else `~/.metaclaw`.
    pub(crate) fn home(&self) -> PathBuf {
        match self.get("METACLAW_HOME") {
            Some(home) => PathBuf::from(home),
            None => user_folder().join(".metaclaw"),
        }
    }

    /// Where models and converted weights lie: `METACLAW_CACHE`, else the user's cache folder.
    pub(crate) fn cache(&self) -> PathBuf {
        match (self.get("METACLAW_CACHE"), self.get("XDG_CACHE_HOME")) {
            (Some(cache), _) => PathBuf::from(cache),
            (None, Some(cache)) => PathBuf::from(cache).join("metaclaw"),
            (None, None) => user_folder().join(".cache").join("metaclaw"),
        }
    }
}
