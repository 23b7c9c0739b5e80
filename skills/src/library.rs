//! The library: the lessons of every agent, readable at any moment, even while files are edited.
//!
//! Readers take a snapshot and never wait. [`Library::rescan`] checks the files and replaces the snapshot when something
//! changed. Readable lessons that no agent will ever get are reported.

mod lessons;
mod snapshot;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use metaclaw_chat::{AgentId, SenderId, Speaker, Utterance};

pub use self::lessons::{Lessons, OfWeights, SkillRef};
use self::snapshot::{AgentView, Snapshot, of_unknown_agents, over_budget};
use crate::{
    config::{Refresh, SkillsConfig, WishesConfig},
    file::{JournalError, lock},
    holder::Holder,
    host::{HeldBack, HostStore, IndexedReading},
    render,
    scan::{FileCache, Scan, SkillFault, SkillWarning, scan},
    share::ShareReport,
    skill::{Skill, SkillName},
    wishes::{self, Wish, WishError},
};

/// Skills and wishes of every agent. Clones share one library.
#[derive(Debug, Clone)]
pub struct Library(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    dir: PathBuf,
    skills: SkillsConfig,
    wishes: WishesConfig,
    files: Mutex<ScannedFiles>,
    current: ArcSwap<Snapshot>,
    /// Agents that have had a turn, or `None` if nobody reports them.
    met: Mutex<Option<BTreeSet<AgentId>>>,
    /// For each adapter, the ids of wishes that its weights have learned.
    untold: Mutex<BTreeMap<String, BTreeSet<String>>>,
    pub(crate) share: ArcSwapOption<ShareReport>,
    pub(crate) hosts: ArcSwap<BTreeMap<AgentId, Arc<IndexedReading>>>,
}

#[derive(Debug, Default)]
struct ScannedFiles {
    cache: FileCache,
    scan: Scan,
    warnings: Vec<SkillWarning>,
}

// === impl Library ===

