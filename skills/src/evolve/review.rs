//! Converts the evolver's answer to proposals. Each is checked, and then put in force if that is allowed, or else kept
//! for the owner's review, who accepts, rejects or reverts it.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use metaclaw_chat::{AgentId, Message, SessionId, excerpt, if_there};

use super::{
    draft::{DraftRefusal, SkillDraft},
    history::{self, HISTORY_FILE, HistoryEntry},
    prompt::{self, Failure, WrittenSkill},
    proposal::{Progress, Proposal, ProposalState, ProposalStore, Reason, Source},
};
use crate::{
    file::{JournalError, MAX_FILE, failed, read_text, write_text},
    host::HostSkill,
    library::Library,
    skill::{Skill, SkillName},
};

/// The largest number of waiting proposals. Beyond it, the evolver is not asked, because nobody reviews.
const MAX_WAITING: usize = 30;

/// Why an operation on proposals failed.
#[derive(Debug, thiserror::Error)]
pub enum EvolveError {
    /// A file of the library could not be read or written.
    #[error(transparent)]
    File(#[from] JournalError),
    /// No proposal with this number or name waits.
    #[error("no proposal {0:?} waits: `metaclaw skills review` shows those that do")]
    NotWaiting(String),
    /// A shared proposal was named by its name.
    #[error(
        "{0} came through the shared folder, and its text may have changed since you read it: give the number that `metaclaw skills review` shows"
    )]
    ByNumber(SkillName),
    /// No proposal of this name is in force.
    #[error("{0} is no skill that was learned: `metaclaw skills log` shows those that were")]
    NotLearned(SkillName),
    /// Several agents have one of this name.
    #[error("several agents have a skill {0} that was learned: say which with --agent")]
    WhichAgent(SkillName),
    /// The file differs from what was accepted.
    #[error("{} was changed since: put it right by hand, or remove it", path.display())]
    Edited { path: PathBuf },
    /// The agent's folder has the name at another place, which takes precedence.
    #[error("{} cannot come into force: another folder of the agent has a skill of that name", path.display())]
    Hidden { path: PathBuf },
}

/// One request to the evolver.
#[derive(Debug, Clone)]
pub struct EvolutionRun {
    pub agent: AgentId,
    /// The failed turns.
    pub failures: Vec<Failure>,
    /// The number of the agent's main turns.
    pub n_main: u64,
    /// The time in Unix milliseconds.
    pub at_ms: u64,
    /// Whether new skills are tried before they come into force.
    pub is_tried: bool,
}

/// The result of an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evolved {
    /// Proposals that wait, and those that are in force.
    pub proposals: Vec<Proposal>,
    /// The refused skills, with reasons.
    pub refused: Vec<String>,
}

// === impl Library ===

impl Library {
    /// Returns how far an agent's turns have been used. It accesses the file system.
    ///
    /// # Errors
    /// Returns [`EvolveError::File`] if the file cannot be read.
    pub fn evolution(&self, agent: &AgentId) -> Result<Progress, EvolveError> {
        let mut store = ProposalStore::read(self.dir())?;
        Ok(store.progress.remove(agent).unwrap_or_default())
    }

    /// Returns all proposals of all agents, the oldest first. It accesses the file system.
    ///
    /// # Errors
    /// Returns [`EvolveError::File`] if the file cannot be read.
    pub fn proposals(&self) -> Result<Vec<Proposal>, EvolveError> {
        Ok(ProposalStore::read(self.dir())?.proposals)
    }

    /// Returns whether so many proposals wait that nobody would review more. It accesses the file system.
    ///
    /// # Errors
    /// Returns [`EvolveError::File`] if the file cannot be read.
    pub fn review_is_full(&self) -> Result<bool, EvolveError> {
        let waits = |proposal: &Proposal| proposal.is_waiting() && proposal.shared.is_none();
        let waiting = self.proposals()?.into_iter().filter(waits);
        Ok(waiting.count() >= MAX_WAITING)
    }

