//! The library: what every agent has at hand, at any moment, whatever is being edited.
//!
//! Readers take a snapshot and never wait; [`Library::rescan`] looks at the files and puts a new
//! snapshot in its place when something changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use arc_swap::ArcSwap;
use metaclaw_chat::AgentId;

use crate::{
    config::{Refresh, SkillsConfig, WishPlace, WishesConfig},
    file::WISHES_FILE,
    hearing::Facet,
    journal::JournalError,
    lock, render,
    retrieve::{Index, Visible},
    scan::{AgentFiles, FileCache, Scan, scan},
    skill::{Skill, SkillName},
    warning::{SkillFault, SkillWarning},
    wishes::{self, Wish, WishError},
};

/// The agent of clients that name none, and OpenClaw's first.
const USUAL_AGENTS: [&str; 2] = ["_default", "main"];

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
    /// The id of each of those wishes: [`Wish::id`].
    pub wish_ids: Vec<String>,
    /// What is taken along in its place where weights answer that do some of the wishes without being told.
    pub of_weights: Option<Box<OfWeights>>,
}

/// What a request takes along to an adapter that does some of the wishes without being told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfWeights {
    /// The adapter's name.
    pub adapter: String,
    /// The lessons without the lines of those wishes.
    pub lessons: Lessons,
}

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    skills: SkillsConfig,
    wishes: WishesConfig,
    files: Mutex<Files>,
    current: ArcSwap<Snapshot>,
    /// The agents that were met; none where nobody looks on.
    met: Mutex<Option<BTreeSet<AgentId>>>,
    /// By adapter, the ids of wishes that it does without being told.
    untold: Mutex<BTreeMap<String, BTreeSet<String>>>,
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
    /// Everyone's skills, then each agent's own.
    skills: Vec<Arc<Skill>>,
    /// Of all of them: one for all agents.
    index: Index,
    /// Of agents without a folder of their own.
    shared: View,
    agents: BTreeMap<AgentId, View>,
}