impl Library {
    /// Reads the library in `dir`. Returns warnings about unusable files. Everything else is loaded.
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
            current: ArcSwap::from_pointee(Snapshot::new(&Scan::default())),
            met: Mutex::default(),
            untold: Mutex::default(),
            share: ArcSwapOption::empty(),
            hosts: ArcSwap::default(),
        }));
        let warnings = library.rescan();
        (library, warnings)
    }

    /// Scans the folder again. Returns warnings that are new since the last scan.
    ///
    /// It accesses the file system (a stat per file), so call it where blocking is allowed.
    pub fn rescan(&self) -> Vec<SkillWarning> {
        let inner = &*self.0;
        let mut files = inner.lock();
        let mut warnings = inner.look(&mut files);
        warnings.extend(inner.look_at_hosts());
        let budget = inner.skills.budget_tokens;
        warnings.extend(over_budget(&files.scan, budget));
        // The lock on the known agents is held only for this, because chats wait for it.
        let unknown = of_unknown_agents(&inner.dir, &files.scan, inner.met().as_ref());
        warnings.extend(unknown);
        let new = warnings
            .iter()
            .filter(|warning| !files.warnings.contains(warning));
        let new = new.cloned().collect();
        files.warnings = warnings;
        new
    }

    /// Records agents that exist. From now on, a folder of skills for an unknown agent leads to a warning.
    pub fn meet(&self, agents: impl IntoIterator<Item = AgentId>) {
        let mut met = self.0.met();
        met.get_or_insert_default().extend(agents);
    }

    /// Returns when a session's skills are chosen again.
    pub fn refresh(&self) -> Refresh {
        self.0.skills.refresh
    }

    /// Returns the lessons for a request of `agent` with the text `query`. It reads only memory.
    pub fn lessons(&self, agent: &AgentId, query: &str) -> Lessons {
        self.lessons_for(agent, query, None)
    }

    /// Returns these lessons. If `adapter` may answer, they also contain the variant for that adapter.
    pub fn lessons_for(&self, agent: &AgentId, query: &str, adapter: Option<&str>) -> Lessons {
        self.lessons_beside(&HeldBack::default(), agent, query, adapter)
    }

    /// Returns these lessons without those that the agent's host has itself ([`Self::held_back`]).
    pub fn lessons_beside(
        &self,
        held_back: &HeldBack,
        agent: &AgentId,
        query: &str,
        adapter: Option<&str>,
    ) -> Lessons {
        self.0.has_met(agent);
        let snapshot = self.0.current.load();
        let view = snapshot.view(agent);
        let skills = if self.0.skills.enabled {
            self.0.retrieve(&snapshot, view, query, held_back)
        } else {
            Vec::new()
        };
        let mut wishes = view.wishes.to_vec();
        wishes.retain(|wish| held_back.line_for(wish).is_none());
        let lessons = Lessons::new(&skills, &wishes, &self.0.wishes);
        let sender_lines = self.0.sender_lines(view);
        let of_weights = adapter.and_then(|adapter| {
            let untold = self.untold(adapter);
            let mut told = wishes.clone();
            told.retain(|wish| !untold.contains(&wish.id()));
            let lessons = Lessons {
                sender_lines: Arc::clone(&sender_lines),
                ..Lessons::new(&skills, &told, &self.0.wishes)
            };
            let adapter = adapter.to_owned();
            let of_weights = OfWeights { adapter, lessons };
            (told.len() < wishes.len()).then(|| Box::new(of_weights))
        });
        Lessons {
            sender_lines,
            of_weights,
            ..lessons
        }
    }

    /// Records that an adapter's weights have learned the wishes with these ids ([`Wish::id`]). Their lines are left
    /// out of its prompts.
    pub fn set_untold(&self, adapter: &str, wish_ids: impl IntoIterator<Item = String>) {
        let wish_ids: BTreeSet<String> = wish_ids.into_iter().collect();
        let mut untold = self.0.all_untold();
        if wish_ids.is_empty() {
            untold.remove(adapter);
        } else {
            untold.insert(adapter.to_owned(), wish_ids);
        }
    }

    /// Returns the ids of the wishes that an adapter's weights have learned.
    pub fn untold(&self, adapter: &str) -> BTreeSet<String> {
        let untold = self.0.all_untold();
        untold.get(adapter).cloned().unwrap_or_default()
    }

    /// Returns all skills of an agent, its own and the shared ones, by name.
    pub fn skills(&self, agent: &AgentId) -> Vec<Arc<Skill>> {
        self.0.current.load().of_agent(agent)
    }

    /// Returns one skill of an agent.
    pub fn skill(&self, agent: &AgentId, name: &SkillName) -> Option<Arc<Skill>> {
        let mut skills = self.skills(agent).into_iter();
        skills.find(|skill| skill.name == *name)
    }

    /// Returns the agents that have their own folder.
    pub fn agents(&self) -> Vec<AgentId> {
        self.0.current.load().agents.keys().cloned().collect()
    }

    /// Returns the wishes in force for an agent: first the shared wishes, then the agent's own. Each of
    /// the two groups is in the order of time.
    pub fn wishes(&self, agent: &AgentId) -> Vec<Wish> {
        self.0.current.load().view(agent).wishes.to_vec()
    }

    /// Returns the wishes of one file, the newest last: those of an agent's owner, or of another person about this
    /// agent. For the owner of `_shared`, these are the shared ones.
    pub fn own_wishes<'a>(&self, holder: impl Into<Holder<'a>>) -> Vec<Wish> {
        let Holder { agent, sender } = holder.into();
        let snapshot = self.0.current.load();
        match sender {
            Some(sender) => {
                let wishes = snapshot.view(agent).people.get(sender);
                wishes.map(|wish| wish.to_vec()).unwrap_or_default()
            }
            None if agent.is_shared() => snapshot.shared.wishes.to_vec(),
            None => snapshot.view(agent).own_wishes.to_vec(),
        }
    }

    /// Returns the people beside the owner who have wishes about an agent, by id.
    pub fn people(&self, agent: &AgentId) -> BTreeSet<SenderId> {
        let snapshot = self.0.current.load();
        snapshot.view(agent).people.keys().cloned().collect()
    }

    /// Returns who holds the wishes that a message expresses, or `None` if nobody does: its sender is not known, or it
    /// has somebody else's words. With `wishes.owners`, a sender who is not among them is another person.
    pub fn holder<'a>(&self, agent: &'a AgentId, said: &'a Utterance<'_>) -> Option<Holder<'a>> {
        let owners = &self.0.wishes.owners;
        let is_owner = |sender: &SenderId| owners.iter().any(|owner| owner == sender.as_str());
        let other = |sender| Holder {
            agent,
            sender: Some(sender),
        };
        match (said.speaker, &said.sender) {
            (Speaker::Owner | Speaker::Group, Some(sender)) if is_owner(sender) => {
                Some(agent.into())
            }
            (Speaker::Owner, Some(sender)) if !owners.is_empty() => Some(other(sender)),
            (Speaker::Owner, _) => Some(agent.into()),
            (Speaker::Group, Some(sender)) => Some(other(sender)),
            (Speaker::Group, None) | (Speaker::Forwarded | Speaker::Client, _) => None,
        }
    }

    /// Adds a wish to the agent's WISHES.md as the newest, in force at once. Returns whether the file changed. It
    /// accesses the file system.
    ///
    /// # Errors
    ///
    /// Returns [`WishError`] if it is empty, too long, or the file cannot be written.
    ///
    /// # Examples
    /// ```
    /// use metaclaw_chat::{AgentId, SenderId, Speaker, Utterance};
    /// use metaclaw_skills::{Library, SkillsConfig, WishesConfig};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let (library, warnings) = Library::open(folder.path(), SkillsConfig::default(), WishesConfig::default());
    /// assert!(warnings.is_empty());
    /// let agent = AgentId::default_agent();
    /// assert!(library.add_wish(&agent, "Answer in one sentence.")?);
    /// assert_eq!(library.wishes(&agent)[0].text, "Answer in one sentence.");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_wish<'a>(
        &self,
        holder: impl Into<Holder<'a>>,
        wish: &str,
    ) -> Result<bool, WishError> {
        self.edit_wishes(holder.into(), |path| wishes::add(path, wish))
    }

    /// Removes a wish from the agent's WISHES.md. Returns whether it was there. It accesses the file system.
    ///
    /// # Errors
    ///
    /// Returns [`WishError::File`] if the file cannot be read or written.
    pub fn remove_wish<'a>(
        &self,
        holder: impl Into<Holder<'a>>,
        wish: &str,
    ) -> Result<bool, WishError> {
        self.edit_wishes(holder.into(), |path| wishes::remove(path, wish))
    }

    /// Returns the file with the wishes of an agent's owner, or of another person about this agent.
    pub fn wishes_file<'a>(&self, holder: impl Into<Holder<'a>>) -> PathBuf {
        self.0.dir.join(holder.into().file())
    }

    /// Returns the result of the last look at a share by this process. `None` if it shares nothing.
    pub fn share_report(&self) -> Option<Arc<ShareReport>> {
        self.0.share.load_full()
    }

    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// Returns how long a message may wait to be read for wishes.
    pub fn wait(&self) -> Duration {
        self.0.wishes.wait.0
    }

    pub(crate) fn settings(&self) -> (&SkillsConfig, &WishesConfig) {
        (&self.0.skills, &self.0.wishes)
    }

    /// Makes the next scan read a file again, because two edits within one tick of the file system's clock may have the
    /// same length.
    pub(crate) fn forget_file(&self, path: &Path) {
        self.0.lock().cache.forget(path);
    }

    /// Locks the lessons against other writers, and reads the present files.
    pub(crate) fn lock_lessons(&self) -> Result<File, JournalError> {
        let lock = lock(self.dir())?;
        self.refresh_view();
        Ok(lock)
    }

    /// Reads changed files. The next [`Self::rescan`] returns warnings about them.
    pub(crate) fn refresh_view(&self) {
        let inner = &*self.0;
        inner.look(&mut inner.lock());
    }

    pub(crate) fn set_hosts(&self, store: HostStore) {
        self.0.set_hosts(store);
    }

    fn edit_wishes(
        &self,
        holder: Holder<'_>,
        edit: impl FnOnce(&Path) -> Result<bool, WishError>,
    ) -> Result<bool, WishError> {
        let path = self.wishes_file(holder);
        let mut files = self.0.lock();
        let changed = edit(&path)?;
        // Two edits within one tick of the file system's clock may have the same length.
        files.cache.forget(&path);
        self.0.look(&mut files);
        Ok(changed)
    }
}