    /// Makes the evolver's prompt.
    pub fn evolver_messages(&self, run: &EvolutionRun) -> Vec<Message> {
        let hosts = self.host_skills(&run.agent);
        prompt::evolver_messages(&run.failures, &self.skills(&run.agent), &hosts)
    }

    /// Applies the evolver's answer: valid skills are proposed. They are put in force directly if `skills.review` is
    /// off, they can contain only the owner's words, and no trial comes first. Afterwards the turns count as used, unless the answer cannot be
    /// read. It accesses the file system.
    ///
    /// # Errors
    /// Returns [`EvolveError`]. In that case the turns can be used again.
    pub fn evolve(&self, run: &EvolutionRun, answer: &str) -> Result<Evolved, EvolveError> {
        let evolved = self.change_proposals(|store| {
            let progress = store.progress.entry(run.agent.clone()).or_default();
            if run.n_main < progress.n_main {
                // The log is another one, in which the same ids stand for other turns.
                progress.used.clear();
            }
            progress.n_main = run.n_main;
            match prompt::read(answer) {
                Err(error) => Ok(Evolved {
                    refused: vec![error.to_string()],
                    ..Evolved::default()
                }),
                Ok(written) => {
                    progress
                        .used
                        .extend(run.failures.iter().map(|failure| failure.turn));
                    self.propose_each(store, run, written)
                }
            }
        })?;
        let _lock = self.lock_lessons()?;
        let (proposals, refused) = (&evolved.proposals, &evolved.refused);
        let entry = HistoryEntry::new(&run.agent, run.at_ms, &run.failures, proposals, refused);
        let path = self.dir().join(HISTORY_FILE);
        history::append(&path, &entry).map_err(failed(path))?;
        Ok(evolved)
    }

    fn propose_each(
        &self,
        store: &mut ProposalStore,
        run: &EvolutionRun,
        written: Vec<Result<WrittenSkill, String>>,
    ) -> Result<Evolved, EvolveError> {
        let mut evolved = Evolved::default();
        for written in written {
            let name = written.as_ref().map_or("", |written| &written.name);
            let shown = excerpt(name).into_owned();
            let drafted = written.and_then(|written| {
                let draft = SkillDraft::new(&written);
                let placed = draft.and_then(|draft| self.placed(store, run, draft));
                placed.map_err(|refusal| refusal.to_string())
            });
            match drafted {
                Ok((draft, at)) => evolved.proposals.push(self.propose(store, run, draft, at)?),
                Err(why) => evolved.refused.push(format!("{shown:?}: {why}")),
            }
        }
        Ok(evolved)
    }

    /// Changes the proposals under the lock of the lessons, and writes them if they differ.
    pub(crate) fn change_proposals<T>(
        &self,
        change: impl FnOnce(&mut ProposalStore) -> Result<T, EvolveError>,
    ) -> Result<T, EvolveError> {
        let _lock = self.lock_lessons()?;
        let mut store = ProposalStore::read(self.dir())?;
        let before = store.clone();
        let done = change(&mut store)?;
        if store != before {
            store.write(self.dir())?;
        }
        Ok(done)
    }

    fn host_skills(&self, agent: &AgentId) -> Vec<HostSkill> {
        let host = self.host(agent);
        host.map(|host| host.lessons.skills).unwrap_or_default()
    }

    fn placed(
        &self,
        store: &ProposalStore,
        run: &EvolutionRun,
        draft: SkillDraft,
    ) -> Result<(SkillDraft, Option<usize>), DraftRefusal> {
        let all = store.proposals.iter().enumerate();
        let own = all.filter(|(_, proposal)| proposal.source.agent == run.agent);
        for (_, before) in own.clone() {
            if before.state.is_unwanted() {
                draft.is_not_unwanted(before.n, &before.text)?;
            }
        }
        draft.is_not_hosts(&self.host_skills(&run.agent))?;
        let draft = draft.beside(&self.skills(&run.agent))?;
        // The evolver does not change a shared proposal, which the owner may have read already.
        for (at, before) in own.filter(|(_, other)| other.is_waiting() && other.shared.is_none()) {
            if let Some(renewed) = draft.beside_waiting(before.n, &before.text)? {
                return Ok((renewed, Some(at)));
            }
        }
        Ok((draft, None))
    }