/// What one agent has.
#[derive(Debug, Default)]
struct View {
    skills: Visible,
    /// In force: everyone's, and then its own.
    wishes: Arc<[Wish]>,
    /// Those of its own file.
    own_wishes: Arc<[Wish]>,
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
            met: Mutex::default(),
            untold: Mutex::default(),
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
        let mut warnings = inner.look(&mut files);
        warnings.extend(inner.over_budget(&files.scan));
        warnings.extend(inner.of_unknown_agents(&files.scan));
        let new = warnings
            .iter()
            .filter(|warning| !files.warnings.contains(warning));
        let new = new.cloned().collect();
        files.warnings = warnings;
        new
    }

    /// Agents that are known to be some: from now on a folder of skills for an agent that nobody has met is
    /// warned of.
    pub fn meet(&self, agents: impl IntoIterator<Item = AgentId>) {
        let mut met = self.0.met();
        met.get_or_insert_default().extend(agents);
    }

    /// When a session's skills are chosen anew.
    pub fn refresh(&self) -> Refresh {
        self.0.skills.refresh
    }

    /// What a request of `agent` that says `query` takes along. Reads memory only.
    pub fn lessons(&self, agent: &AgentId, query: &str) -> Lessons {
        self.lessons_for(agent, query, None)
    }

    /// The same; where this adapter may answer it, with what it takes along then.
    pub fn lessons_for(&self, agent: &AgentId, query: &str, adapter: Option<&str>) -> Lessons {
        self.0.has_met(agent);
        let snapshot = self.0.current.load();
        let view = snapshot.view(agent);
        let skills = if self.0.skills.enabled {
            self.0.retrieve(&snapshot, view, query)
        } else {
            Vec::new()
        };
        let lessons = self.0.with_wishes(&skills, &view.wishes);
        let of_weights = adapter.and_then(|adapter| {
            let untold = self.untold(adapter);
            let mut told = view.wishes.to_vec();
            told.retain(|wish| !untold.contains(&wish.id()));
            let lessons = self.0.with_wishes(&skills, &told);
            let adapter = adapter.to_owned();
            let of_weights = OfWeights { adapter, lessons };
            (told.len() < view.wishes.len()).then(|| Box::new(of_weights))
        });
        Lessons {
            of_weights,
            ..lessons
        }
    }

    /// An adapter does the wishes with these ids ([`Wish::id`]) without being told: their lines are left out where it answers.
    pub fn set_untold(&self, adapter: &str, wish_ids: impl IntoIterator<Item = String>) {
        let wish_ids: BTreeSet<String> = wish_ids.into_iter().collect();
        let mut untold = self.0.all_untold();
        if wish_ids.is_empty() {
            untold.remove(adapter);
        } else {
            untold.insert(adapter.to_owned(), wish_ids);
        }
    }

    /// The ids of the wishes that an adapter does without being told.
    pub fn untold(&self, adapter: &str) -> BTreeSet<String> {
        let untold = self.0.all_untold();
        untold.get(adapter).cloned().unwrap_or_default()
    }

    /// All skills of an agent, its own and everyone's, by name.
    pub fn skills(&self, agent: &AgentId) -> Vec<Arc<Skill>> {
        self.0.current.load().of_agent(agent)
    }

    /// One skill of an agent.
    pub fn skill(&self, agent: &AgentId, name: &SkillName) -> Option<Arc<Skill>> {
        let mut skills = self.skills(agent).into_iter();
        skills.find(|skill| skill.name == *name)
    }

    /// The agents that have a folder of their own.
    pub fn agents(&self) -> Vec<AgentId> {
        self.0.current.load().agents.keys().cloned().collect()
    }

    /// The wishes that are in force for an agent: everyone's, then its own, the newest last.
    pub fn wishes(&self, agent: &AgentId) -> Vec<Wish> {
        self.0.current.load().view(agent).wishes.to_vec()
    }

    /// The wishes of an agent's own file, the newest last; of `_shared`, everyone's.
    pub fn own_wishes(&self, agent: &AgentId) -> Vec<Wish> {
        let snapshot = self.0.current.load();
        if agent.is_shared() {
            return snapshot.shared.wishes.to_vec();
        }
        snapshot.view(agent).own_wishes.to_vec()
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

    /// The file that an agent's wishes lie in.
    pub fn wishes_file(&self, agent: &AgentId) -> PathBuf {
        self.0.dir.join(agent.as_str()).join(WISHES_FILE)
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// Whether each skill that a model writes waits for the owner's look.
    pub(crate) fn reviews_skills(&self) -> bool {
        self.0.skills.review
    }

    /// Reads a file anew at the next look: two edits within one tick of the file system's clock may have one length.
    pub(crate) fn forget_file(&self, path: &Path) {
        self.0.lock().cache.forget(path);
    }

    /// Nobody else changes lessons while this is held, and what is in force here is what the files say.
    pub(crate) fn lock_lessons(&self) -> Result<File, JournalError> {
        let lock = lock::lock(self.dir())?;
        self.refresh_view();
        Ok(lock)
    }

    /// Reads what changed; what is wrong in it is told at the next [`Self::rescan`].
    pub(crate) fn refresh_view(&self) {
        let inner = &*self.0;
        inner.look(&mut inner.lock());
    }

    fn edit_wishes(
        &self,
        agent: &AgentId,
        edit: impl FnOnce(&Path) -> Result<bool, WishError>,
    ) -> Result<bool, WishError> {
        let path = self.wishes_file(agent);
        let mut files = self.0.lock();
        let changed = edit(&path)?;
        // Two edits within one tick of the file system's clock may have one length.
        files.cache.forget(&path);
        self.0.look(&mut files);
        Ok(changed)
    }
}

// === impl Inner ===

impl Inner {
    /// A panic elsewhere leaves these files usable: each scan is built anew.
    fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what changed, and shows it to requests; what cannot be used of all that is there.
    fn look(&self, files: &mut Files) -> Vec<SkillWarning> {
        match scan(&self.dir, &mut files.cache) {
            Ok(scan) if scan == files.scan => scan.warnings,
            Ok(scan) => {
                self.current.store(Arc::new(Snapshot::of(&scan)));
                let warnings = scan.warnings.clone();
                files.scan = scan;
                warnings
            }
            // A mount that is away for a moment takes no lesson from anyone.
            Err(error) => vec![SkillWarning {
                path: self.dir.clone(),
                fault: SkillFault::Unreadable {
                    reason: error.to_string(),
                },
            }],
        }
    }

    /// Skills, and of these wishes those that fit the budget.
    fn with_wishes(&self, skills: &[Arc<Skill>], wishes: &[Wish]) -> Lessons {
        let wishes = if self.wishes.enabled {
            render::newest_within_budget(wishes, self.wishes.max_tokens)
        } else {
            &[]
        };
        let (in_system, after_user) = match self.wishes.place {
            WishPlace::System => (wishes, &[][..]),
            WishPlace::User => (&[][..], wishes),
        };
        Lessons {
            system_block: render::system_block(skills, in_system),
            user_line: render::user_line(after_user),
            skills: skills.iter().map(|skill| SkillRef::of(skill)).collect(),
            wishes_version: render::user_line(wishes).map(|text| version(&text)),
            wish_ids: wishes.iter().map(Wish::id).collect(),
            of_weights: None,
        }
    }

    /// A panic elsewhere leaves it usable: each change is one call.
    fn all_untold(&self) -> MutexGuard<'_, BTreeMap<String, BTreeSet<String>>> {
        self.untold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn met(&self) -> MutexGuard<'_, Option<BTreeSet<AgentId>>> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers who was met.
    fn has_met(&self, agent: &AgentId) {
        if let Some(met) = &mut *self.met()
            && !met.contains(agent)
        {
            met.insert(agent.clone());
        }
    }

    /// Folders of agents that nobody has met: perhaps they are meant as something else.
    fn of_unknown_agents(&self, scan: &Scan) -> Vec<SkillWarning> {
        let met = self.met();
        let fault = |agent: &AgentId, files: &AgentFiles| {
            let is_met = met.as_ref().is_some_and(|met| met.contains(agent));
            if is_met || USUAL_AGENTS.contains(&agent.as_str()) {
                None
            } else if files.has_no_lesson {
                Some(SkillFault::NoLesson)
            } else {
                let is_group = !files.skills.is_empty() && files.wishes.is_empty();
                let agent = agent.clone();
                (is_group && met.is_some()).then_some(SkillFault::UnknownAgent { agent })
            }
        };
        let warn = |(agent, files): (&AgentId, &AgentFiles)| {
            Some(SkillWarning {
                path: self.dir.join(agent.as_str()),
                fault: fault(agent, files)?,
            })
        };
        scan.agents.iter().filter_map(warn).collect()
    }

    fn retrieve(&self, snapshot: &Snapshot, view: &View, query: &str) -> Vec<Arc<Skill>> {
        let ranked = snapshot.index.search(query, &view.skills).into_iter();
        let ranked = snapshot.numbered(ranked);
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

// === impl Lessons ===

impl Lessons {
    /// What is taken along where this adapter answers; none is the base model, or no model of ours.
    pub fn where_answers(&self, adapter: Option<&str>) -> &Self {
        match &self.of_weights {
            Some(of_weights) if Some(of_weights.adapter.as_str()) == adapter => &of_weights.lessons,
            Some(_) | None => self,
        }
    }
}

// === impl Snapshot ===

impl Snapshot {
    fn of(scan: &Scan) -> Self {
        let mut skills = scan.shared.clone();
        let shared = 0..skills.len();
        let places = skills.iter().enumerate();
        let places: BTreeMap<SkillName, usize> =
            places.map(|(at, it)| (it.name.clone(), at)).collect();
        let mut agents = BTreeMap::new();
        for (agent, files) in &scan.agents {
            let begin = skills.len();
            skills.extend_from_slice(&files.skills);
            let hidden = files.skills.iter().filter_map(|own| places.get(&own.name));
            let visible = Visible {
                shared: shared.clone(),
                own: begin..skills.len(),
                hidden: hidden.copied().collect(),
            };
            let view = View {
                skills: visible,
                wishes: in_force(&scan.shared_wishes, &files.wishes),
                own_wishes: Arc::clone(&files.wishes),
            };
            agents.insert(agent.clone(), view);
        }
        let shared = Visible {
            shared,
            ..Visible::default()
        };
        Self {
            index: Index::build(&skills),
            skills,
            shared: View {
                skills: shared,
                wishes: Arc::clone(&scan.shared_wishes),
                own_wishes: Arc::default(),
            },
            agents,
        }
    }

    fn view(&self, agent: &AgentId) -> &View {
        self.agents.get(agent).unwrap_or(&self.shared)
    }

    /// An agent's skills, by name.
    fn of_agent(&self, agent: &AgentId) -> Vec<Arc<Skill>> {
        let mut skills: Vec<_> = self.numbered(self.view(agent).skills.numbers()).collect();
        skills.sort_by(|a, b| a.name.cmp(&b.name));
        skills
    }

    fn numbered(&self, numbers: impl Iterator<Item = usize>) -> impl Iterator<Item = Arc<Skill>> {
        numbers.filter_map(|number| self.skills.get(number).cloned())
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

/// Everyone's wishes, but for those that an agent's own stand against, and then its own.
fn in_force(shared: &[Wish], own: &[Wish]) -> Arc<[Wish]> {
    let excludes = |wish: &Wish| Facet::of_wish(&wish.text).filter(|facet| facet.is_exclusive());
    let taken: Vec<Facet> = own.iter().filter_map(excludes).collect();
    let stands = |wish: &&Wish| {
        !own.contains(wish) && excludes(wish).is_none_or(|facet| !taken.contains(&facet))
    };
    let shared = shared.iter().filter(stands);
    shared.chain(own).cloned().collect()
}

fn version(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
}

#[cfg(test)]
mod tests;
