//! One look at a share: this home's skills are collected and copied into it, and the others' are read. Each skill of another
//! home becomes a proposal; those of another person wait for the owner's review.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, TryLockError},
    io, mem,
    path::{Path, PathBuf},
};

use metaclaw_chat::{AgentId, TurnId, if_there, unix_ms};

use super::{
    SharePeer, ShareReport,
    index::{
        CurrentSkill, INDEX_FILE, MAX_INDEX, MAX_SKILLS, MAX_TEXT, MAX_TURNS, Published, ReadIndex,
        ShareFile, ShareIndex, ShareKey, ShareState, ShareStore, SharedSkill, digest, import_of,
        label, path_of,
    },
};
use crate::{
    bank,
    config::ShareConfig,
    evolve::{
        EvolveError, Proposal, ProposalState, ProposalStore, Reason, SharedOrigin, SkillDraft,
        Source, WrittenSkill,
    },
    file::{MAX_FILE, SHARED, SKILL_FILE, WriterId, failed, read_text},
    guard::{Suspicion, suspicions},
    library::Library,
    skill::{Skill, SkillName},
};

const HOSTNAME: &str = "/proc/sys/kernel/hostname";
const MAX_HOSTNAME: u64 = 1024;

#[derive(Debug, Clone, Default)]
pub(super) struct PublishOptions {
    pub(super) person: String,
    /// Without any, all agents.
    pub(super) agents: Vec<AgentId>,
    pub(super) key: Option<ShareKey>,
}

#[derive(Debug)]
pub(super) struct Publication {
    pub(super) writer: WriterId,
    pub(super) index: String,
    pub(super) skills: BTreeMap<ShareFile, String>,
    pub(super) withheld: Vec<String>,
}

struct OwnSkill {
    agent: AgentId,
    skill: Skill,
    text: String,
    modified_ms: u64,
}

// === impl Library ===

impl Library {
    /// Collects what is shared now, and notes it in `share.json`.
    pub(super) fn publication(
        &self,
        options: &PublishOptions,
        now_ms: u64,
    ) -> Result<Publication, EvolveError> {
        let _lock = self.lock_lessons()?;
        let dir = self.dir();
        let before = ShareState::read(dir)?;
        let proposals = ProposalStore::read(dir)?.proposals;
        let machine = machine();
        let mut state = before.clone();
        let writer = state
            .writer
            .get_or_insert_with(|| WriterId::of_machine(&machine))
            .clone();
        let mut index = ShareIndex {
            writer: writer.clone(),
            person: label(&options.person),
            machine: label(&machine),
            serial: 0,
            skills: Vec::new(),
        };
        let (mut skills, mut withheld) = (BTreeMap::new(), Vec::new());
        let wanted = |agent: &AgentId| options.agents.is_empty() || options.agents.contains(agent);
        state.published.clear();
        for own in self.own_skills(&proposals)? {
            if !wanted(&own.agent) {
                continue;
            }
            let path = path_of(&own.agent, &own.skill.name);
            if let Some(why) = own.reason_to_withhold(index.skills.len()) {
                withheld.push(format!("{path}: {why}"));
                continue;
            }
            let entry = own.entry(before.published.get(&path), &proposals, now_ms);
            let published = Published {
                digest: entry.digest.clone(),
                at_ms: entry.at_ms,
            };
            if state.published.insert(path, published).is_none() {
                skills.insert(entry.file(), own.text);
                index.skills.push(entry);
            }
        }
        if before.serial == 0 || state.published != before.published {
            state.serial = now_ms.max(before.serial.saturating_add(1));
        }
        index.serial = state.serial;
        if state != before {
            state.write(dir)?;
        }
        let written = index.written(options.key.as_ref());
        Ok(Publication {
            index: written.map_err(|error| failed(dir.join(INDEX_FILE))(error.into()))?,
            writer,
            skills,
            withheld,
        })
    }