    fn propose(
        &self,
        store: &mut ProposalStore,
        run: &EvolutionRun,
        draft: SkillDraft,
        at: Option<usize>,
    ) -> Result<Proposal, EvolveError> {
        let mut proposal = Proposal {
            n: store.next_n(),
            source: self.source(store, run, &draft.skill.name),
            why: self.reasons(store, run, &draft),
            name: draft.skill.name,
            text: draft.text,
            former: None,
            since_ms: None,
            shared: None,
            state: ProposalState::Waiting,
        };
        let before = at.and_then(|at| store.proposals.get(at));
        if let Some(before) = before {
            proposal.takes_place_of(before);
        }
        if proposal.why.is_empty() {
            self.put_in_force_or_ask(&mut proposal)?;
        }
        match at.and_then(|at| store.proposals.get_mut(at)) {
            Some(before) => before.clone_from(&proposal),
            None => store.proposals.push(proposal.clone()),
        }
        Ok(proposal)
    }

    fn reasons(
        &self,
        store: &ProposalStore,
        run: &EvolutionRun,
        draft: &SkillDraft,
    ) -> Vec<Reason> {
        let mut why = Vec::new();
        if self.settings().0.review {
            why.push(Reason::Review);
        }
        if !run.failures.iter().all(|f| f.trajectory.is_owners) {
            why.push(Reason::Others);
        }
        let known = self.skill(&run.agent, &draft.skill.name);
        let is_learned = |known: &Skill| {
            let mut learned = of_skill(store, &run.agent, &known.name);
            learned.any(|learned| version(&learned.text) == Some(known.version.clone()))
        };
        if known.is_some_and(|known| !is_learned(&known)) {
            why.push(Reason::Replaces);
        }
        why.extend(draft.suspicions());
        if run.is_tried {
            why.push(Reason::Untried);
        }
        why
    }

    /// Collects the evidence whose words it may contain: the turns, and the turns behind the skills that the evolver
    /// saw.
    fn source(&self, store: &ProposalStore, run: &EvolutionRun, name: &SkillName) -> Source {
        let library = self.skills(&run.agent);
        let shown = prompt::shown(&run.failures, &library).map(|skill: &Arc<Skill>| &skill.name);
        let learned = shown
            .chain([name])
            .flat_map(|name| of_skill(store, &run.agent, name));
        let inherited = learned.flat_map(|learned| learned.source.sessions.clone());
        let own = run.failures.iter().map(|failure| failure.session.clone());
        let mut sessions: Vec<SessionId> = own.chain(inherited).collect();
        sessions.sort();
        sessions.dedup();
        Source {
            agent: run.agent.clone(),
            sessions,
            turns: run.failures.iter().map(|failure| failure.turn).collect(),
            at_ms: run.at_ms,
        }
    }
}

/// What the owner decides.
impl Library {
    /// Adds a waiting proposal, by number or name, to the agent's own skills. It is in force from the next session
    /// after `at_ms` (Unix milliseconds) on.
    ///
    /// # Errors
    /// Returns [`EvolveError`]. In that case nothing has changed.
    pub fn accept_skill(&self, which: &str, at_ms: u64) -> Result<Proposal, EvolveError> {
        self.settle(which, |library, proposal| {
            proposal.since_ms = Some(at_ms);
            library.put_skill_in_force(proposal)
        })
    }

    /// Rejects a waiting proposal. A proposal that says the same is not made again.
    ///
    /// # Errors
    /// Returns [`EvolveError`]. In that case nothing has changed.
    pub fn reject_skill(&self, which: &str) -> Result<Proposal, EvolveError> {
        self.settle(which, |_, proposal| {
            proposal.state = ProposalState::Rejected;
            Ok(())
        })
    }

