//! The person whose wishes are meant: the owner, or another person who writes to the agent.

use std::{fmt::Write as _, path::PathBuf};

use metaclaw_chat::{AgentId, SenderId};

use crate::file::WISHES_FILE;

/// The folder in an agent's folder with a file for each other person.
pub(crate) const PEOPLE: &str = "_people";
const SUFFIX: &str = ".md";

/// Who has wishes about an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder<'a> {
    pub agent: &'a AgentId,
    /// The other person, or `None` for the owner.
    pub sender: Option<&'a SenderId>,
}

// === impl Holder ===

impl<'a> From<&'a AgentId> for Holder<'a> {
    fn from(agent: &'a AgentId) -> Self {
        Self {
            agent,
            sender: None,
        }
    }
}

impl Holder<'_> {
    pub(crate) fn file(self) -> PathBuf {
        let folder = PathBuf::from(self.agent.as_str());
        match self.sender {
            Some(sender) => folder.join(PEOPLE).join(file_name(sender)),
            None => folder.join(WISHES_FILE),
        }
    }
}

/// Returns the name of a person's file: her id with all but letters, digits, `-` and `_` of ASCII as `%` and two
/// hexadecimal digits. So no id can name another folder.
fn file_name(sender: &SenderId) -> String {
    let mut name = String::new();
    for byte in sender.as_str().bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            name.push(char::from(byte));
        } else {
            let _ = write!(name, "%{byte:02X}");
        }
    }
    name + SUFFIX
}

pub(crate) fn sender_of(file_name: &str) -> Option<SenderId> {
    let mut rest = file_name.strip_suffix(SUFFIX)?.bytes();
    let mut id = Vec::new();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            let digits = std::str::from_utf8(&digits).ok()?;
            id.push(u8::from_str_radix(digits, 16).ok()?);
        } else {
            id.push(byte);
        }
    }
    String::from_utf8(id).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_name_of_one_person_and_no_path() {
        for id in [
            "100",
            "../../etc/passwd",
            "ann@example.org",
            "+49 170",
            "a%2Fb",
            "安妮",
            ".",
        ] {
            let sender: SenderId = id.parse().unwrap();
            let name = file_name(&sender);
            assert!(!name.contains('/') && !name.starts_with('.'), "{name}");
            assert_eq!(sender_of(&name), Some(sender));
        }
        assert_eq!(file_name(&"+49 170".parse().unwrap()), "%2B49%20170.md");
        for none in ["100", ".md", "%4.md", "%zz.md", "%00.md"] {
            assert_eq!(sender_of(none), None, "{none}");
        }
    }
}
