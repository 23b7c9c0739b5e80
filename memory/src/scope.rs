//! Scopes: which memories of an agent belong together.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The scope of requests and memories that name none, unless `memory.scope` is set.
const DEFAULT: &str = "default";
/// The longest scope in characters. A longer one is shortened, and its hash is added, so that two scopes never become one.
const MAX_CHARS: usize = 200;
/// The hexadecimal digits of such a hash.
const HASH_DIGITS: usize = 32;

/// The name of a scope, as in `default`, `user:alice` or `user:alice|workspace:shop`. It is one line, and never a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String")]
pub struct MemoryScope(String);

// === impl MemoryScope ===

impl MemoryScope {
    /// Reads a name. A part of the form `session:ID` is left out, as in the Python original, because memories outlive
    /// sessions. An empty name is `default`.
    pub fn new(name: &str) -> Self {
        let printable = |c: char| if c.is_control() { ' ' } else { c };
        let name: String = name.chars().map(printable).collect();
        let parts = name.split('|').map(str::trim);
        let parts: Vec<&str> = parts
            .filter(|part| !part.is_empty() && !part.starts_with("session:"))
            .collect();
        if parts.is_empty() {
            return Self(DEFAULT.to_owned());
        }
        Self(shortened(parts.join("|")))
    }

    /// The scope of a request: the one that it names, else that of its user and workspace, or `None` if it names none.
    pub fn of_request(
        scope: Option<&str>,
        user: Option<&str>,
        workspace: Option<&str>,
    ) -> Option<Self> {
        let filled = |text: Option<&str>| {
            text.map(str::trim)
                .filter(|it| !it.is_empty())
                .map(str::to_owned)
        };
        let (scope, user, workspace) = (filled(scope), filled(user), filled(workspace));
        let name = match (scope, user, workspace) {
            (Some(scope), ..) => scope,
            (None, Some(user), Some(workspace)) => format!("user:{user}|workspace:{workspace}"),
            (None, None, Some(workspace)) => format!("workspace:{workspace}"),
            (None, Some(user), None) => format!("user:{user}"),
            (None, None, None) => return None,
        };
        Some(Self::new(&name))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn shortened(name: String) -> String {
    if name.chars().count() <= MAX_CHARS {
        return name;
    }
    let hash = blake3::hash(name.as_bytes()).to_hex();
    let start: String = name.chars().take(MAX_CHARS - HASH_DIGITS - 1).collect();
    format!("{start}~{}", &hash[..HASH_DIGITS])
}

impl From<String> for MemoryScope {
    fn from(name: String) -> Self {
        Self::new(&name)
    }
}

impl Default for MemoryScope {
    fn default() -> Self {
        Self::new(DEFAULT)
    }
}

impl fmt::Display for MemoryScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_named_as_in_the_original() {
        let of = |scope, user, workspace| {
            MemoryScope::of_request(scope, user, workspace).map(|it| it.to_string())
        };
        assert_eq!(of(None, None, Some(" ")), None);
        assert_eq!(of(Some("mine"), Some("a"), None).unwrap(), "mine");
        assert_eq!(
            of(None, Some("a"), Some("b")).unwrap(),
            "user:a|workspace:b"
        );
        assert_eq!(of(None, None, Some("b")).unwrap(), "workspace:b");
        assert_eq!(
            MemoryScope::new("default|session:x"),
            MemoryScope::default()
        );
        assert_eq!(MemoryScope::new("a\nb|session:x").as_str(), "a b");
        assert_eq!(MemoryScope::new(""), MemoryScope::default());
    }

    #[test]
    fn a_long_scope_is_shortened_and_stays_different() {
        let long = |end: &str| MemoryScope::new(&format!("user:{}{end}", "é".repeat(300)));
        let (one, other) = (long("a"), long("b"));
        assert_ne!(one, other);
        assert_eq!(one.as_str().chars().count(), MAX_CHARS);
        assert_eq!(MemoryScope::new(one.as_str()), one, "as it is in a file");
    }
}