    /// Reverts the last accepted version of a skill. What it had replaced is in force again.
    ///
    /// # Errors
    /// Returns [`EvolveError`]. In that case nothing has changed.
    pub fn revert_skill(
        &self,
        agent: Option<&AgentId>,
        name: &SkillName,
    ) -> Result<Proposal, EvolveError> {
        self.change_proposals(|store| {
            let proposals = store.proposals.iter_mut().filter(|proposal| {
                let agent = agent.unwrap_or(&proposal.source.agent);
                proposal.is_accepted_of(agent, name)
            });
            let found: Vec<&mut Proposal> = proposals.collect();
            let agents: BTreeSet<&AgentId> = found
                .iter()
                .map(|proposal| &proposal.source.agent)
                .collect();
            if agents.len() > 1 {
                return Err(EvolveError::WhichAgent(name.clone()));
            }
            let last = found
                .into_iter()
                .max_by_key(|proposal| (proposal.in_force_ms(), proposal.n));
            let proposal = last.ok_or_else(|| EvolveError::NotLearned(name.clone()))?;
            if !self.is_in_place(proposal)? {
                let path = self.skill_file(proposal);
                return Err(EvolveError::Edited { path });
            }
            self.put_former(proposal)?;
            proposal.state = ProposalState::Reverted;
            Ok(proposal.clone())
        })
    }

    /// Returns the accepted proposal that came into force last, among those whose file exists.
    pub(crate) fn newest_skill(&self) -> Result<Option<Proposal>, EvolveError> {
        let mut accepted = self.proposals()?;
        accepted.retain(|proposal| proposal.state == ProposalState::Accepted);
        accepted.sort_by_key(|proposal| (proposal.in_force_ms(), proposal.n));
        for proposal in accepted.into_iter().rev() {
            if self.read_skill(&proposal)?.is_some() {
                return Ok(Some(proposal));
            }
        }
        Ok(None)
    }

    /// Deletes what was made from some sessions: the proposals' words, the skills that they became, even if people have
    /// edited them since, and the lines of the history. Returns the number of these proposals.
    ///
    /// # Errors
    /// Returns [`EvolveError`] if a file cannot be read or written.
    pub fn forget_skills(
        &self,
        is_forgotten: impl Fn(&AgentId, &SessionId) -> bool,
    ) -> Result<usize, EvolveError> {
        let goes = |proposal: &Proposal| {
            let mut sessions = proposal.source.sessions.iter();
            proposal.state != ProposalState::Forgotten
                && sessions.any(|session| is_forgotten(&proposal.source.agent, session))
        };
        let n_forgotten = self.change_proposals(|store| {
            let mut n_forgotten = 0;
            // The newest come first, because each gives back what it had replaced.
            for at in (0..store.proposals.len()).rev() {
                let (before, rest) = store.proposals.split_at_mut(at + 1);
                if let Some(proposal) = before.last_mut().filter(|proposal| goes(proposal)) {
                    self.take_out_skill(proposal, rest)?;
                    proposal.forget();
                    n_forgotten += 1;
                }
            }
            Ok(n_forgotten)
        })?;
        let _lock = self.lock_lessons()?;
        let path = self.dir().join(HISTORY_FILE);
        history::forget(&path, &is_forgotten).map_err(failed(path))?;
        Ok(n_forgotten)
    }

    /// Writes an accepted proposal's file, and stores what was there before.
    pub(crate) fn put_skill_in_force(&self, proposal: &mut Proposal) -> Result<(), EvolveError> {
        let path = self.skill_file(proposal);
        proposal.former = self.read_skill(proposal)?;
        self.write_skill(&path, &proposal.text)?;
        if self.served_version(proposal) != version(&proposal.text) {
            self.put_former(proposal)?;
            return Err(EvolveError::Hidden { path });
        }
        proposal.state = ProposalState::Accepted;
        Ok(())
    }

    pub(super) fn served_version(&self, proposal: &Proposal) -> Option<String> {
        let served = self.skill(&proposal.source.agent, &proposal.name);
        served.map(|skill| skill.version.clone())
    }

