//! The trial of a proposed skill: earlier requests are answered with it and without it, and the replies are judged.
//!
//! A text can do as much harm as weights can, so it passes a test too before it is in force.

use std::{fmt, sync::Arc};

use metaclaw_chat::AgentId;
use serde::{Deserialize, Serialize};

use super::{
    proposal::{Progress, Proposal, ProposalState, ProposalStore, Reason},
    review::EvolveError,
    settle::read_skill,
};
use crate::{
    config::WishesConfig,
    library::{Lessons, Library},
    render,
    retrieve::{Index, Visible},
    skill::{Skill, SkillName},
    wishes::Wish,
};

/// Replies to one request, in each of the two arms.
pub const TRIAL_DRAWS: usize = 3;
/// The smallest number of requests that a trial can be decided by.
pub const MIN_TRIED: usize = 3;
/// The smallest number of requests, among these, that had failed without a skill, before the skill may age out.
const MIN_FAILED: usize = 2;
/// A gain counts if chance makes one as large in at most so many trials of a skill without effect.
///
/// Three draws of one request pass it only if all three are good with the skill and none without. The probability of
/// chance is that of Fisher's exact test: given how many replies were good in all, how often does the split come out at
/// least so uneven if the arms are equal? It needs no assumption about how often the judge errs, because errors that
/// do not depend on the arm leave the arms equal.
const GAIN_BY_CHANCE: f64 = 0.05;
/// The same for a loss. It is larger, because a harmful skill in force costs more than a good one that waits.
const LOSS_BY_CHANCE: f64 = 0.12;

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

/// How many of [`TRIAL_DRAWS`] replies to one request were good in each arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriedRequest {
    /// Whether the reply that the request got from the agent was good.
    pub was_good: bool,
    pub good_with: usize,
    pub good_without: usize,
}

/// The figures of a trial, request by request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialFigures {
    pub requests: Vec<TriedRequest>,
}

/// What a trial showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialVerdict {
    /// The skill is better somewhere and worse nowhere, by more than chance.
    Passed,
    /// The skill is worse somewhere, or it is better nowhere.
    Declined,
    /// There are too few requests, or they are answered too well without the skill to show a gain.
    TooFew,
}

/// The replies of both arms to some requests.
#[derive(Debug, Clone, Copy)]
struct Pooled {
    /// Replies in each arm.
    n: usize,
    good_with: usize,
    good_without: usize,
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
    /// Returns [`EvolveError::Store`] if the file cannot be read.
    pub fn untried(&self, agent: &AgentId) -> Result<(Vec<Proposal>, Progress), EvolveError> {
        let mut store = ProposalStore::read(self.dir())?;
        let progress = store.progress.remove(agent).unwrap_or_default();
        let mut proposals = store.proposals;
        proposals.retain(|it| it.source.agent == *agent && it.is_untried());
        Ok((proposals, progress))
    }

    /// Adds tokens to those that the trials of an agent have cost. It accesses the file system.
    ///
    /// # Errors
    /// Returns [`EvolveError::Store`] if the file cannot be read or written.
    pub fn charge_trial(&self, agent: &AgentId, n_tokens: u64) -> Result<(), EvolveError> {
        let _lock = self.lock_lessons()?;
        let mut store = ProposalStore::read(self.dir())?;
        let progress = store.progress.entry(agent.clone()).or_default();
        progress.trial_tokens = progress.trial_tokens.saturating_add(n_tokens);
        Ok(store.write(self.dir())?)
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
        let _lock = self.lock_lessons()?;
        let mut store = ProposalStore::read(self.dir())?;
        let is_it =
            |it: &&mut Proposal| it.n == tried.n && it.text == tried.text && it.is_untried();
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
                proposal.since_ms = Some(at_ms);
                match self.put_skill_in_force(proposal) {
                    Err(EvolveError::Hidden { .. }) => {
                        proposal.since_ms = None;
                        proposal.why.push(Reason::Replaces);
                    }
                    other => other?,
                }
            }
            TrialVerdict::Passed | TrialVerdict::TooFew => {}
            TrialVerdict::Declined => proposal.state = ProposalState::Declined,
        }
        let settled = proposal.clone();
        store.write(self.dir())?;
        Ok(Some(settled))
    }
}

// === again ===

