//! The library's folder, read: which files there are, and which of them changed.
//!
//! Layout: `<name>/SKILL.md` (the original's flat one) and `_shared/<name>/SKILL.md` are everyone's;
//! `<agent>/<name>/SKILL.md` and `<agent>/WISHES.md` are one agent's. Names that begin with a dot are
//! left alone. A file is read again when its modification time or length changed, which works on
//! network and container mounts where notifications do not.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use metaclaw_chat::AgentId;

use crate::{
    file::{MAX_FILE, read_text},
    skill::{Skill, SkillError},
    wishes::{self, Wish},
};

/// The file that makes a folder a skill.
const SKILL_FILE: &str = "SKILL.md";
/// An agent's wishes.
pub(crate) const WISHES_FILE: &str = "WISHES.md";
/// The folder of everyone's skills.
const SHARED: &str = "_shared";

/// A file or folder of the library that is not used, and why; everything else is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {fault}; skipped", path.display())]
pub struct SkillWarning {
    /// Which one.
    pub path: PathBuf,
    /// What is wrong with it.
    pub fault: SkillFault,
}

/// What is wrong with a file or folder of the library.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SkillFault {
    /// The file system would not give it.
    #[error("cannot be read: {reason}")]
    Unreadable {
        /// The file system's words.
        reason: String,
    },
    /// Too large to be an instruction.
    #[error("has {bytes} bytes, at most {MAX_FILE} are read")]
    TooLarge {
        /// Its length.
        bytes: u64,
    },
    /// Read, but no skill.
    #[error(transparent)]
    NoSkill(#[from] SkillError),
    /// Another file has the same name.
    #[error("has the same name {name:?} as {}", first.display())]
    SameName {
        /// The name.
        name: String,
        /// The file that is used.
        first: PathBuf,
    },
    /// A folder that is neither a skill nor can be an agent's.
    #[error(transparent)]
    FolderName(#[from] metaclaw_chat::NameError),
    /// Longer than the skills of a request may be together.
    #[error("costs about {tokens} tokens and skills.budget_tokens is {budget}, so it never fits")]
    OverBudget {
        /// About what it costs.
        tokens: usize,
        /// What there is.
        budget: usize,
    },
}

/// What the folder holds.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Scan {
    /// Everyone's skills, by path.
    pub(crate) shared: Vec<Arc<Skill>>,
    /// What is one agent's.
    pub(crate) agents: BTreeMap<AgentId, AgentFiles>,
    /// What is not used.
    pub(crate) warnings: Vec<SkillWarning>,
}

/// One agent's folder.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct AgentFiles {
    pub(crate) skills: Vec<Arc<Skill>>,
    pub(crate) wishes: Arc<[Wish]>,
}

/// What each file said, and the stamp it had then.
type Cache<T> = BTreeMap<PathBuf, (Stamp, Result<T, SkillFault>)>;

/// Files as they were when last read.
#[derive(Debug, Default)]
pub(crate) struct FileCache {
    skills: Cache<Arc<Skill>>,
    wishes: Cache<Arc<[Wish]>>,
}

/// A file is taken for unchanged while these are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
}

impl FileCache {
    /// Reads the file anew next time, whatever its stamp.
    pub(crate) fn forget_wishes(&mut self, path: &Path) {
        self.wishes.remove(path);
    }
}

/// Reads the folder; unchanged files come from the cache. A folder that does not exist is empty.
pub(crate) fn scan(dir: &Path, cache: &mut FileCache) -> io::Result<Scan> {
    let folders = match folders(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        other => other?,
    };
    let mut reader = Reader {
        known: std::mem::take(cache),
        cache,
        scan: Scan::default(),
    };
    let mut shared = Vec::new();
    for (name, path) in folders {
        if path.join(SKILL_FILE).exists() {
            shared.push(path.join(SKILL_FILE));
        } else if name == SHARED {
            shared.extend(reader.skill_files(&path));
        } else {
            reader.agent(&name, &path);
        }
    }
    reader.scan.shared = reader.skills(shared);
    Ok(reader.scan)
}

