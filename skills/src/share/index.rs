//! Where shared skills are: a folder.
//!
//! Every home writes only below its own name, so that two homes never change the same file. Anybody may have written
//! what is read: paths are made of parsed names, links are not followed, and each file has a limit.
//!
//! `index.json` of a home in a share: which skills it shares, where they come from, and a signature.
//!
//! The signature is a keyed BLAKE3 hash (<https://github.com/BLAKE3-team/BLAKE3-specs>) of the index's bytes. The index
//! contains the hash of every SKILL.md, so one signature covers all files, the names, and the order of versions.
//!
//! `share.json` in the library's folder: this home's name in shares, what it shares, and what it has seen of others. From
//! it follows where a skill that is in force came from.

use std::{
    collections::BTreeMap,
    fmt,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use metaclaw_chat::{AgentId, Secret, TurnId, excerpt, if_there};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    bank,
    evolve::{Proposal, SharedOrigin},
    file::{JournalError, SKILL_FILE, WriterId, read_json, read_text, write_json, write_text},
    skill::SkillName,
};

pub(super) const INDEX_FILE: &str = "index.json";

/// One file of a home in a share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, derive_more::Display)]
#[display("{}", self.parts().join("/"))]
pub enum ShareFile {
    /// `index.json`: which skills the home shares, and where they come from.
    Index,
    /// `<agent>/<name>/SKILL.md`.
    Skill { agent: AgentId, name: SkillName },
}

/// A place that several homes read and write.
pub trait ShareStore: fmt::Debug + Send + Sync {
    /// Returns the homes that have files there.
    ///
    /// # Errors
    /// Returns an error if the place cannot be read now.
    fn writers(&self) -> io::Result<Vec<WriterId>>;

    /// Returns a file of at most `max` bytes, or `None` if there is none.
    ///
    /// # Errors
    /// Returns an error if it cannot be read, is longer, or is not UTF-8.
    fn read(&self, writer: &WriterId, file: &ShareFile, max: u64) -> io::Result<Option<String>>;

    /// Replaces a file in one step.
    ///
    /// # Errors
    /// Returns an error if it cannot be written.
    fn write(&self, writer: &WriterId, file: &ShareFile, text: &str) -> io::Result<()>;

    /// Removes a file. A missing one is no error.
    ///
    /// # Errors
    /// Returns an error if it cannot be removed.
    fn remove(&self, writer: &WriterId, file: &ShareFile) -> io::Result<()>;
}

/// A folder that something else synchronises.
#[derive(Debug, Clone)]
pub struct FolderStore {
    folder: PathBuf,
    /// The folder of the library, which must not contain the shared folder, or be in it.
    library: PathBuf,
}

// === impl ShareFile ===

impl ShareFile {
    /// Returns the parts of its path below the home's folder. No part contains a separator.
    pub fn parts(&self) -> Vec<&str> {
        match self {
            Self::Index => vec![INDEX_FILE],
            Self::Skill { agent, name } => vec![agent.as_str(), name.as_str(), SKILL_FILE],
        }
    }
}

// === impl FolderStore ===

impl FolderStore {
    /// Uses `folder`. `library` is the folder of the library that shares its skills.
    pub fn new(folder: impl Into<PathBuf>, library: impl Into<PathBuf>) -> Self {
        let (folder, library) = (folder.into(), library.into());
        Self { folder, library }
    }

    /// Checks that nothing in the shared folder is read as a lesson by itself.
    fn check(&self) -> io::Result<()> {
        let folder = fs::canonicalize(&self.folder)?;
        let library = fs::canonicalize(&self.library).unwrap_or_else(|_| self.library.clone());
        if folder.starts_with(&library) || library.starts_with(&folder) {
            return Err(refused(format!(
                "{} and the folder of skills {} contain one another: share a folder outside",
                folder.display(),
                library.display()
            )));
        }
        Ok(())
    }

    /// Returns the path of a file if no part of it is a link.
    fn path(&self, writer: &WriterId, file: &ShareFile) -> io::Result<PathBuf> {
        let mut path = self.folder.clone();
        for part in [writer.as_str()].into_iter().chain(file.parts()) {
            path.push(part);
            if if_there(fs::symlink_metadata(&path))?.is_some_and(|found| found.is_symlink()) {
                let why = format!("{} is a link: links are not followed", path.display());
                return Err(refused(why));
            }
        }
        Ok(path)
    }
}

impl ShareStore for FolderStore {
    fn writers(&self) -> io::Result<Vec<WriterId>> {
        self.check()?;
        let mut writers = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let writer = name.to_str().and_then(|name| name.parse().ok());
            // The type is the entry's own, so a link is no folder.
            if entry.file_type()?.is_dir() {
                writers.extend(writer);
            }
        }
        writers.sort();
        Ok(writers)
    }

    fn read(&self, writer: &WriterId, file: &ShareFile, max: u64) -> io::Result<Option<String>> {
        if_there(read_text(&self.path(writer, file)?, max))
    }

    fn write(&self, writer: &WriterId, file: &ShareFile, text: &str) -> io::Result<()> {
        self.check()?;
        let path = self.path(writer, file)?;
        let folder = path.parent().unwrap_or(&self.folder);
        fs::create_dir_all(folder)?;
        let draft = draft_of(&path);
        fs::remove_file(&draft).ok();
        // `create_new` follows no link that somebody put there meanwhile.
        let mut new = File::create_new(&draft)?;
        new.write_all(text.as_bytes())?;
        new.sync_all()?;
        fs::rename(&draft, &path)
    }

    fn remove(&self, writer: &WriterId, file: &ShareFile) -> io::Result<()> {
        let path = self.path(writer, file)?;
        if_there(fs::remove_file(&path))?;
        let above = path.ancestors().skip(1).take(file.parts().len() - 1);
        for folder in above {
            // A folder with other files stays.
            fs::remove_dir(folder).ok();
        }
        Ok(())
    }
}