    /// Puts a proposal in force, or has it wait if another folder has a skill of its name.
    pub(crate) fn put_in_force_or_ask(&self, proposal: &mut Proposal) -> Result<(), EvolveError> {
        match self.put_skill_in_force(proposal) {
            Err(EvolveError::Hidden { .. }) => {
                proposal.why.push(Reason::Replaces);
                Ok(())
            }
            other => other,
        }
    }

    fn take_out_skill(
        &self,
        proposal: &mut Proposal,
        later: &mut [Proposal],
    ) -> Result<(), EvolveError> {
        if proposal.state != ProposalState::Accepted {
            return Ok(());
        }
        let (agent, name) = (&proposal.source.agent, &proposal.name);
        let mut later = later.iter_mut();
        match later.find(|proposal| proposal.is_accepted_of(agent, name)) {
            Some(next) => {
                next.former = proposal.former.take();
                Ok(())
            }
            None => self.put_former(proposal),
        }
    }

    /// Restores what a proposal had replaced. If there was nothing, its folder is removed.
    pub(crate) fn put_former(&self, proposal: &Proposal) -> Result<(), EvolveError> {
        let path = self.skill_file(proposal);
        if let Some(former) = &proposal.former {
            return self.write_skill(&path, former);
        }
        if_there(fs::remove_file(&path)).map_err(failed(&path))?;
        if let Some(folder) = path.parent() {
            // The folder stays if people put files of their own into it.
            fs::remove_dir(folder).ok();
        }
        self.forget_file(&path);
        self.refresh_view();
        Ok(())
    }

    fn settle(
        &self,
        which: &str,
        change: impl FnOnce(&Self, &mut Proposal) -> Result<(), EvolveError>,
    ) -> Result<Proposal, EvolveError> {
        let number: Option<u64> = which.parse().ok();
        let is_it = |proposal: &&mut Proposal| match proposal.state {
            ProposalState::Waiting => number == Some(proposal.n) || proposal.name.as_str() == which,
            // The owner may know better than a trial.
            ProposalState::Declined | ProposalState::AgedOut => number == Some(proposal.n),
            ProposalState::Accepted
            | ProposalState::Rejected
            | ProposalState::Reverted
            | ProposalState::Forgotten => false,
        };
        self.change_proposals(|store| {
            let found = store.proposals.iter_mut().rev().find(is_it);
            let proposal = found.ok_or_else(|| EvolveError::NotWaiting(which.to_owned()))?;
            if proposal.shared.is_some() && number != Some(proposal.n) {
                return Err(EvolveError::ByNumber(proposal.name.clone()));
            }
            change(self, proposal)?;
            Ok(proposal.clone())
        })
    }

    pub(crate) fn skill_file(&self, proposal: &Proposal) -> PathBuf {
        let folder = self.dir().join(proposal.source.agent.as_str());
        folder.join(proposal.name.as_str()).join("SKILL.md")
    }

    fn write_skill(&self, path: &Path, text: &str) -> Result<(), EvolveError> {
        write_text(path, text).map_err(failed(path))?;
        self.forget_file(path);
        self.refresh_view();
        Ok(())
    }

    pub(crate) fn read_skill(&self, proposal: &Proposal) -> Result<Option<String>, EvolveError> {
        let path = self.skill_file(proposal);
        Ok(if_there(read_text(&path, MAX_FILE)).map_err(failed(path))?)
    }

    pub(crate) fn is_in_place(&self, proposal: &Proposal) -> Result<bool, EvolveError> {
        Ok(self.read_skill(proposal)?.as_ref() == Some(&proposal.text))
    }
}

fn of_skill<'s>(
    store: &'s ProposalStore,
    agent: &'s AgentId,
    name: &'s SkillName,
) -> impl Iterator<Item = &'s Proposal> {
    let proposals = store.proposals.iter();
    proposals.filter(|proposal| proposal.is_accepted_of(agent, name))
}

pub(super) fn version(text: &str) -> Option<String> {
    Skill::parse(text).ok().map(|skill| skill.version)
}
