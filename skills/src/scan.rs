//! Scans the library's folder: which files exist, and which of them changed.
//!
//! `<name>/SKILL.md` (the original's flat layout) and `_shared/<name>/SKILL.md` are shared skills; `_shared/WISHES.md`
//! has the shared wishes; `<agent>/<name>/SKILL.md` and `<agent>/WISHES.md` belong to one agent, and
//! `<agent>/_people/<id>.md` has the wishes of another person about it. Names that begin with a dot are ignored. Files
//! that are probably meant as lessons but are not read lead to a warning. A file is read again when its modification time
//! or length changed. This also works on network and container mounts, where notifications do not.
//!
//! Warnings about files in the library's folder that are not used, or probably not as intended.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use metaclaw_chat::{AgentId, SenderId, if_there};

use crate::{
    file::{FileStamp, MAX_FILE, SHARED, SKILL_FILE, WISHES_FILE, read_text},
    holder::{PEOPLE, sender_of},
    skill::{Skill, SkillError},
    wishes::{self, Wish},
};

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Scan {
    pub(crate) shared: Vec<Arc<Skill>>,
    pub(crate) shared_wishes: Arc<[Wish]>,
    pub(crate) agents: BTreeMap<AgentId, AgentFiles>,
    pub(crate) warnings: Vec<SkillWarning>,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct AgentFiles {
    pub(crate) skills: Vec<Arc<Skill>>,
    pub(crate) wishes: Arc<[Wish]>,
    pub(crate) people: Arc<BTreeMap<SenderId, Arc<[Wish]>>>,
    pub(crate) has_no_lesson: bool,
}

type ScanCache<T> = BTreeMap<PathBuf, (FileStamp, Result<T, SkillFault>)>;

#[derive(Debug, Default)]
pub(crate) struct FileCache {
    skills: ScanCache<Arc<Skill>>,
    wishes: ScanCache<Arc<[Wish]>>,
}

impl FileCache {
    pub(crate) fn forget(&mut self, path: &Path) {
        self.wishes.remove(path);
        self.skills.remove(path);
    }
}

/// Scans the folder. Unchanged files come from the cache. A folder that does not exist is empty.
pub(crate) fn scan(dir: &Path, cache: &mut FileCache) -> io::Result<Scan> {
    let entries = if_there(entries(dir))?.unwrap_or_default();
    let mut reader = FolderReader {
        known: std::mem::take(cache),
        cache,
        scan: Scan::default(),
    };
    reader.of_nobody(&entries);
    let mut shared = Vec::new();
    for (name, path) in entries.folders {
        if path.join(SKILL_FILE).exists() {
            shared.push(path.join(SKILL_FILE));
        } else if name == SHARED {
            let folder = reader.entries(&path);
            shared.extend(reader.skill_files(&folder));
            reader.scan.shared_wishes = reader.wishes(&path, &folder);
        } else {
            reader.agent(&name, &path);
        }
    }
    reader.scan.shared = reader.skills(shared);
    Ok(reader.scan)
}

/// The entries of a folder, without names that begin with a dot.
#[derive(Debug, Default)]
struct Entries {
    folders: Vec<(String, PathBuf)>,
    /// Files that may be lessons: those with our names in any case.
    files: Vec<PathBuf>,
    n_others: usize,
}

fn entries(dir: &Path) -> io::Result<Entries> {
    let mut found = Entries::default();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        let is = |file: &str| name.eq_ignore_ascii_case(file);
        if entry.path().is_dir() {
            found.folders.push((name, entry.path()));
        } else if is(SKILL_FILE) || is(WISHES_FILE) {
            found.files.push(entry.path());
        } else {
            found.n_others += 1;
        }
    }
    found.folders.sort();
    Ok(found)
}

// === impl Entries ===

impl Entries {
    fn misnamed(&self, name: &str) -> Option<&Path> {
        let is_it = |path: &&PathBuf| {
            let given = path.file_name().and_then(|file_name| file_name.to_str());
            given.is_some_and(|given| given != name && given.eq_ignore_ascii_case(name))
        };
        self.files.iter().find(is_it).map(PathBuf::as_path)
    }

    fn is_empty(&self) -> bool {
        self.folders.is_empty() && self.files.is_empty() && self.n_others == 0
    }
}