    /// Returns the skills that were written in this home, of all agents. Skills of the bank and of other homes are not
    /// among them, unless somebody has changed them here.
    fn own_skills(&self, proposals: &[Proposal]) -> Result<Vec<OwnSkill>, EvolveError> {
        let shared: Option<AgentId> = SHARED.parse().ok();
        let mut folders: Vec<(AgentId, PathBuf)> = Vec::new();
        for agent in self.agents().into_iter().chain(shared.clone()) {
            let folder = self.dir().join(agent.as_str());
            folders.push((agent, folder));
        }
        // The flat layout: skills of all agents beside the agents' folders.
        folders.extend(shared.map(|agent| (agent, self.dir().to_owned())));
        let mut found = Vec::new();
        for (agent, folder) in folders {
            for path in skill_files(&folder)? {
                // The library's scan has already warned about a file that cannot be used.
                let text = read_text(&path, MAX_FILE).ok();
                let parsed = text.and_then(|text| Some((Skill::parse(&text).ok()?, text)));
                let Some((skill, text)) = parsed else {
                    continue;
                };
                let served = self.skill(&agent, &skill.name);
                let is_served = served.is_some_and(|served| served.version == skill.version);
                let is_banks =
                    agent.is_shared() && bank::is_unchanged(self.dir(), skill.name.as_str(), &text);
                let import = import_of(proposals, &agent, &skill.name, &text);
                if is_served && !is_banks && import.is_none() {
                    found.push(OwnSkill {
                        modified_ms: modified_ms(&path),
                        agent: agent.clone(),
                        skill,
                        text,
                    });
                }
            }
        }
        Ok(found)
    }

    /// Takes the skills of a home whose texts are in `texts`, and takes back what it has withdrawn.
    pub(super) fn receive(
        &self,
        peer: &ReadIndex,
        texts: &BTreeMap<ShareFile, String>,
        now_ms: u64,
    ) -> Result<Received, EvolveError> {
        let _lock = self.lock_lessons()?;
        let mut receiver = Receiver {
            library: self,
            peer,
            state: ShareState::read(self.dir())?,
            store: ProposalStore::read(self.dir())?,
            received: Received::default(),
            now_ms,
        };
        if let Some(why) = receiver.reason_to_ignore() {
            receiver.refuse(ShareFile::Index, String::new(), why);
            return Ok(receiver.received);
        }
        let result = receiver.run(texts);
        // Skills that came into force before an error keep their origin.
        receiver.write(result.is_ok())?;
        result.map(|()| receiver.received)
    }
}

// === impl OwnSkill ===

impl OwnSkill {
    fn reason_to_withhold(&self, n_before: usize) -> Option<String> {
        if self.text.len() as u64 > MAX_TEXT {
            let n = self.text.len();
            return Some(format!("it has {n} bytes, at most {MAX_TEXT} are shared"));
        }
        if n_before >= MAX_SKILLS {
            return Some(format!(
                "{MAX_SKILLS} skills are shared already, which is the limit"
            ));
        }
        let mut lines = self.text.lines();
        let secret = lines.find(|line| suspicions(line).contains(&Suspicion::Secret));
        secret.map(|_| format!("{}", Suspicion::Secret))
    }

    fn entry(
        &self,
        before: Option<&Published>,
        proposals: &[Proposal],
        now_ms: u64,
    ) -> SharedSkill {
        let digest = digest(&self.text);
        let at_ms = match before {
            Some(before) if before.digest == digest => before.at_ms,
            Some(before) => self
                .modified_ms
                .min(now_ms)
                .max(before.at_ms.saturating_add(1)),
            None => self.changed_ms(proposals, now_ms),
        };
        SharedSkill {
            agent: self.agent.clone(),
            name: self.skill.name.clone(),
            turns: self.turns(proposals),
            digest,
            at_ms,
        }
    }

    /// Returns when it was written. It is newer than the version of another home that it was made from.
    fn changed_ms(&self, proposals: &[Proposal], now_ms: u64) -> u64 {
        let of_it = proposals.iter().filter(|proposal| self.is_of(proposal));
        let imports = of_it.filter_map(|proposal| proposal.shared.as_ref());
        let after = imports
            .map(|import| import.at_ms.saturating_add(1))
            .max()
            .unwrap_or_default();
        self.modified_ms.min(now_ms).max(after)
    }

    fn turns(&self, proposals: &[Proposal]) -> Vec<TurnId> {
        let mut proposals = proposals.iter().rev();
        let from = proposals.find(|proposal| self.is_of(proposal) && proposal.text == self.text);
        let turns = from.map(|f| f.source.turns.clone()).unwrap_or_default();
        turns[turns.len().saturating_sub(MAX_TURNS)..].to_vec()
    }

