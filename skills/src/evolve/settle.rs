//! Changes the state of proposals: accepted, rejected, reverted, forgotten.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use metaclaw_chat::{AgentId, SessionId};

use super::{
    history,
    proposal::{Proposal, ProposalState, ProposalStore},
    review::EvolveError,
};
use crate::{
    file::{MAX_FILE, read_text, write_text},
    library::Library,
    skill::{Skill, SkillName},
};

// === impl Library ===

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
        let _lock = self.lock_lessons()?;
        let mut store = ProposalStore::read(self.dir())?;
        let is_it = |it: &&mut Proposal| {
            it.state == ProposalState::Accepted
                && it.name == *name
                && agent.is_none_or(|agent| *agent == it.source.agent)
        };
        let found: Vec<&mut Proposal> = store.proposals.iter_mut().filter(is_it).collect();
        let agents: BTreeSet<AgentId> = found.iter().map(|it| it.source.agent.clone()).collect();
        if agents.len() > 1 {
            return Err(EvolveError::WhichAgent(name.clone()));
        }
        let last = found.into_iter().max_by_key(|it| (it.in_force_ms(), it.n));
        let proposal = last.ok_or_else(|| EvolveError::NotLearned(name.clone()))?;
        let path = self.skill_file(proposal);
        if read_skill(&path)?.as_ref() != Some(&proposal.text) {
            return Err(EvolveError::Edited { path });
        }
        self.put_former(proposal)?;
        proposal.state = ProposalState::Reverted;
        let reverted = proposal.clone();
        store.write(self.dir())?;
        Ok(reverted)
    }

    /// Returns the accepted proposal that came into force last, among those whose file exists.
    pub(crate) fn newest_skill(&self) -> Result<Option<Proposal>, EvolveError> {
        let mut accepted = self.proposals()?;
        accepted.retain(|it| it.state == ProposalState::Accepted);
        accepted.sort_by_key(|it| (it.in_force_ms(), it.n));
        for proposal in accepted.into_iter().rev() {
            if read_skill(&self.skill_file(&proposal))?.is_some() {
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
        let _lock = self.lock_lessons()?;
        let mut store = ProposalStore::read(self.dir())?;
        let goes = |it: &Proposal| {
            let mut sessions = it.source.sessions.iter();
            sessions.any(|session| is_forgotten(&it.source.agent, session))
        };
        let mut n_forgotten = 0;
        // The newest come first, because each gives back what it had replaced.
        for at in (0..store.proposals.len()).rev() {
            let (before, rest) = store.proposals.split_at_mut(at + 1);
            let Some(proposal) = before.last_mut() else {
                continue;
            };
            if proposal.state == ProposalState::Forgotten || !goes(proposal) {
                continue;
            }
            self.take_out_skill(proposal, rest)?;
            forget_words(proposal)?;
            n_forgotten += 1;
        }
        if n_forgotten > 0 {
            store.write(self.dir())?;
        }
        let forgotten = history::forget(self.dir(), &is_forgotten);
        forgotten.map_err(|source| EvolveError::File {
            path: self.dir().join(history::FILE),
            source,
        })?;
        Ok(n_forgotten)
    }

    /// Writes an accepted proposal's file, and stores what was there before.
    pub(crate) fn put_skill_in_force(&self, proposal: &mut Proposal) -> Result<(), EvolveError> {
        let path = self.skill_file(proposal);
        proposal.former = read_skill(&path)?;
        self.write_skill(&path, &proposal.text)?;
        let served = self.skill(&proposal.source.agent, &proposal.name);
        let wanted = Skill::parse(&proposal.text).map(|skill| skill.version);
        if served.map(|skill| skill.version.clone()) != wanted.ok() {
            self.put_former(proposal)?;
            return Err(EvolveError::Hidden { path });
        }
        proposal.state = ProposalState::Accepted;
        Ok(())
    }

    /// Removes an accepted proposal's text from the agent's folder, or from the version after it.
    fn take_out_skill(
        &self,
        proposal: &mut Proposal,
        later: &mut [Proposal],
    ) -> Result<(), EvolveError> {
        if proposal.state != ProposalState::Accepted {
            return Ok(());
        }
        let next = later.iter_mut().find(|it| {
            it.state == ProposalState::Accepted
                && it.name == proposal.name
                && it.source.agent == proposal.source.agent
        });
        match next {
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
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(EvolveError::File { path, source });
            }
            Ok(()) | Err(_) => {}
        }
        if let Some(folder) = path.parent() {
            // The folder stays if people put files of their own into it.
            fs::remove_dir(folder).ok();
        }
        self.forget_file(&path);
        self.refresh_view();
        Ok(())
    }

    /// Changes one waiting proposal and writes the file.
    fn settle(
        &self,
        which: &str,
        change: impl FnOnce(&Self, &mut Proposal) -> Result<(), EvolveError>,
    ) -> Result<Proposal, EvolveError> {
        let _lock = self.lock_lessons()?;
        let mut store = ProposalStore::read(self.dir())?;
        let number: Option<u64> = which.parse().ok();
        let is_it = |it: &&mut Proposal| match it.state {
            ProposalState::Waiting => number == Some(it.n) || it.name.as_str() == which,
            // The owner may know better than a trial.
            ProposalState::Declined | ProposalState::AgedOut => number == Some(it.n),
            ProposalState::Accepted
            | ProposalState::Rejected
            | ProposalState::Reverted
            | ProposalState::Forgotten => false,
        };
        let proposal = store.proposals.iter_mut().rev().find(is_it);
        let proposal = proposal.ok_or_else(|| EvolveError::NotWaiting(which.to_owned()))?;
        if proposal.shared.is_some() && number != Some(proposal.n) {
            return Err(EvolveError::ByNumber(proposal.name.clone()));
        }
        change(self, proposal)?;
        let changed = proposal.clone();
        store.write(self.dir())?;
        Ok(changed)
    }

    pub(crate) fn skill_file(&self, proposal: &Proposal) -> PathBuf {
        let folder = self.dir().join(proposal.source.agent.as_str());
        folder.join(proposal.name.as_str()).join("SKILL.md")
    }

    fn write_skill(&self, path: &Path, text: &str) -> Result<(), EvolveError> {
        write_text(path, text).map_err(|source| EvolveError::File {
            path: path.to_owned(),
            source,
        })?;
        self.forget_file(path);
        self.refresh_view();
        Ok(())
    }
}

/// Returns the text of a SKILL.md, if there is one.
pub(crate) fn read_skill(path: &Path) -> Result<Option<String>, EvolveError> {
    match read_text(path, MAX_FILE) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(EvolveError::File {
            path: path.to_owned(),
            source,
        }),
    }
}

/// Clears a proposal's words, including its name.
pub(crate) fn forget_words(proposal: &mut Proposal) -> Result<(), EvolveError> {
    let nameless = format!("forgotten-{}", proposal.n);
    proposal.name = nameless
        .parse()
        .map_err(|_| EvolveError::NotWaiting(nameless))?;
    proposal.text.clear();
    proposal.why.clear();
    proposal.former = None;
    proposal.state = ProposalState::Forgotten;
    Ok(())
}
