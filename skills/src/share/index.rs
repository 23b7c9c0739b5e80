//! `index.json` of a home in a share: which skills it shares, where they come from, and a signature.
//!
//! The signature is a keyed BLAKE3 hash (<https://github.com/BLAKE3-team/BLAKE3-specs>) of the index's bytes. The index
//! contains the hash of every SKILL.md, so one signature covers all files, the names, and the order of versions.

use std::fmt;

use metaclaw_chat::{AgentId, Secret, TurnId, excerpt};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::store::ShareFile;
use crate::{skill::SkillName, writer::WriterId};

/// The largest index that is read, in bytes.
pub(super) const MAX_INDEX: u64 = 512 * 1024;
/// The largest number of skills of one home.
pub(super) const MAX_SKILLS: usize = 200;
/// The largest number of turns that are named for a skill.
pub(super) const MAX_TURNS: usize = 50;
/// The shortest key, in characters. Anybody who reads the share can try keys against a signature.
const MIN_KEY: usize = 32;
/// The longest name of a person or a machine, in characters.
const MAX_LABEL: usize = 40;
/// The purpose of the derived key, so that no other use of the same key gives the same hashes.
const CONTEXT: &str = "metaclaw 2026 skills.share.key index.json v1";

/// The key that all homes of one person have.
#[derive(Clone)]
pub struct ShareKey([u8; 32]);

/// Why sharing cannot be set up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    #[error(
        "skills.share.key has {n} characters, at least {MIN_KEY} are needed: make one with `openssl rand -hex 32`"
    )]
    ShortKey { n: usize },
}

/// What one home shares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ShareIndex {
    pub(super) writer: WriterId,
    #[serde(default)]
    pub(super) person: String,
    #[serde(default)]
    pub(super) machine: String,
    /// It grows with each change, so that an older index is known to be one. About Unix milliseconds.
    pub(super) serial: u64,
    pub(super) skills: Vec<SharedSkill>,
}

/// One shared skill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SharedSkill {
    pub(super) agent: AgentId,
    pub(super) name: SkillName,
    /// The BLAKE3 hash of its SKILL.md in hex digits.
    pub(super) digest: String,
    /// When it was last changed, in Unix milliseconds.
    pub(super) at_ms: u64,
    /// The turns from which it was written. None if people wrote it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) turns: Vec<TurnId>,
}

/// An index with its signature.
#[derive(Debug, Serialize, Deserialize)]
struct SignedIndex {
    body: Box<RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mac: Option<String>,
}

/// An index as it was read.
#[derive(Debug)]
pub(super) struct ReadIndex {
    pub(super) index: ShareIndex,
    /// Whether it is signed with this home's key.
    pub(super) is_own: bool,
}

// === impl ShareKey ===

impl ShareKey {
    /// Takes `skills.share.key`.
    ///
    /// # Errors
    /// Returns [`ShareError::ShortKey`].
    pub fn new(key: &Secret) -> Result<Self, ShareError> {
        let key = key.expose().trim();
        let n = key.chars().count();
        if n < MIN_KEY {
            return Err(ShareError::ShortKey { n });
        }
        Ok(Self(blake3::derive_key(CONTEXT, key.as_bytes())))
    }

    fn mac(&self, body: &str) -> blake3::Hash {
        blake3::keyed_hash(&self.0, body.as_bytes())
    }

    /// Compares in constant time.
    fn has_signed(&self, body: &str, mac: &str) -> bool {
        blake3::Hash::from_hex(mac).is_ok_and(|mac| mac == self.mac(body))
    }
}

impl fmt::Debug for ShareKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShareKey(…)")
    }
}

// === impl ShareIndex ===

impl ShareIndex {
    /// Returns the text of `index.json`.
    pub(super) fn written(&self, key: Option<&ShareKey>) -> serde_json::Result<String> {
        let body = serde_json::value::to_raw_value(self)?;
        let mac = key.map(|key| key.mac(body.get()).to_hex().to_string());
        let signed = SignedIndex { body, mac };
        Ok(serde_json::to_string(&signed)? + "\n")
    }

    /// Reads the text of another home's `index.json`.
    ///
    /// # Errors
    /// Returns in words why it is not used.
    pub(super) fn read(
        text: &str,
        writer: &WriterId,
        key: Option<&ShareKey>,
    ) -> Result<ReadIndex, String> {
        let signed: SignedIndex =
            serde_json::from_str(text).map_err(|error| format!("it cannot be read: {error}"))?;
        let body = signed.body.get();
        let mut index: Self =
            serde_json::from_str(body).map_err(|error| format!("it cannot be read: {error}"))?;
        if index.writer != *writer {
            return Err(format!("it says that it is of {}", index.writer));
        }
        if index.skills.len() > MAX_SKILLS {
            let n = index.skills.len();
            return Err(format!(
                "it has {n} skills, at most {MAX_SKILLS} are allowed"
            ));
        }
        let mut files: Vec<ShareFile> = index.skills.iter().map(SharedSkill::file).collect();
        files.sort();
        if files.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err("it has a skill twice".to_owned());
        }
        for skill in &mut index.skills {
            skill.turns.truncate(MAX_TURNS);
        }
        index.person = label(&index.person);
        index.machine = label(&index.machine);
        let mac = signed.mac.as_deref();
        let is_own = key.is_some_and(|key| mac.is_some_and(|mac| key.has_signed(body, mac)));
        Ok(ReadIndex { index, is_own })
    }
}

// === impl SharedSkill ===

impl SharedSkill {
    pub(super) fn file(&self) -> ShareFile {
        ShareFile::Skill {
            agent: self.agent.clone(),
            name: self.name.clone(),
        }
    }

    /// Returns whether a text is the SKILL.md that was meant.
    pub(super) fn is_of(&self, text: &str) -> bool {
        self.digest == digest(text)
    }
}

/// Returns the hash of a SKILL.md.
pub(super) fn digest(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

/// Returns a name that cannot change a terminal or a page that shows it.
pub(super) fn label(text: &str) -> String {
    let legal = |c: &char| c.is_alphanumeric() || " -_.@'".contains(*c);
    let text: String = text.chars().filter(legal).take(MAX_LABEL).collect();
    excerpt(text.trim()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> ShareKey {
        ShareKey::new(&text.repeat(16).as_str().into()).unwrap()
    }

    #[test]
    fn a_signature_covers_every_byte() {
        let writer: WriterId = "laptop-1".parse().unwrap();
        let index = ShareIndex {
            writer: writer.clone(),
            person: "Anna\u{1b}[31m\u{202e}".to_owned(),
            machine: "laptop".to_owned(),
            serial: 7,
            skills: Vec::new(),
        };
        let text = index.written(Some(&key("ab"))).unwrap();
        let is_own = |text: &str, key: Option<&ShareKey>| {
            ShareIndex::read(text, &writer, key).map(|it| it.is_own)
        };
        assert_eq!(is_own(&text, Some(&key("ab"))), Ok(true));
        assert_eq!(is_own(&text, Some(&key("cd"))), Ok(false));
        assert_eq!(is_own(&text, None), Ok(false));
        let later = text.replace("\"serial\":7", "\"serial\":8");
        assert_ne!(later, text);
        assert_eq!(is_own(&later, Some(&key("ab"))), Ok(false));
        let read = ShareIndex::read(&text, &writer, None).unwrap();
        assert_eq!(read.index.person, "Anna31m");
    }

    #[test]
    fn a_short_key_is_refused() {
        let refused = ShareKey::new(&"hunter2".into()).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "skills.share.key has 7 characters, at least 32 are needed: make one with `openssl rand -hex 32`"
        );
    }
}