/// The folders in a folder, by name. Links to folders count; names with a leading dot do not.
fn folders(dir: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') && entry.path().is_dir() {
            found.push((name, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

struct Reader<'a> {
    /// As of the last look.
    known: FileCache,
    /// As of this one.
    cache: &'a mut FileCache,
    scan: Scan,
}

// === impl Reader ===

impl Reader<'_> {
    fn warn(&mut self, path: &Path, fault: impl Into<SkillFault>) {
        self.scan.warnings.push(SkillWarning {
            path: path.to_owned(),
            fault: fault.into(),
        });
    }

    fn agent(&mut self, name: &str, path: &Path) {
        let agent = match name.parse::<AgentId>() {
            Ok(agent) => agent,
            Err(error) => return self.warn(path, error),
        };
        let files = self.skill_files(path);
        let skills = self.skills(files);
        let wishes = self.wishes(&path.join(WISHES_FILE));
        self.scan
            .agents
            .insert(agent, AgentFiles { skills, wishes });
    }

    /// The SKILL.md files one level down; folders without one are a skill's own business.
    fn skill_files(&mut self, dir: &Path) -> Vec<PathBuf> {
        match folders(dir) {
            Ok(folders) => {
                let files = folders.into_iter().map(|(_, path)| path.join(SKILL_FILE));
                files.filter(|path| path.exists()).collect()
            }
            Err(error) => {
                self.warn(dir, unreadable(&error));
                Vec::new()
            }
        }
    }

    /// The skills in these files; of two with one name the first is used.
    fn skills(&mut self, files: Vec<PathBuf>) -> Vec<Arc<Skill>> {
        let mut first = BTreeMap::<Arc<str>, PathBuf>::new();
        let mut skills = Vec::new();
        for path in files {
            let read = |text: &str| Ok(Arc::new(Skill::parse(text)?));
            let known = self.known.skills.remove(&path);
            match cached(known, &mut self.cache.skills, &path, read) {
                Ok(skill) => {
                    let name: Arc<str> = skill.name.as_str().into();
                    if let Some(first) = first.get(&name) {
                        let first = first.clone();
                        self.warn(
                            &path,
                            SkillFault::SameName {
                                name: name.to_string(),
                                first,
                            },
                        );
                    } else {
                        first.insert(name, path);
                        skills.push(skill);
                    }
                }
                Err(fault) => self.warn(&path, fault),
            }
        }
        skills
    }

    fn wishes(&mut self, path: &Path) -> Arc<[Wish]> {
        if !path.exists() {
            return Arc::default();
        }
        let known = self.known.wishes.remove(path);
        let read = |text: &str| Ok(wishes::parse(text).into());
        match cached(known, &mut self.cache.wishes, path, read) {
            Ok(wishes) => wishes,
            Err(fault) => {
                self.warn(path, fault);
                Arc::default()
            }
        }
    }
}

/// What a file says: read anew if it changed, else as last time.
fn cached<T: Clone>(
    known: Option<(Stamp, Result<T, SkillFault>)>,
    cache: &mut Cache<T>,
    path: &Path,
    read: impl FnOnce(&str) -> Result<T, SkillFault>,
) -> Result<T, SkillFault> {
    let meta = fs::metadata(path).map_err(|error| unreadable(&error))?;
    let stamp = Stamp {
        modified: meta.modified().ok(),
        length: meta.len(),
    };
    let known = known.filter(|(known, value)| {
        // What the file system refused is asked again: permissions change without a stamp.
        *known == stamp && !matches!(value, Err(SkillFault::Unreadable { .. }))
    });
    let value = match known {
        Some((_, value)) => value,
        None if stamp.length > MAX_FILE => Err(SkillFault::TooLarge {
            bytes: stamp.length,
        }),
        None => read_text(path, MAX_FILE)
            .map_err(|error| unreadable(&error))
            .and_then(|text| read(&text)),
    };
    cache.insert(path.to_owned(), (stamp, value.clone()));
    value
}

fn unreadable(error: &io::Error) -> SkillFault {
    SkillFault::Unreadable {
        reason: error.to_string(),
    }
}