// === impl Inner ===

impl Inner {
    /// If another thread panicked, these files are still usable, because each scan is built from scratch.
    fn lock(&self) -> MutexGuard<'_, ScannedFiles> {
        metaclaw_chat::lock(&self.files)
    }

    fn look(&self, files: &mut ScannedFiles) -> Vec<SkillWarning> {
        match scan(&self.dir, &mut files.cache) {
            Ok(scan) if scan == files.scan => scan.warnings,
            Ok(scan) => {
                self.current.store(Arc::new(Snapshot::new(&scan)));
                let warnings = scan.warnings.clone();
                files.scan = scan;
                warnings
            }
            // If a mount is unavailable for a moment, the lessons stay.
            Err(error) => vec![SkillWarning {
                path: self.dir.clone(),
                fault: SkillFault::Unreadable {
                    reason: error.to_string(),
                },
            }],
        }
    }

    fn look_at_hosts(&self) -> Option<SkillWarning> {
        match HostStore::read(&self.dir) {
            Ok(store) => {
                self.set_hosts(store);
                None
            }
            Err(JournalError { path, source }) => {
                let reason = format!("{source}; it is written anew");
                let fault = SkillFault::Unreadable { reason };
                Some(SkillWarning { path, fault })
            }
        }
    }

    fn set_hosts(&self, HostStore(readings): HostStore) {
        let before = self.hosts.load();
        let known = readings.into_iter().map(|(agent, reading)| {
            let same = before.get(&agent).filter(|b| b.reading == reading);
            let known = same.map_or_else(|| Arc::new(IndexedReading::new(reading)), Arc::clone);
            (agent, known)
        });
        self.hosts.store(Arc::new(known.collect()));
    }

    /// If another thread panicked, it is still usable, because each change is one call.
    fn all_untold(&self) -> MutexGuard<'_, BTreeMap<String, BTreeSet<String>>> {
        metaclaw_chat::lock(&self.untold)
    }

    fn met(&self) -> MutexGuard<'_, Option<BTreeSet<AgentId>>> {
        metaclaw_chat::lock(&self.met)
    }

    fn has_met(&self, agent: &AgentId) {
        if let Some(met) = &mut *self.met()
            && !met.contains(agent)
        {
            met.insert(agent.clone());
        }
    }

    fn sender_lines(&self, view: &AgentView) -> Arc<BTreeMap<SenderId, String>> {
        if !self.wishes.enabled {
            return Arc::default();
        }
        let line = |(sender, wishes): (&SenderId, &Arc<[Wish]>)| {
            let wishes = render::newest_within_budget(wishes, self.wishes.max_tokens);
            Some((sender.clone(), render::sender_line(wishes)?))
        };
        Arc::new(view.people.iter().filter_map(line).collect())
    }

    fn retrieve(
        &self,
        snapshot: &Snapshot,
        view: &AgentView,
        query: &str,
        held_back: &HeldBack,
    ) -> Vec<Arc<Skill>> {
        let ranked = snapshot.index.search(query, &view.skills).into_iter();
        let ranked = snapshot.numbered(ranked);
        let ranked = ranked.filter(|skill| !held_back.skills.contains(&skill.name));
        let mut n_left = self.skills.task_specific_top_k.unwrap_or(usize::MAX);
        let ranked = ranked.filter(|skill| {
            let is_general = skill.is_general();
            let is_kept = is_general || n_left > 0;
            n_left -= usize::from(is_kept && !is_general);
            is_kept
        });
        render::within_budget(ranked, self.skills.budget_tokens, self.skills.top_k)
    }
}
