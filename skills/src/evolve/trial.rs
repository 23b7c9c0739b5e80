//! Trials of skills that a model wrote: earlier requests are answered with the skill and without it, and the replies are
//! judged. A text can do as much harm as weights can, so it passes a test too before it is in force.

use std::sync::Arc;

use metaclaw_chat::{AgentId, now_ms};

use super::{
    figures::{TrialFigures, TrialVerdict},
    proposal::{Progress, Proposal, ProposalState, ProposalStore, Reason},
    review::{EvolveError, version},
};
use crate::{
    config::WishesConfig,
    library::{Lessons, Library},
    render,
    retrieve::{Index, Visible},
    skill::{Skill, SkillName},
    wishes::Wish,
};

/// An agent's lessons with and without a proposed skill.
#[derive(Debug)]
pub struct SkillTrial {
    with: Arm,
    without: Arm,
    name: SkillName,
    wishes: Vec<Wish>,
    config: WishesConfig,
    budget_tokens: usize,
    top_k: usize,
}

#[derive(Debug)]
struct Arm {
    skills: Vec<Arc<Skill>>,
    index: Index,
}

// === impl Library ===

impl Library {
    /// Returns the lessons with and without a skill, proposed or in force, or `None` if its text cannot be read as a skill.
    pub fn trial(&self, proposal: &Proposal) -> Option<SkillTrial> {
        let agent = &proposal.source.agent;
        let tried = Arc::new(Skill::parse(&proposal.text).ok()?);
        let present = self.skills(agent);
        let mut others = present.clone();
        others.retain(|skill| skill.name != tried.name);
        let beside = |skill| others.iter().cloned().chain([Arc::new(skill)]).collect();
        let with = beside(Skill::clone(&tried));
        let without = match &proposal.former {
            _ if proposal.state != ProposalState::Accepted => present,
            Some(former) => Skill::parse(former).map_or_else(|_| others.clone(), beside),
            None => others.clone(),
        };
        let (skills, wishes) = self.settings();
        Some(SkillTrial {
            with: Arm::new(with),
            without: Arm::new(without),
            name: tried.name.clone(),
            wishes: self.wishes(agent),
            config: wishes.clone(),
            budget_tokens: skills.budget_tokens,
            top_k: skills.top_k,
        })
    }

    /// Returns an agent's proposals without a trial, the oldest first, and how far its turns have been used. It accesses
    /// the file system.
    ///
    /// # Errors
    /// Returns [`EvolveError::File`] if the file cannot be read.
    pub fn untried(&self, agent: &AgentId) -> Result<(Vec<Proposal>, Progress), EvolveError> {
        let mut store = ProposalStore::read(self.dir())?;
        let progress = store.progress.remove(agent).unwrap_or_default();
        let mut proposals = store.proposals;
        proposals.retain(|proposal| proposal.source.agent == *agent && proposal.is_untried());
        Ok((proposals, progress))
    }

    /// Adds tokens to those that the trials of an agent have cost. It accesses the file system.
    ///
    /// # Errors
    /// Returns [`EvolveError::File`] if the file cannot be read or written.
    pub fn charge_trial(&self, agent: &AgentId, n_tokens: u64) -> Result<(), EvolveError> {
        self.change_proposals(|store| {
            let progress = store.progress.entry(agent.clone()).or_default();
            progress.trial_tokens = progress.trial_tokens.saturating_add(n_tokens);
            Ok(())
        })
    }

    /// Applies the result of a trial: the skill is in force if it passed and nothing else holds it back, is declined if
    /// it failed, and waits with its figures otherwise. `Ok(None)` means that the proposal has changed meanwhile, or was
    /// decided on. It accesses the file system.
    ///
    /// # Errors
    /// Returns [`EvolveError`]. In that case the proposal is tried again.
    pub fn settle_trial(
        &self,
        tried: &Proposal,
        figures: &TrialFigures,
        at_ms: u64,
    ) -> Result<Option<Proposal>, EvolveError> {
        let is_it = |p: &&mut Proposal| p.n == tried.n && p.text == tried.text && p.is_untried();
        self.change_proposals(|store| {
            let Some(proposal) = store.proposals.iter_mut().find(is_it) else {
                return Ok(None);
            };
            proposal.why.retain(|why| *why != Reason::Untried);
            let is_held_back = !proposal.why.is_empty();
            proposal.why.push(Reason::Tried {
                figures: figures.clone(),
                at_ms,
            });
            match figures.verdict() {
                TrialVerdict::Passed if !is_held_back => {
                    self.put_in_force_or_ask(proposal)?;
                    proposal.since_ms = (!proposal.is_waiting()).then_some(at_ms);
                }
                TrialVerdict::Passed | TrialVerdict::TooFew => {}
                TrialVerdict::Declined => proposal.state = ProposalState::Declined,
            }
            Ok(Some(proposal.clone()))
        })
    }