    fn is_of(&self, proposal: &Proposal) -> bool {
        proposal.is_accepted_of(&self.agent, &self.skill.name)
    }
}

fn skill_files(folder: &Path) -> Result<Vec<PathBuf>, EvolveError> {
    let entries = if_there(fs::read_dir(folder)).map_err(failed(folder))?;
    let mut files = Vec::new();
    for entry in entries.into_iter().flatten() {
        let path = entry.map_err(failed(folder))?.path().join(SKILL_FILE);
        if path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn modified_ms(path: &Path) -> u64 {
    let modified = fs::metadata(path).and_then(|file| file.modified());
    modified.map_or(0, unix_ms)
}

fn machine() -> String {
    let name = read_text(Path::new(HOSTNAME), MAX_HOSTNAME).unwrap_or_default();
    name.trim().to_owned()
}

/// The largest number of waiting skills of one home. Others are proposed when these are decided on.
const MAX_WAITING: usize = 30;

#[derive(Debug, Default)]
pub(super) struct Received {
    pub(super) waiting: Vec<u64>,
    pub(super) in_force: Vec<SkillName>,
    pub(super) withdrawn: Vec<SkillName>,
    pub(super) refused: Vec<Refused>,
}

/// A skill that is not used, or the whole list of a home.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) file: ShareFile,
    pub(super) digest: String,
    pub(super) why: String,
}

struct Receiver<'a> {
    library: &'a Library,
    peer: &'a ReadIndex,
    state: ShareState,
    store: ProposalStore,
    received: Received,
    now_ms: u64,
}

pub(super) fn unknown<'i>(proposals: &[Proposal], peer: &'i ReadIndex) -> Vec<&'i SharedSkill> {
    let skills = peer.index.skills.iter();
    skills.filter(|s| !is_known(proposals, peer, s)).collect()
}

fn is_known(proposals: &[Proposal], peer: &ReadIndex, skill: &SharedSkill) -> bool {
    let mut newest = proposals.iter().rev().filter_map(|proposal| {
        let shared = proposal.shared.as_ref()?;
        let is_it = shared.writer == peer.index.writer
            && proposal.source.agent == skill.agent
            && shared.name == skill.name;
        is_it.then_some(shared)
    });
    newest.next().is_some_and(|n| n.digest == skill.digest)
}

// === impl Receiver ===

