//! Makes a proposal of each skill of another home. Those of another person wait for the owner's review.

use std::{collections::BTreeMap, mem};

use super::index::{CurrentSkill, ReadIndex, ShareFile, ShareState, SharedSkill};
use crate::{
    bank,
    evolve::{
        EvolveError, Proposal, ProposalState, ProposalStore, Reason, SharedOrigin, SkillDraft,
        Source, WrittenSkill,
    },
    library::Library,
    skill::{Skill, SkillName},
};

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

// === impl Library ===

impl Library {
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