impl Library {
    /// Returns an agent's skills in force that a model wrote here and that were neither tried nor accepted since then (Unix
    /// milliseconds). It accesses the file system.
    ///
    /// # Errors
    /// Returns [`EvolveError::Store`] if the file cannot be read.
    pub fn to_try_again(
        &self,
        agent: &AgentId,
        since_ms: u64,
    ) -> Result<Vec<Proposal>, EvolveError> {
        let mut proposals = self.proposals()?;
        proposals.retain(|it| {
            let served = self
                .skill(agent, &it.name)
                .map(|skill| skill.version.clone());
            it.state == ProposalState::Accepted
                && it.source.agent == *agent
                && it.shared.is_none()
                && it.looked_at_ms() < since_ms
                && served == Skill::parse(&it.text).ok().map(|skill| skill.version)
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
        let _lock = self.lock_lessons()?;
        let mut store = ProposalStore::read(self.dir())?;
        let is_it = |it: &&mut Proposal| {
            it.n == tried.n && it.text == tried.text && it.state == ProposalState::Accepted
        };
        let Some(proposal) = store.proposals.iter_mut().find(is_it) else {
            return Ok(None);
        };
        if read_skill(&self.skill_file(proposal))?.as_ref() != Some(&proposal.text) {
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
        let settled = proposal.clone();
        store.write(self.dir())?;
        Ok(Some(settled))
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
        tried_ms
            .chain([self.in_force_ms()])
            .max()
            .unwrap_or_default()
    }
}

// === impl SkillTrial ===

impl SkillTrial {
    /// Returns the lessons with and without the skill for a request, or `None` if the request would not get the skill.
    pub fn lessons(&self, query: &str) -> Option<[Lessons; 2]> {
        let with = self.chosen(&self.with, query);
        let gets_it = with.iter().any(|skill| skill.name == self.name);
        let lessons = |skills: &[Arc<Skill>]| Lessons::of(skills, &self.wishes, &self.config);
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

// === impl Pooled ===

impl Pooled {
    fn of<'a>(requests: impl Iterator<Item = &'a TriedRequest>) -> Self {
        let none = Self {
            n: 0,
            good_with: 0,
            good_without: 0,
        };
        requests.fold(none, |sum, it| Self {
            n: sum.n + TRIAL_DRAWS,
            good_with: sum.good_with + it.good_with,
            good_without: sum.good_without + it.good_without,
        })
    }

    fn is_gain(self) -> bool {
        by_chance(self.n, self.good_with, self.good_without) <= GAIN_BY_CHANCE
    }

    fn is_loss(self) -> bool {
        by_chance(self.n, self.good_without, self.good_with) <= LOSS_BY_CHANCE
    }

    /// Returns whether even a perfect skill could show no gain.
    fn is_at_ceiling(self) -> bool {
        let perfect = Self {
            good_with: self.n,
            ..self
        };
        !perfect.is_gain()
    }
}

// === impl TrialFigures ===

impl TrialFigures {
    /// Returns whether the skill is worse somewhere: at one request, at those that the agent had answered well, at the
    /// others, or at all of them.
    pub fn is_worse(&self) -> bool {
        self.parts().any(Pooled::is_loss)
    }

    /// Returns what the figures show.
    pub fn verdict(&self) -> TrialVerdict {
        if self.is_worse() {
            TrialVerdict::Declined
        } else if self.requests.len() < MIN_TRIED || self.parts().all(Pooled::is_at_ceiling) {
            TrialVerdict::TooFew
        } else if self.parts().any(Pooled::is_gain)
            && self.all().good_with > self.all().good_without
        {
            TrialVerdict::Passed
        } else {
            TrialVerdict::Declined
        }
    }

    /// Returns whether a skill in force is no longer better, though there are requests that had failed without it.
    pub fn is_outgrown(&self) -> bool {
        let n_failed = self.requests.iter().filter(|it| !it.was_good).count();
        let all = self.all();
        self.requests.len() >= MIN_TRIED
            && n_failed >= MIN_FAILED
            && all.good_with <= all.good_without
    }

    /// Returns the figures of a later trial in words.
    pub(super) fn again(&self) -> String {
        let all = self.all();
        let shown = if self.is_outgrown() {
            "a later trial found it no longer better"
        } else {
            "a later trial found no reason to take it out"
        };
        format!(
            "{shown}: {} of {n} replies were good with it and {} of {n} without it",
            all.good_with,
            all.good_without,
            n = all.n
        )
    }

    fn all(&self) -> Pooled {
        Pooled::of(self.requests.iter())
    }

    fn parts(&self) -> impl Iterator<Item = Pooled> {
        let of = |was_good| {
            let requests = self.requests.iter();
            Pooled::of(requests.filter(move |it| it.was_good == was_good))
        };
        let each = self.requests.iter().map(|it| Pooled::of([it].into_iter()));
        each.chain([of(true), of(false), self.all()])
    }
}

impl fmt::Display for TrialFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.all();
        let shown = match self.verdict() {
            TrialVerdict::Passed => "its trial found it better",
            TrialVerdict::Declined if self.is_worse() => "its trial found it worse",
            TrialVerdict::Declined => "its trial found it no better",
            TrialVerdict::TooFew => "its trial could not show enough",
        };
        let n_requests = self.requests.len();
        if n_requests == 0 {
            return write!(f, "{shown}: no earlier request of its kind can be tried");
        }
        write!(
            f,
            "{shown}: {} of {n} replies were good with it and {} of {n} without it, at {n_requests} earlier requests",
            all.good_with,
            all.good_without,
            n = all.n
        )
    }
}

/// Returns the probability that of two arms of `n` replies each, one has at least `more` good ones, given that both have
/// `more + less`, if each split is equally likely (Fisher's exact test, one-sided).
fn by_chance(n: usize, more: usize, less: usize) -> f64 {
    let n_good = more + less;
    let ways = |good: usize| choose(n, good) * choose(n, n_good - good);
    let at_least: f64 = (more..=n.min(n_good)).map(ways).sum();
    at_least / choose(2 * n, n_good)
}

#[expect(clippy::cast_precision_loss, reason = "at most a hundred replies")]
fn choose(n: usize, k: usize) -> f64 {
    if k > n {
        return 0.0;
    }
    (0..k).map(|it| (n - it) as f64 / (it + 1) as f64).product()
}

#[cfg(test)]
mod tests;
