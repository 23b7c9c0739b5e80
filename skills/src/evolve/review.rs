//! Converts the evolver's answer to proposals. Each is checked, and then put in force if that is allowed, or else kept
//! for the owner's review.

use std::{io, path::PathBuf, sync::Arc};

use metaclaw_chat::{AgentId, Message, SessionId};

use super::{
    answer,
    draft::{DraftRefusal, SkillDraft},
    failure::Failure,
    history::{self, HistoryEntry},
    prompt,
    proposal::{Progress, Proposal, ProposalState, ProposalStore, Reason, Source},
};
use crate::{
    host::HostSkill,
    journal::JournalError,
    library::Library,
    skill::{Skill, SkillName},
};

/// The largest number of waiting proposals. Beyond it, the evolver is not asked, because nobody reviews.
const MAX_WAITING: usize = 30;

/// Why an operation on proposals failed.
#[derive(Debug, thiserror::Error)]
pub enum EvolveError {
    /// `proposals.json` could not be read or written.
    #[error(transparent)]
    Store(#[from] JournalError),
    /// Another file of the library could not be read or written.
    #[error("cannot use {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
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
    Hidden {
        /// The file that was to be written.
        path: PathBuf,
    },
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
    /// Returns [`EvolveError::Store`] if the file cannot be read.
    pub fn evolution(&self, agent: &AgentId) -> Result<Progress, EvolveError> {
        let mut store = ProposalStore::read(self.dir())?;
        Ok(store.progress.remove(agent).unwrap_or_default())
    }

    /// Returns all proposals of all agents, the oldest first. It accesses the file system.
    ///
    /// # Errors
    /// Returns [`EvolveError::Store`] if the file cannot be read.
    pub fn proposals(&self) -> Result<Vec<Proposal>, EvolveError> {
        Ok(ProposalStore::read(self.dir())?.proposals)
    }

    /// Returns whether so many proposals wait that nobody would review more. It accesses the file system.
    ///
    /// # Errors
    /// Returns [`EvolveError::Store`] if the file cannot be read.
    pub fn review_is_full(&self) -> Result<bool, EvolveError> {
        let waits = |it: &Proposal| it.is_waiting() && it.shared.is_none();
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
        let _lock = self.lock_lessons()?;
        let mut store = ProposalStore::read(self.dir())?;
        let progress = store.progress.entry(run.agent.clone()).or_default();
        if run.n_main < progress.n_main {
            // The log is another one, in which the same ids stand for other turns.
            progress.used.clear();
        }
        progress.n_main = run.n_main;
        let mut evolved = Evolved::default();
        match answer::read(answer) {
            Err(error) => evolved.refused.push(error.to_string()),
            Ok(written) => {
                progress.used.extend(run.failures.iter().map(|it| it.turn));
                for written in written {
                    let named = written.as_ref().map_or("", |it| &it.name).to_owned();
                    let drafted = written.and_then(|it| {
                        let draft =
                            SkillDraft::new(&it).and_then(|it| self.placed(&store, run, it));
                        draft.map_err(|refusal| refusal.to_string())
                    });
                    match drafted {
                        Ok((draft, at)) => {
                            let proposal = self.propose(&mut store, run, draft, at)?;
                            evolved.proposals.push(proposal);
                        }
                        Err(why) => {
                            let named = metaclaw_chat::excerpt(&named).into_owned();
                            evolved.refused.push(format!("{named:?}: {why}"));
                        }
                    }
                }
            }
        }
        store.write(self.dir())?;
        let (proposals, refused) = (&evolved.proposals, &evolved.refused);
        let entry = HistoryEntry::new(&run.agent, run.at_ms, &run.failures, proposals, refused);
        history::append(self.dir(), &entry).map_err(|source| EvolveError::File {
            path: self.dir().join(history::FILE),
            source,
        })?;
        Ok(evolved)
    }

    /// Returns the skills that the agent's host has by itself.
    fn host_skills(&self, agent: &AgentId) -> Vec<HostSkill> {
        let host = self.host(agent);
        host.map(|it| it.lessons.skills).unwrap_or_default()
    }

    /// Returns what to propose, and the index of the waiting proposal that it replaces. Refuses what says nothing new,
    /// and what was rejected before.
    fn placed(
        &self,
        store: &ProposalStore,
        run: &EvolutionRun,
        draft: SkillDraft,
    ) -> Result<(SkillDraft, Option<usize>), DraftRefusal> {
        let own = store.proposals.iter().enumerate();
        let own = own.filter(|(_, it)| it.source.agent == run.agent);
        for (_, before) in own.clone() {
            match before.state {
                ProposalState::Rejected
                | ProposalState::Reverted
                | ProposalState::Declined
                | ProposalState::AgedOut => {
                    draft.is_not_unwanted(before.n, &before.text)?;
                }
                ProposalState::Waiting | ProposalState::Accepted | ProposalState::Forgotten => {}
            }
        }
        draft.is_not_hosts(&self.host_skills(&run.agent))?;
        let draft = draft.beside(&self.skills(&run.agent))?;
        // The evolver does not change a shared proposal, which the owner may have read already.
        for (at, before) in own.filter(|(_, it)| it.is_waiting() && it.shared.is_none()) {
            if let Some(renewed) = draft.beside_waiting(before.n, &before.text)? {
                return Ok((renewed, Some(at)));
            }
        }
        Ok((draft, None))
    }

    /// Stores a proposal, or a replaced one, and puts it in force if nothing prevents that.
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
            match self.put_skill_in_force(&mut proposal) {
                Err(EvolveError::Hidden { .. }) => proposal.why.push(Reason::Replaces),
                other => other?,
            }
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
        if self.reviews_skills() {
            why.push(Reason::Review);
        }
        if !run.failures.iter().all(|it| it.trajectory.is_owners) {
            why.push(Reason::Others);
        }
        let known = self.skill(&run.agent, &draft.skill.name);
        let is_learned = |known: &Skill| {
            let mut learned = of_skill(store, &run.agent, &known.name);
            learned.any(|it| version(&it.text) == Some(known.version.clone()))
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
        let inherited = learned.flat_map(|it| it.source.sessions.clone());
        let own = run.failures.iter().map(|it| it.session.clone());
        let mut sessions: Vec<SessionId> = own.chain(inherited).collect();
        sessions.sort();
        sessions.dedup();
        Source {
            agent: run.agent.clone(),
            sessions,
            turns: run.failures.iter().map(|it| it.turn).collect(),
            at_ms: run.at_ms,
        }
    }
}

/// Returns the accepted proposals of one skill.
fn of_skill<'s>(
    store: &'s ProposalStore,
    agent: &'s AgentId,
    name: &'s SkillName,
) -> impl Iterator<Item = &'s Proposal> {
    let is_its = move |it: &&Proposal| {
        it.state == ProposalState::Accepted && it.source.agent == *agent && it.name == *name
    };
    store.proposals.iter().filter(is_its)
}

fn version(text: &str) -> Option<String> {
    Skill::parse(text).ok().map(|skill| skill.version)
}