/// Returns the path of an incomplete file. Other homes do not read names that begin with a dot.
fn draft_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.new"))
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

pub(super) const MAX_INDEX: u64 = 512 * 1024;
pub(super) const MAX_SKILLS: usize = 200;
pub(super) const MAX_TURNS: usize = 50;
/// The shortest key, in characters. Anybody who reads the share can try keys against a signature.
const MIN_KEY: usize = 32;
/// The longest name of a person or a machine, in characters.
const MAX_LABEL: usize = 40;
/// The purpose of the derived key, so that no other use of the same key gives the same hashes.
const CONTEXT: &str = "metaclaw 2026 skills.share.key index.json v1";

/// The key that all homes of one person have.
#[derive(derive_more::Debug, Clone)]
#[debug("ShareKey(…)")]
pub struct ShareKey([u8; 32]);

/// Why sharing cannot be set up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShareError {
    #[error(
        "skills.share.key has {n} characters, at least {MIN_KEY} are needed: make one with `openssl rand -hex 32`"
    )]
    ShortKey { n: usize },
}

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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SharedSkill {
    pub(super) agent: AgentId,
    pub(super) name: SkillName,
    pub(super) digest: String,
    /// When it was last changed, in Unix milliseconds.
    pub(super) at_ms: u64,
    /// The turns from which it was written. None if people wrote it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) turns: Vec<TurnId>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SignedIndex {
    body: Box<RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mac: Option<String>,
}

#[derive(Debug)]
pub(super) struct ReadIndex {
    pub(super) index: ShareIndex,
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

// === impl ShareIndex ===

impl ShareIndex {
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

    pub(super) fn is_of(&self, text: &str) -> bool {
        self.digest == digest(text)
    }
}

pub(super) fn digest(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

/// Returns the name without characters that could change a terminal or a page, at most 40 characters.
pub(super) fn label(text: &str) -> String {
    let legal = |c: &char| c.is_alphanumeric() || " -_.@'".contains(*c);
    let text: String = text.chars().filter(legal).take(MAX_LABEL).collect();
    excerpt(text.trim()).into_owned()
}

const FILE: &str = "share.json";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ShareState {
    /// This home's name, made at the first use.
    pub(super) writer: Option<WriterId>,
    pub(super) serial: u64,
    /// What it shares, by `<agent>/<name>`.
    pub(super) published: BTreeMap<String, Published>,
    /// The highest serial number of each home that was signed with our key.
    pub(super) seen: BTreeMap<WriterId, u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Published {
    pub(super) digest: String,
    pub(super) at_ms: u64,
}

// === impl ShareState ===

impl ShareState {
    pub(super) fn read(dir: &Path) -> Result<Self, JournalError> {
        read_json(&dir.join(FILE))
    }

    pub(super) fn write(&self, dir: &Path) -> Result<(), JournalError> {
        write_json(&dir.join(FILE), self, write_text)
    }
}

/// The longest SKILL.md that is shared, in bytes.
pub(super) const MAX_TEXT: u64 = 32 * 1024;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum CurrentSkill<'a> {
    /// The skill does not exist here, or it is an unchanged skill of the bank.
    Unwritten,
    /// This home shares it.
    Published { digest: String, at_ms: u64 },
    /// It came from another home of the same person.
    Own(&'a SharedOrigin),
    /// It came from another person, or it is not shared.
    Other,
}

pub(super) fn path_of(agent: &AgentId, name: &SkillName) -> String {
    format!("{agent}/{name}")
}

/// Returns the accepted proposal that a file's text came from, if another home shared it.
pub(super) fn import_of<'a>(
    proposals: &'a [Proposal],
    agent: &AgentId,
    name: &SkillName,
    text: &str,
) -> Option<&'a SharedOrigin> {
    let is_it =
        |proposal: &&Proposal| proposal.is_accepted_of(agent, name) && proposal.text == text;
    let mut proposals = proposals.iter().rev().filter(is_it);
    proposals.find_map(|proposal| proposal.shared.as_ref())
}

// === impl CurrentSkill ===

impl<'a> CurrentSkill<'a> {
    pub(super) fn find(
        dir: &Path,
        state: &ShareState,
        proposals: &'a [Proposal],
        agent: &AgentId,
        name: &SkillName,
        text: Option<&str>,
    ) -> Self {
        let Some(text) = text else {
            return Self::Unwritten;
        };
        if agent.is_shared() && bank::is_unchanged(dir, name.as_str(), text) {
            return Self::Unwritten;
        }
        if let Some(import) = import_of(proposals, agent, name, text) {
            return if import.is_own {
                Self::Own(import)
            } else {
                Self::Other
            };
        }
        let digest = digest(text);
        match state.published.get(&path_of(agent, name)) {
            Some(published) if published.digest == digest => Self::Published {
                digest,
                at_ms: published.at_ms,
            },
            Some(_) | None => Self::Other,
        }
    }

    /// Returns whether a version that the same person wrote elsewhere takes its place: the newer one does. Both homes
    /// compare the same numbers, so both come to the same result.
    pub(super) fn gives_way_to(&self, at_ms: u64, digest: &str) -> bool {
        let is_newer = |than_ms: u64, than: &str| (at_ms, digest) > (than_ms, than);
        match self {
            Self::Unwritten => true,
            Self::Published { digest, at_ms } => is_newer(*at_ms, digest),
            Self::Own(import) => is_newer(import.at_ms, &import.digest),
            Self::Other => false,
        }
    }
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
            ShareIndex::read(text, &writer, key).map(|read| read.is_own)
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