    /// Returns an agent's skills in force that a model wrote here and that were neither tried nor accepted since then (Unix
    /// milliseconds). It accesses the file system.
    ///
    /// # Errors
    /// Returns [`EvolveError::File`] if the file cannot be read.
    pub fn to_try_again(
        &self,
        agent: &AgentId,
        since_ms: u64,
    ) -> Result<Vec<Proposal>, EvolveError> {
        let mut proposals = self.proposals()?;
        proposals.retain(|proposal| {
            proposal.state == ProposalState::Accepted
                && proposal.source.agent == *agent
                && proposal.shared.is_none()
                && proposal.looked_at_ms() < since_ms
                && self.served_version(proposal) == version(&proposal.text)
        });
        Ok(proposals)
    }

    /// Applies the result of a later trial: a skill that is no longer better ages out, and what it had replaced is in
    /// force again. `Ok(None)` means that the skill was edited or taken back meanwhile. It accesses the file system.
    ///
    /// # Errors
    /// Returns [`EvolveError`]. In that case the skill is tried again.
    pub fn settle_again(
        &self,
        tried: &Proposal,
        figures: &TrialFigures,
        at_ms: u64,
    ) -> Result<Option<Proposal>, EvolveError> {
        let is_it = |p: &&mut Proposal| {
            p.n == tried.n && p.text == tried.text && p.state == ProposalState::Accepted
        };
        self.change_proposals(|store| {
            let Some(proposal) = store.proposals.iter_mut().find(is_it) else {
                return Ok(None);
            };
            if !self.is_in_place(proposal)? {
                return Ok(None);
            }
            let is_earlier = |why: &Reason| matches!(why, Reason::TriedAgain { .. });
            proposal.why.retain(|why| !is_earlier(why));
            proposal.why.push(Reason::TriedAgain {
                figures: figures.clone(),
                at_ms,
            });
            if figures.is_outgrown() {
                self.put_former(proposal)?;
                proposal.state = ProposalState::AgedOut;
            }
            Ok(Some(proposal.clone()))
        })
    }
}

// === impl Proposal ===

impl Proposal {
    /// Returns whether it waits for a trial.
    pub fn is_untried(&self) -> bool {
        self.is_waiting() && self.why.contains(&Reason::Untried)
    }

    /// Returns when it was last tried, or came into force if that was later, in Unix milliseconds.
    fn looked_at_ms(&self) -> u64 {
        let tried_ms = self.why.iter().filter_map(|why| match why {
            Reason::Tried { at_ms, .. } | Reason::TriedAgain { at_ms, .. } => Some(*at_ms),
            _ => None,
        });
        // A time in the future was noted with a clock that was ahead.
        let now_ms = now_ms();
        let looked_at_ms = tried_ms.chain([self.in_force_ms()]);
        let past = looked_at_ms.filter(|at_ms| *at_ms <= now_ms);
        past.max().unwrap_or_default()
    }
}

// === impl SkillTrial ===

impl SkillTrial {
    /// Returns the lessons with and without the skill for a request, or `None` if the request would not get the skill.
    pub fn lessons(&self, query: &str) -> Option<[Lessons; 2]> {
        let with = self.chosen(&self.with, query);
        let gets_it = with.iter().any(|skill| skill.name == self.name);
        let lessons = |skills: &[Arc<Skill>]| Lessons::new(skills, &self.wishes, &self.config);
        gets_it.then(|| [lessons(&with), lessons(&self.chosen(&self.without, query))])
    }

    fn chosen(&self, arm: &Arm, query: &str) -> Vec<Arc<Skill>> {
        let visible = Visible {
            own: 0..arm.skills.len(),
            ..Visible::default()
        };
        let ranked = arm.index.search(query, &visible).into_iter();
        let ranked = ranked.filter_map(|number| arm.skills.get(number).cloned());
        render::within_budget(ranked, self.budget_tokens, self.top_k)
    }
}

// === impl Arm ===

impl Arm {
    fn new(skills: Vec<Arc<Skill>>) -> Self {
        Self {
            index: Index::build(&skills),
            skills,
        }
    }
}