impl Receiver<'_> {
    /// Returns why nothing of this home is used: a list that is older than one before, or that lost its signature, may
    /// be somebody else's work.
    fn reason_to_ignore(&self) -> Option<String> {
        let index = &self.peer.index;
        let seen = *self.state.seen.get(&index.writer)?;
        if !self.peer.is_own {
            return Some(
                "it was signed with skills.share.key before, and is not now: nothing of it is used"
                    .to_owned(),
            );
        }
        (index.serial < seen).then(|| {
            format!(
                "it is an older list, number {} after {seen}: nothing of it is used",
                index.serial
            )
        })
    }

    fn run(&mut self, texts: &BTreeMap<ShareFile, String>) -> Result<(), EvolveError> {
        let peer = self.peer;
        for skill in &peer.index.skills {
            if let Some(text) = texts.get(&skill.file())
                && !is_known(&self.store.proposals, peer, skill)
            {
                self.take(skill, text)?;
            }
        }
        self.withdraw()
    }

    fn refuse(&mut self, file: ShareFile, digest: String, why: String) {
        self.received.refused.push(Refused { file, digest, why });
    }

    /// Proposes one skill, or puts it in force if the same person wrote it.
    fn take(&mut self, entry: &SharedSkill, text: &str) -> Result<(), EvolveError> {
        let (name, text) = match self.checked(entry, text) {
            Ok(Some(draft)) => (draft.skill.name, draft.text),
            Ok(None) => return Ok(()),
            Err(why) => {
                self.refuse(entry.file(), entry.digest.clone(), why);
                return Ok(());
            }
        };
        let mut proposal = self.proposal(entry, name, text);
        let before = self.library.read_skill(&proposal)?;
        if before.as_ref() == Some(&proposal.text) {
            return Ok(());
        }
        let current = CurrentSkill::find(
            self.library.dir(),
            &self.state,
            &self.store.proposals,
            &entry.agent,
            &proposal.name,
            before.as_deref(),
        );
        let is_newer = current.gives_way_to(entry.at_ms, &entry.digest);
        let replaces_import = matches!(current, CurrentSkill::Own(_));
        if self.peer.is_own && !is_newer && current != CurrentSkill::Other {
            return Ok(());
        }
        proposal.why = self.reasons(&proposal, is_newer, before.is_some());
        // A newer version of this home has a new number, so that the owner never accepts a text that changed after the
        // review.
        for before in &mut self.store.proposals {
            if before.is_waiting()
                && before.is_from(&self.peer.index.writer)
                && before.is_of(&entry.agent, &proposal.name)
            {
                before.forget();
            }
        }
        if proposal.why.is_empty() {
            self.library.put_in_force_or_ask(&mut proposal)?;
        }
        if proposal.is_waiting() {
            if self.n_waiting() >= MAX_WAITING {
                let why = format!("{MAX_WAITING} skills of this home wait already");
                // It is no property of the file, so it is tried again.
                self.refuse(entry.file(), String::new(), why);
                return Ok(());
            }
            self.received.waiting.push(proposal.n);
        } else {
            if replaces_import {
                self.merge_former(&mut proposal);
            }
            self.received.in_force.push(proposal.name.clone());
        }
        self.store.proposals.push(proposal);
        Ok(())
    }

    /// Checks a text. What another person wrote is written out again, so that the review shows all of it. Returns `None`
    /// if it says nothing new, or what the owner did not want.
    fn checked(&self, entry: &SharedSkill, text: &str) -> Result<Option<SkillDraft>, String> {
        let skill = Skill::parse(text).map_err(|error| error.to_string())?;
        if skill.name != entry.name {
            return Err(format!("its name is {:?} in the file", skill.name));
        }
        if self.peer.is_own {
            let text = text.to_owned();
            return Ok(Some(SkillDraft { skill, text }));
        }
        let written = WrittenSkill::from(skill);
        let draft = SkillDraft::new(&written).map_err(|refusal| refusal.to_string())?;
        let served = self.library.skill(&entry.agent, &entry.name);
        let is_in_force = served.is_some_and(|served| served.version == draft.skill.version);
        let is_unwanted = |before: &Proposal| {
            before.state.is_unwanted()
                && before.source.agent == entry.agent
                && draft.is_not_unwanted(before.n, &before.text).is_err()
        };
        let is_known = is_in_force || self.store.proposals.iter().any(is_unwanted);
        Ok((!is_known).then_some(draft))
    }

    fn proposal(&self, entry: &SharedSkill, name: SkillName, text: String) -> Proposal {
        let index = &self.peer.index;
        Proposal {
            n: self.store.next_n(),
            source: Source {
                agent: entry.agent.clone(),
                sessions: Vec::new(),
                turns: Vec::new(),
                at_ms: self.now_ms,
            },
            name,
            text,
            why: Vec::new(),
            former: None,
            since_ms: None,
            shared: Some(SharedOrigin {
                writer: index.writer.clone(),
                person: index.person.clone(),
                machine: index.machine.clone(),
                is_own: self.peer.is_own,
                name: entry.name.clone(),
                digest: entry.digest.clone(),
                at_ms: entry.at_ms,
                turns: entry.turns.clone(),
                is_withdrawn: false,
            }),
            state: ProposalState::Waiting,
        }
    }

    /// Returns why a skill waits. Empty if it is in force at once.
    fn reasons(&self, proposal: &Proposal, is_newer: bool, is_there: bool) -> Vec<Reason> {
        let mut why = Vec::new();
        if !self.peer.is_own {
            let by = proposal.shared.as_ref().map(ToString::to_string);
            why.push(Reason::Shared {
                by: by.unwrap_or_default(),
            });
        }
        let agent = &proposal.source.agent;
        let serves = self.library.skill(agent, &proposal.name).is_some();
        if !is_newer || !self.peer.is_own && serves {
            why.push(Reason::Replaces);
        }
        let was_removed = |before: &Proposal| {
            let is_gone = before.state == ProposalState::Accepted && !is_there;
            before.shared.is_some()
                && before.is_of(agent, &proposal.name)
                && (before.state.is_unwanted() || is_gone)
        };
        if self.store.proposals.iter().any(was_removed) {
            why.push(Reason::Removed);
        }
        if !why.is_empty()
            && let Ok(skill) = Skill::parse(&proposal.text)
        {
            let text = proposal.text.clone();
            why.extend(SkillDraft { skill, text }.suspicions());
        }
        why
    }

    fn n_waiting(&self) -> usize {
        let is_its = |proposal: &&Proposal| {
            proposal.is_waiting() && proposal.is_from(&self.peer.index.writer)
        };
        self.store.proposals.iter().filter(is_its).count()
    }

    /// Forgets the version that this one replaced, so that `skills revert` and a withdrawal restore what the owner had
    /// before both.
    fn merge_former(&mut self, proposal: &mut Proposal) {
        let is_replaced = |before: &&mut Proposal| {
            before.shared.is_some()
                && before.is_accepted_of(&proposal.source.agent, &proposal.name)
                && proposal.former.as_ref() == Some(&before.text)
        };
        let mut versions = self.store.proposals.iter_mut().rev();
        if let Some(before) = versions.find(is_replaced) {
            proposal.former = before.former.take();
            before.forget();
        }
    }

    /// Takes back what the home does not share any more. What another person withdraws stays in force if the owner has
    /// accepted it.
    fn withdraw(&mut self) -> Result<(), EvolveError> {
        let skills = &self.peer.index.skills;
        let is_listed = |proposal: &Proposal| {
            let shared = proposal.shared.as_ref();
            let mut skills = skills.iter();
            skills.any(|skill| {
                skill.agent == proposal.source.agent
                    && shared.is_some_and(|shared| shared.name == skill.name)
            })
        };
        let mut proposals = mem::take(&mut self.store.proposals);
        let taken_back = proposals.iter_mut().rev().filter(|proposal| {
            proposal.is_from(&self.peer.index.writer)
                && proposal.state != ProposalState::Forgotten
                && !is_listed(proposal)
        });
        let mut result = Ok(());
        let mut withdrawn = Vec::new();
        for proposal in taken_back {
            let name = proposal.name.clone();
            match self.withdrawn(proposal) {
                Ok(true) => withdrawn.push(name),
                Ok(false) => {}
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        self.store.proposals = proposals;
        self.received.withdrawn = withdrawn;
        result
    }

    /// Returns whether anything changed.
    fn withdrawn(&self, proposal: &mut Proposal) -> Result<bool, EvolveError> {
        match proposal.state {
            ProposalState::Waiting => {}
            ProposalState::Accepted => {
                if let Some(others) = proposal.shared.as_mut().filter(|shared| !shared.is_own) {
                    return Ok(!mem::replace(&mut others.is_withdrawn, true));
                }
                if self.library.is_in_place(proposal)? {
                    if self.is_superseded(proposal) {
                        proposal.former = None;
                    }
                    self.library.put_former(proposal)?;
                }
            }
            // The text stays, so that the skill is not proposed again.
            ProposalState::Rejected
            | ProposalState::Reverted
            | ProposalState::Declined
            | ProposalState::AgedOut
            | ProposalState::Forgotten => {
                return Ok(false);
            }
        }
        proposal.forget();
        Ok(true)
    }

    /// Returns whether a proposal replaced an older text of the same person, who has removed the skill now. It does not
    /// come back. A skill of the bank does, and so does what the owner replaced after a review.
    fn is_superseded(&self, proposal: &Proposal) -> bool {
        let dir = self.library.dir();
        let name = proposal.name.as_str();
        let is_banks = |former: &String| bank::is_unchanged(dir, name, former);
        let is_banks =
            proposal.source.agent.is_shared() && proposal.former.as_ref().is_some_and(is_banks);
        proposal.since_ms.is_none() && !is_banks
    }

    /// Writes the files that changed. `is_whole` says whether the whole list was taken.
    fn write(&mut self, is_whole: bool) -> Result<(), EvolveError> {
        let Received {
            waiting,
            in_force,
            withdrawn,
            ..
        } = &self.received;
        if !(is_whole && waiting.is_empty() && in_force.is_empty() && withdrawn.is_empty()) {
            self.store.write(self.library.dir())?;
        }
        let index = &self.peer.index;
        if self.peer.is_own && is_whole {
            let seen = self.state.seen.insert(index.writer.clone(), index.serial);
            if seen != Some(index.serial) {
                self.state.write(self.library.dir())?;
            }
        }
        Ok(())
    }
}

/// A lock file beside the library. A process holds it while it shares skills.
const LOCK: &str = ".share.lock";
const MAX_WRITERS: usize = 100;

/// Shares a library's skills.
#[derive(Debug)]
pub struct ShareSync {
    library: Library,
    store: Box<dyn ShareStore>,
    options: PublishOptions,
    uploaded: BTreeMap<ShareFile, String>,
    /// Files of other homes that are not used, so that they are not read again while they stay the same.
    refused: BTreeMap<RefusedFile, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RefusedFile {
    writer: WriterId,
    file: ShareFile,
    digest: String,
}

// === impl ShareSync ===

impl ShareSync {
    /// Shares the skills of `library` through `store`.
    pub fn new(
        library: Library,
        store: Box<dyn ShareStore>,
        config: &ShareConfig,
        key: Option<ShareKey>,
    ) -> Self {
        let options = PublishOptions {
            person: config.name.clone().unwrap_or_default(),
            agents: config.agents.clone(),
            key,
        };
        Self {
            library,
            store,
            options,
            uploaded: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }

    /// Looks at the share once. Returns `None` if another process of this home does so at the moment. It accesses the
    /// file system, or waits for the network.
    ///
    /// # Errors
    /// Returns [`EvolveError`] if files of this home cannot be used. Problems with the share are in the report.
    pub fn sync(&mut self, now_ms: u64) -> Result<Option<ShareReport>, EvolveError> {
        let Some(_lock) = self.lock()? else {
            return Ok(None);
        };
        let publication = self.library.publication(&self.options, now_ms)?;
        let mut report = ShareReport {
            at_ms: now_ms,
            writer: Some(publication.writer.clone()),
            n_published: publication.skills.len(),
            withheld: publication.withheld.clone(),
            ..ShareReport::default()
        };
        if let Err(error) = self.upload(&publication) {
            let problem = format!("this home's skills could not be copied there: {error}");
            report.problems.push(problem);
        }
        match self.store.writers() {
            Ok(writers) => self.receive(&writers, &mut report)?,
            Err(error) => report
                .problems
                .push(format!("the share cannot be read: {error}")),
        }
        self.library.set_share_report(report.clone());
        Ok(Some(report))
    }

    fn lock(&self) -> Result<Option<File>, EvolveError> {
        let path = self.library.dir().join(LOCK);
        let mut options = File::options();
        let file = fs::create_dir_all(self.library.dir())
            .and_then(|()| options.write(true).create(true).truncate(false).open(&path));
        let locked = file.and_then(|file| match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        });
        Ok(locked.map_err(failed(path))?)
    }

    /// Copies this home's skills: first the texts, then the index, which names their hashes, so that a reader never
    /// takes half of a change. Files that it had shared before are removed at the end.
    fn upload(&mut self, publication: &Publication) -> io::Result<()> {
        let Publication {
            writer,
            index,
            skills,
            ..
        } = publication;
        let store = &self.store;
        let there = store.read(writer, &ShareFile::Index, MAX_INDEX);
        // Whatever is there now, it is replaced: nobody else may write it.
        let there = there.ok().flatten();
        if there.as_ref() == Some(index) && self.uploaded == *skills {
            return Ok(());
        }
        for (file, text) in skills {
            if store.read(writer, file, MAX_TEXT).ok().flatten().as_ref() != Some(text) {
                store.write(writer, file, text)?;
            }
        }
        if there.as_ref() != Some(index) {
            store.write(writer, &ShareFile::Index, index)?;
        }
        let before = there.and_then(|text| ShareIndex::read(&text, writer, None).ok());
        let listed = before.into_iter().flat_map(|read| read.index.skills);
        let listed = listed.map(|skill| skill.file());
        let gone: BTreeSet<ShareFile> = listed.chain(self.uploaded.keys().cloned()).collect();
        for file in gone.iter().filter(|file| !skills.contains_key(file)) {
            store.remove(writer, file)?;
        }
        self.uploaded.clone_from(skills);
        Ok(())
    }

    fn receive(
        &mut self,
        writers: &[WriterId],
        report: &mut ShareReport,
    ) -> Result<(), EvolveError> {
        let own = report.writer.clone();
        let others = writers.iter().filter(|w| Some(*w) != own.as_ref());
        let n_left_out = others.clone().count().saturating_sub(MAX_WRITERS);
        if n_left_out > 0 {
            report.problems.push(format!(
                "{n_left_out} homes are not read: at most {MAX_WRITERS} others are"
            ));
        }
        for writer in others.take(MAX_WRITERS) {
            match self.read_index(writer) {
                Ok(Some(peer)) => self.receive_from(&peer, report)?,
                Ok(None) => {}
                Err(why) => report.problems.push(format!("{writer}/index.json: {why}")),
            }
        }
        let proposals = self.library.proposals()?;
        for peer in &mut report.peers {
            count(peer, &proposals);
        }
        Ok(())
    }

    fn read_index(&self, writer: &WriterId) -> Result<Option<ReadIndex>, String> {
        let text = self.store.read(writer, &ShareFile::Index, MAX_INDEX);
        let Some(text) = text.map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        ShareIndex::read(&text, writer, self.options.key.as_ref()).map(Some)
    }

    fn receive_from(
        &mut self,
        peer: &ReadIndex,
        report: &mut ShareReport,
    ) -> Result<(), EvolveError> {
        let index = &peer.index;
        report.peers.push(peer_of(peer));
        let of = |file: ShareFile, digest: &str| RefusedFile {
            writer: index.writer.clone(),
            file,
            digest: digest.to_owned(),
        };
        let mut texts = BTreeMap::new();
        let mut problems = BTreeMap::new();
        for skill in unknown(&self.library.proposals()?, peer) {
            let file = skill.file();
            let known = of(file.clone(), &skill.digest);
            if let Some(why) = self.refused.get(&known) {
                problems.insert(file, why.clone());
                continue;
            }
            let why = match self.store.read(&index.writer, &file, MAX_TEXT) {
                Ok(Some(text)) if skill.is_of(&text) => {
                    texts.insert(file, text);
                    continue;
                }
                Ok(Some(text)) => format!(
                    "its hash is {}, and the index says {}: it is not complete, or was changed",
                    short(&digest(&text)),
                    short(&skill.digest)
                ),
                Ok(None) => "it is not there yet".to_owned(),
                Err(error) => error.to_string(),
            };
            problems.insert(file, why);
        }
        let received = self.library.receive(peer, &texts, report.at_ms)?;
        for refused in received.refused {
            if !refused.digest.is_empty() {
                let known = of(refused.file.clone(), &refused.digest);
                self.refused.insert(known, refused.why.clone());
            }
            problems.insert(refused.file, refused.why);
        }
        let listed: BTreeSet<RefusedFile> = index
            .skills
            .iter()
            .map(|skill| of(skill.file(), &skill.digest))
            .collect();
        // Files that are gone need not be remembered.
        self.refused
            .retain(|file, _| file.writer != index.writer || listed.contains(file));
        let problems = problems.into_iter();
        let problems = problems.map(|(file, why)| format!("{}/{file}: {why}", index.writer));
        report.problems.extend(problems);
        report.waiting.extend(received.waiting);
        report.in_force.extend(received.in_force);
        report.withdrawn.extend(received.withdrawn);
        Ok(())
    }
}

/// Returns the beginning of a hash. It may be any text.
fn short(digest: &str) -> String {
    let legal = |c: &char| c.is_ascii_alphanumeric();
    digest.chars().filter(legal).take(12).collect()
}

fn peer_of(ReadIndex { index, is_own }: &ReadIndex) -> SharePeer {
    SharePeer {
        writer: index.writer.clone(),
        person: index.person.clone(),
        machine: index.machine.clone(),
        is_own: *is_own,
        n_skills: index.skills.len(),
        n_waiting: 0,
        n_accepted: 0,
    }
}

fn count(peer: &mut SharePeer, proposals: &[Proposal]) {
    let n = |state: ProposalState| {
        let is_its =
            |proposal: &&Proposal| proposal.state == state && proposal.is_from(&peer.writer);
        proposals.iter().filter(is_its).count()
    };
    (peer.n_waiting, peer.n_accepted) = (n(ProposalState::Waiting), n(ProposalState::Accepted));
}
