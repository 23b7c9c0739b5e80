//! The library: what every agent has at hand, at any moment, whatever is being edited.
//!
//! Readers take a snapshot and never wait; [`Library::rescan`] looks at the files and puts a new
//! snapshot in its place when something changed.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use arc_swap::ArcSwap;
use metaclaw_chat::AgentId;

use crate::{
    config::{SkillsConfig, WishPlace, WishesConfig},
    render,
    retrieve::Index,
    scan::{AgentFiles, FileCache, Scan, SkillFault, SkillWarning, WISHES_FILE, scan},
    skill::{Skill, SkillName},
    wishes::{self, Wish, WishError},
};

/// Skills and wishes of every agent. Clones share one library.
#[derive(Debug, Clone)]
pub struct Library(Arc<Inner>);

/// Which skill was served, as it was then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillRef {
    /// Its name.
    pub name: SkillName,
    /// Its version: the same text, the same version.
    pub version: String,
}

/// What a request is given to take along.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lessons {
    /// Text for the end of the system message, without surrounding blank lines.
    pub system_block: Option<String>,
    /// One line for the end of each of the owner's messages.
    pub user_line: Option<String>,
    /// The skills in `system_block`, best first.
    pub skills: Vec<SkillRef>,
    /// The version of the wishes in `system_block` or `user_line`.
    pub wishes_version: Option<String>,
}

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    skills: SkillsConfig,
    wishes: WishesConfig,
    files: Mutex<Files>,
    current: ArcSwap<Snapshot>,
}

/// What the last look at the folder found.
#[derive(Debug, Default)]
struct Files {
    cache: FileCache,
    scan: Scan,
    warnings: Vec<SkillWarning>,
}

/// What requests see.
#[derive(Debug)]
struct Snapshot {
    /// Of agents without a folder of their own.
    shared: View,
    agents: BTreeMap<AgentId, View>,
}

/// What one agent has.
#[derive(Debug)]
struct View {
    skills: Vec<Arc<Skill>>,
    index: Index,
    wishes: Arc<[Wish]>,
}

// === impl Library ===

impl Library {
    /// Reads the library in `dir`. What cannot be used is returned; everything else is at hand.
    pub fn open(
        dir: impl Into<PathBuf>,
        skills: SkillsConfig,
        wishes: WishesConfig,
    ) -> (Self, Vec<SkillWarning>) {
        let library = Self(Arc::new(Inner {
            dir: dir.into(),
            skills,
            wishes,
            files: Mutex::default(),
            current: ArcSwap::from_pointee(Snapshot::of(&Scan::default())),
        }));
        let warnings = library.rescan();
        (library, warnings)
    }

    /// Looks at the folder again; returns warnings that were not there the last time.
    ///
    /// Touches the file system (a stat per file): call it where blocking is allowed.
    pub fn rescan(&self) -> Vec<SkillWarning> {
        let inner = &*self.0;
        let mut files = inner.lock();
        let mut warnings = match scan(&inner.dir, &mut files.cache) {
            Ok(scan) if scan == files.scan => scan.warnings,
            Ok(scan) => {
                inner.current.store(Arc::new(Snapshot::of(&scan)));
                let warnings = scan.warnings.clone();
                files.scan = scan;
                warnings
            }
            // A mount that is away for a moment takes no lesson from anyone.
            Err(error) => vec![SkillWarning {
                path: inner.dir.clone(),
                fault: SkillFault::Unreadable {
                    reason: error.to_string(),
                },
            }],
        };
        warnings.extend(inner.over_budget(&files.scan));
        let new = warnings
            .iter()
            .filter(|warning| !files.warnings.contains(warning));
        let new = new.cloned().collect();
        files.warnings = warnings;
        new
    }

    /// What a request of `agent` that says `query` takes along. Reads memory only.
    pub fn lessons(&self, agent: &AgentId, query: &str) -> Lessons {
        let snapshot = self.0.current.load();
        let view = snapshot.view(agent);
        let skills = if self.0.skills.enabled {
            self.0.retrieve(view, query)
        } else {
            Vec::new()
        };
        let wishes = if self.0.wishes.enabled {
            render::newest_within_budget(&view.wishes, self.0.wishes.max_tokens)
        } else {
            &[]
        };
        let (in_system, after_user) = match self.0.wishes.place {
            WishPlace::System => (wishes, &[][..]),
            WishPlace::User => (&[][..], wishes),
        };
        Lessons {
            system_block: render::system_block(&skills, in_system),
            user_line: render::user_line(after_user),
            skills: skills.iter().map(|skill| SkillRef::of(skill)).collect(),
            wishes_version: render::user_line(wishes).map(|text| version(&text)),
        }
    }