struct FolderReader<'a> {
    known: FileCache,
    cache: &'a mut FileCache,
    scan: Scan,
}

// === impl Reader ===

impl FolderReader<'_> {
    fn warn(&mut self, path: &Path, fault: impl Into<SkillFault>) {
        self.scan.warnings.push(SkillWarning {
            path: path.to_owned(),
            fault: fault.into(),
        });
    }

    fn warn_misnamed(&mut self, folder: &Entries, name: &'static str) {
        if let Some(path) = folder.misnamed(name) {
            self.warn(path, SkillFault::Misnamed { name });
        }
    }

    fn of_nobody(&mut self, top: &Entries) {
        for path in &top.files {
            let name = path.file_name().unwrap_or_default();
            let fault = if name.eq_ignore_ascii_case(WISHES_FILE) {
                SkillFault::WishesOfNobody
            } else {
                SkillFault::NoFolder
            };
            self.warn(path, fault);
        }
    }

    fn agent(&mut self, name: &str, path: &Path) {
        let agent = match name.parse::<AgentId>() {
            Ok(agent) => agent,
            Err(error) => return self.warn(path, error),
        };
        let folder = self.entries(path);
        let n_warnings = self.scan.warnings.len();
        self.warn_misnamed(&folder, SKILL_FILE);
        let files = self.skill_files(&folder);
        let skills = self.skills(files);
        let wishes = self.wishes(path, &folder);
        let people = self.people(&path.join(PEOPLE));
        let has_lesson = !skills.is_empty() || !folder.files.is_empty() || !people.is_empty();
        // A file that has a warning already gets no second one.
        let is_told = self.scan.warnings.len() > n_warnings;
        let files = AgentFiles {
            skills,
            wishes,
            people: Arc::new(people),
            has_no_lesson: !has_lesson && !folder.is_empty() && !is_told,
        };
        self.scan.agents.insert(agent, files);
    }

    /// Returns the entries of a folder. If it cannot be read, returns nothing and warns.
    fn entries(&mut self, dir: &Path) -> Entries {
        entries(dir).unwrap_or_else(|error| {
            self.warn(dir, unreadable(&error));
            Entries::default()
        })
    }

    /// Returns the SKILL.md files one level down. Folders without one belong to a skill.
    fn skill_files(&mut self, dir: &Entries) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for (_, folder) in &dir.folders {
            let file = folder.join(SKILL_FILE);
            if file.exists() {
                files.push(file);
            } else if let Ok(folder) = entries(folder) {
                self.warn_misnamed(&folder, SKILL_FILE);
            }
        }
        files
    }

    /// Returns the skills in these files. Of two with the same name, the first is used.
    fn skills(&mut self, files: Vec<PathBuf>) -> Vec<Arc<Skill>> {
        let mut first = BTreeMap::<Arc<str>, PathBuf>::new();
        let mut skills = Vec::new();
        for path in files {
            let read = |text: &str| Ok(Arc::new(Skill::parse(text)?));
            let known = self.known.skills.remove(&path);
            match cached(known, &mut self.cache.skills, &path, read) {
                Ok(skill) => {
                    if let Some(line) = skill.no_yaml {
                        self.warn(&path, SkillFault::NoYaml { line });
                    }
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

    fn wishes(&mut self, dir: &Path, folder: &Entries) -> Arc<[Wish]> {
        let path = &dir.join(WISHES_FILE);
        if !path.exists() {
            self.warn_misnamed(folder, WISHES_FILE);
            return Arc::default();
        }
        self.wish_file(path)
    }

    fn people(&mut self, dir: &Path) -> BTreeMap<SenderId, Arc<[Wish]>> {
        let files = if_there(fs::read_dir(dir)).unwrap_or_else(|error| {
            self.warn(dir, unreadable(&error));
            None
        });
        let mut people = BTreeMap::new();
        for path in files
            .into_iter()
            .flatten()
            .filter_map(|file| Some(file.ok()?.path()))
        {
            let name = path.file_name().and_then(|name| name.to_str());
            if let Some(sender) = name.and_then(sender_of) {
                let wishes = self.wish_file(&path);
                if !wishes.is_empty() {
                    people.insert(sender, wishes);
                }
            }
        }
        people
    }

    fn wish_file(&mut self, path: &Path) -> Arc<[Wish]> {
        let known = self.known.wishes.remove(path);
        let read = |text: &str| {
            let wishes: Arc<[Wish]> = wishes::parse(text).into();
            if wishes.is_empty() && wishes::has_text(text) {
                return Err(SkillFault::NoWish);
            }
            Ok(wishes)
        };
        match cached(known, &mut self.cache.wishes, path, read) {
            Ok(wishes) => wishes,
            Err(fault) => {
                self.warn(path, fault);
                Arc::default()
            }
        }
    }
}

fn cached<T: Clone>(
    known: Option<(FileStamp, Result<T, SkillFault>)>,
    cache: &mut ScanCache<T>,
    path: &Path,
    read: impl FnOnce(&str) -> Result<T, SkillFault>,
) -> Result<T, SkillFault> {
    let meta = fs::metadata(path).map_err(|error| unreadable(&error))?;
    let stamp = FileStamp::new(&meta);
    let known = known.filter(|(known, value)| {
        // A file that could not be read is tried again, because permissions change without changing the stamp.
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

/// A file or folder of the library that is not used, or probably not as intended, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {fault}{}", path.display(), fault.end())]
pub struct SkillWarning {
    pub path: PathBuf,
    /// What is wrong with it.
    pub fault: SkillFault,
}

/// What is wrong with a file or folder of the library.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SkillFault {
    /// The file system refused to read it.
    #[error("cannot be read: {reason}")]
    Unreadable { reason: String },
    /// It is too large to be an instruction.
    #[error("has {bytes} bytes, at most {MAX_FILE} are read")]
    TooLarge { bytes: u64 },
    /// It was read, but is not a valid skill.
    #[error(transparent)]
    NoSkill(#[from] SkillError),
    /// It is a skill, whose front matter was read line by line.
    #[error(
        "line {line} is no YAML, so its front matter is read line by line. Put quotation marks around the value"
    )]
    NoYaml { line: u64 },
    /// Another file has the same name.
    #[error("has the same name {name:?} as {}", first.display())]
    SameName { name: String, first: PathBuf },
    /// The folder is neither a skill, nor is its name a valid agent name.
    #[error(transparent)]
    FolderName(#[from] metaclaw_chat::NameError),
    /// It is longer than all skills of a request together may be.
    #[error("costs about {tokens} tokens and skills.budget_tokens is {budget}, so it never fits")]
    OverBudget { tokens: usize, budget: usize },
    /// The file is read only if its name is upper case.
    #[error("is not read: it must be called {name}")]
    Misnamed { name: &'static str },
    #[error(
        "is nobody's: put everyone's wishes into {SHARED}/{WISHES_FILE}, and those of one agent into its folder, as main/{WISHES_FILE}"
    )]
    WishesOfNobody,
    /// A skill without its own folder.
    #[error("is not read: a skill has a folder of its own, as {SHARED}/NAME/{SKILL_FILE}")]
    NoFolder,
    /// The file has text, but no list item.
    #[error("has no wish in it: a wish is a line that begins with \"- \"")]
    NoWish,
    /// The folder is neither an agent's nor a skill's.
    #[error(
        "is no skill, as it has no {SKILL_FILE}, and no agent's, as it has no {WISHES_FILE} and no skill in it"
    )]
    NoLesson,
    /// A folder of skills that may be meant as a group.
    #[error(
        "is taken for the folder of an agent called {agent}, whom nobody has met: only such an agent gets its skills; put those for all agents into {SHARED}/"
    )]
    UnknownAgent { agent: AgentId },
}

// === impl SkillFault ===

impl SkillFault {
    /// Returns how the message ends if the fault does not say what happens to the file.
    fn end(&self) -> &'static str {
        match self {
            Self::Unreadable { .. }
            | Self::TooLarge { .. }
            | Self::NoSkill(_)
            | Self::SameName { .. }
            | Self::FolderName(_)
            | Self::OverBudget { .. } => "; skipped",
            Self::NoYaml { .. }
            | Self::Misnamed { .. }
            | Self::WishesOfNobody
            | Self::NoFolder
            | Self::NoWish
            | Self::NoLesson
            | Self::UnknownAgent { .. } => "",
        }
    }
}
