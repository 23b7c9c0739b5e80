//! From the evolver's answer to proposals: examined, put in force where that is allowed, else kept for the owner's look.

use std::{io, path::PathBuf, sync::Arc};

use metaclaw_chat::{AgentId, Message, SessionId};

use super::{
    answer,
    draft::{Draft, Refusal},
    failure::Failure,
    history::{self, HistoryEntry},
    prompt,
    proposal::{Progress, Proposal, ProposalState, Reason, Source, Store},
};
use crate::{
    host::HostSkill,
    journal::JournalError,
    library::Library,
    skill::{Skill, SkillName},
};

/// Proposals that wait at most: beyond, the evolver is not asked, as nobody looks.
const MAX_WAITING: usize = 30;

/// Why something about proposals could not be done.
#[derive(Debug, thiserror::Error)]
pub enum EvolveError {
    /// `proposals.json`.
    #[error(transparent)]
    Store(#[from] JournalError),
    /// Another file of the library.
    #[error("cannot use {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// Nothing waits under this number or name.
    #[error("no proposal {0:?} waits: `metaclaw skills review` shows those that do")]
    NotWaiting(String),
    /// No proposal of this name is in force.
    #[error("{0} is no skill that was learned: `metaclaw skills log` shows those that were")]
    NotLearned(SkillName),
    /// Several agents have one of this name.
    #[error("several agents have a skill {0} that was learned: say which with --agent")]
    WhichAgent(SkillName),
    /// The file is not what was accepted.
    #[error("{} was changed since: put it right by hand, or remove it", path.display())]
    Edited { path: PathBuf },
    /// The agent's folder has the name in another place, which comes first.
    #[error("{} cannot come into force: another folder of the agent has a skill of that name", path.display())]
    Hidden {
        /// The file that was to be.
        path: PathBuf,
    },
}

/// One time that the evolver is asked.
#[derive(Debug, Clone)]
pub struct EvolutionRun {
    pub agent: AgentId,
    /// Those that went wrong.
    pub failures: Vec<Failure>,
    /// Main turns that the agent has had.
    pub n_main: u64,
    /// When, in Unix milliseconds.
    pub at_ms: u64,
}

/// What came of an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evolved {
    /// Those that wait, and those that are in force.
    pub proposals: Vec<Proposal>,
    /// What was refused, and why.
    pub refused: Vec<String>,
}

// === impl Library ===

impl Library {
    /// How far an agent's turns have been looked at. Touches the file system.
    ///
    /// # Errors
    /// [`EvolveError::Store`].
    pub fn evolution(&self, agent: &AgentId) -> Result<Progress, EvolveError> {
        let mut store = Store::read(self.dir())?;
        Ok(store.progress.remove(agent).unwrap_or_default())
    }

    /// All proposals of all agents, the oldest first. Touches the file system.
    ///
    /// # Errors
    /// [`EvolveError::Store`].
    pub fn proposals(&self) -> Result<Vec<Proposal>, EvolveError> {
        Ok(Store::read(self.dir())?.proposals)
    }

    /// Whether so many proposals wait that more would not be looked at. Touches the file system.
    ///
    /// # Errors
    /// [`EvolveError::Store`].
    pub fn review_is_full(&self) -> Result<bool, EvolveError> {
        let waiting = self.proposals()?.into_iter().filter(Proposal::is_waiting);
        Ok(waiting.count() >= MAX_WAITING)
    }

    /// What the evolver is asked.
    pub fn evolver_messages(&self, run: &EvolutionRun) -> Vec<Message> {
        let hosts = self.host_skills(&run.agent);
        prompt::evolver_messages(&run.failures, &self.skills(&run.agent), &hosts)
    }

    /// Takes the evolver's answer: what can be a skill is proposed, or put in force where `skills.review` is off and
    /// nothing in it can be anybody's words but the owner's. The turns are evidence from then on and never again, unless
    /// the answer cannot be read. Touches the file system.
    ///
    /// # Errors
    /// [`EvolveError`]; the turns may be used again then.
    pub fn evolve(&self, run: &EvolutionRun, answer: &str) -> Result<Evolved, EvolveError> {
        let _lock = self.lock_lessons()?;
        let mut store = Store::read(self.dir())?;
        let progress = store.progress.entry(run.agent.clone()).or_default();
        if run.n_main < progress.n_main {
            // Another log, whose turns have the numbers of others.
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
                        let draft = Draft::new(&it).and_then(|it| self.placed(&store, run, it));
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

    /// The skills that the agent's host has by itself.
    fn host_skills(&self, agent: &AgentId) -> Vec<HostSkill> {
        let host = self.host(agent);
        host.map(|it| it.lessons.skills).unwrap_or_default()
    }

    /// What is to be proposed, and the place in the store of the proposal that waits and becomes it. Refuses what says
    /// nothing new, and what was not wanted before.
    fn placed(
        &self,
        store: &Store,
        run: &EvolutionRun,
        draft: Draft,
    ) -> Result<(Draft, Option<usize>), Refusal> {
        let own = store.proposals.iter().enumerate();
        let own = own.filter(|(_, it)| it.source.agent == run.agent);
        for (_, before) in own.clone() {
            match before.state {
                ProposalState::Rejected | ProposalState::Reverted => {
                    draft.is_not_unwanted(before.n, &before.text)?;
                }
                ProposalState::Waiting | ProposalState::Accepted | ProposalState::Forgotten => {}
            }
        }
        draft.is_not_hosts(&self.host_skills(&run.agent))?;
        let draft = draft.beside(&self.skills(&run.agent))?;
        for (at, before) in own.filter(|(_, it)| it.is_waiting()) {
            if let Some(renewed) = draft.beside_waiting(before.n, &before.text)? {
                return Ok((renewed, Some(at)));
            }
        }
        Ok((draft, None))
    }

    /// Notes a proposal, or what one becomes that waits; puts it in force where nothing speaks against it.
    fn propose(
        &self,
        store: &mut Store,
        run: &EvolutionRun,
        draft: Draft,
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

    fn reasons(&self, store: &Store, run: &EvolutionRun, draft: &Draft) -> Vec<Reason> {
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
        why
    }

    /// Whose words may be in it: those of the turns, and of the turns that the skills came from which the evolver saw.
    fn source(&self, store: &Store, run: &EvolutionRun, name: &SkillName) -> Source {
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

/// The accepted proposals of one skill.
fn of_skill<'s>(
    store: &'s Store,
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