    /// All skills of an agent, its own and everyone's, by name.
    pub fn skills(&self, agent: &AgentId) -> Vec<Arc<Skill>> {
        self.0.current.load().view(agent).skills.clone()
    }

    /// One skill of an agent.
    pub fn skill(&self, agent: &AgentId, name: &SkillName) -> Option<Arc<Skill>> {
        let snapshot = self.0.current.load();
        let mut skills = snapshot.view(agent).skills.iter();
        skills.find(|skill| skill.name == *name).cloned()
    }

    /// The agents that have a folder of their own.
    pub fn agents(&self) -> Vec<AgentId> {
        self.0.current.load().agents.keys().cloned().collect()
    }

    /// An agent's wishes, the newest last.
    pub fn wishes(&self, agent: &AgentId) -> Vec<Wish> {
        self.0.current.load().view(agent).wishes.to_vec()
    }

    /// Writes a wish into the agent's WISHES.md as the newest, in force at once; says whether the file changed.
    /// Touches the file system.
    ///
    /// # Errors
    ///
    /// [`WishError`] when it is empty, too long, or the file cannot be written.
    pub fn add_wish(&self, agent: &AgentId, wish: &str) -> Result<bool, WishError> {
        self.edit_wishes(agent, |path| wishes::add(path, wish))
    }

    /// Takes a wish out of the agent's WISHES.md; says whether it was there. Touches the file system.
    ///
    /// # Errors
    ///
    /// [`WishError::File`] when the file cannot be read or written.
    pub fn remove_wish(&self, agent: &AgentId, wish: &str) -> Result<bool, WishError> {
        self.edit_wishes(agent, |path| wishes::remove(path, wish))
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    fn edit_wishes(
        &self,
        agent: &AgentId,
        edit: impl FnOnce(&Path) -> Result<bool, WishError>,
    ) -> Result<bool, WishError> {
        let path = self.0.dir.join(agent.as_str()).join(WISHES_FILE);
        let mut files = self.0.lock();
        let changed = edit(&path)?;
        // Two edits within one tick of the file system's clock may have one length.
        files.cache.forget_wishes(&path);
        drop(files);
        self.rescan();
        Ok(changed)
    }
}

// === impl Inner ===

impl Inner {
    /// A panic elsewhere leaves these files usable: each scan is built anew.
    fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn retrieve(&self, view: &View, query: &str) -> Vec<Arc<Skill>> {
        let ranked = view.index.search(query).into_iter();
        let ranked = ranked.map(|number| Arc::clone(&view.skills[number]));
        render::within_budget(ranked, self.skills.budget_tokens, self.skills.top_k)
    }

    /// Skills that can never be served; they stay in the library, for a larger budget.
    fn over_budget(&self, scan: &Scan) -> Vec<SkillWarning> {
        let budget = self.skills.budget_tokens;
        let warn = |skill: &Arc<Skill>| SkillWarning {
            path: PathBuf::from(skill.name.as_str()),
            fault: SkillFault::OverBudget {
                tokens: render::cost(skill),
                budget,
            },
        };
        let own = scan.agents.values().flat_map(|files| &files.skills);
        let all = scan.shared.iter().chain(own);
        all.filter(|skill| render::cost(skill) > budget)
            .map(warn)
            .collect()
    }
}

// === impl Snapshot ===

impl Snapshot {
    fn of(scan: &Scan) -> Self {
        let view = |(agent, files): (&AgentId, &AgentFiles)| {
            (
                agent.clone(),
                View::new(
                    own_before_shared(&files.skills, &scan.shared),
                    &files.wishes,
                ),
            )
        };
        Self {
            shared: View::new(own_before_shared(&[], &scan.shared), &Arc::default()),
            agents: scan.agents.iter().map(view).collect(),
        }
    }

    fn view(&self, agent: &AgentId) -> &View {
        self.agents.get(agent).unwrap_or(&self.shared)
    }
}

/// By name; an agent's own skill stands in for everyone's of the same name.
fn own_before_shared(own: &[Arc<Skill>], shared: &[Arc<Skill>]) -> Vec<Arc<Skill>> {
    let named = |skill: &Arc<Skill>| (skill.name.clone(), Arc::clone(skill));
    let by_name: BTreeMap<SkillName, Arc<Skill>> = shared.iter().chain(own).map(named).collect();
    by_name.into_values().collect()
}

// === impl View ===

impl View {
    fn new(skills: Vec<Arc<Skill>>, wishes: &Arc<[Wish]>) -> Self {
        Self {
            index: Index::build(&skills),
            skills,
            wishes: Arc::clone(wishes),
        }
    }
}

// === impl SkillRef ===

impl SkillRef {
    fn of(skill: &Skill) -> Self {
        Self {
            name: skill.name.clone(),
            version: skill.version.clone(),
        }
    }
}

fn version(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
}

#[cfg(test)]
mod tests;
