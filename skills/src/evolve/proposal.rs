//! Proposals, and how far an agent's turns have been used: `proposals.json` in the library's folder.
//!
//! Both are in one file that is written in one rename. So a turn is used as evidence once, and the result is never
//! lost.
//!
//! The figures of a trial, and what follows from them.
//!
//! `evolution_history.jsonl`: one line for each request to the evolver, in the original's form.
//!
//! The original's fields come first, with its names. Our fields after them give the agent and the results.

#[cfg(test)]
mod figures_tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    path::Path,
};

use jiff::Timestamp;
use metaclaw_chat::{AgentId, SessionId, TurnId, if_there};
use serde::{Deserialize, Serialize};

use super::prompt::Failure;
use crate::{
    file::{JournalError, MAX_JOURNAL, WriterId, read_json, read_text, write_json, write_text},
    guard::Suspicion,
    skill::{Skill, SkillName},
};

const FILE: &str = "proposals.json";
/// The number of proposals that are kept. Beyond it, the oldest settled ones are removed.
const MAX_KEPT: usize = 500;
/// The number of turns that are remembered as evidence. Beyond it, the oldest are removed. The log keeps turns for a
/// month.
const MAX_USED: usize = 20_000;

/// The evidence behind a proposal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    pub agent: AgentId,
    /// The sessions of the turns, and the sessions behind the skills that the evolver was shown.
    pub sessions: Vec<SessionId>,
    /// The failed turns.
    pub turns: Vec<TurnId>,
    /// The time in Unix milliseconds.
    pub at_ms: u64,
}

/// The home that a shared skill came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedOrigin {
    /// The home.
    pub writer: WriterId,
    /// The name that its owner gave, or an empty text. Nobody checks it.
    #[serde(default)]
    pub person: String,
    /// The name of its machine. Nobody checks it.
    #[serde(default)]
    pub machine: String,
    /// Whether it was signed with this home's `skills.share.key`, so that the same person wrote it.
    #[serde(default)]
    pub is_own: bool,
    /// The name under which it is shared. It is kept when the words are deleted.
    pub name: SkillName,
    /// The hash of the published SKILL.md.
    pub digest: String,
    /// When it was written there, in Unix milliseconds.
    pub at_ms: u64,
    /// The turns of that home from which it was written. None if people wrote it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<TurnId>,
    /// Whether the author has withdrawn it, while it stays in force here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_withdrawn: bool,
}

/// A skill, or a new version of one, that a model wrote or that another home shares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// Its number, from 1.
    pub n: u64,
    /// Its evidence.
    #[serde(flatten)]
    pub source: Source,
    pub name: SkillName,
    /// The complete SKILL.md.
    pub text: String,
    /// The reasons why it waits, or waited, and the figures of its trial.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub why: Vec<Reason>,
    /// The agent's own SKILL.md of that name, which it replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<String>,
    /// When the owner accepted it, in Unix milliseconds. `None` if it did not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// The home that it came from. `None` if a model wrote it here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<SharedOrigin>,
    /// Its present state.
    pub state: ProposalState,
}

/// Why a proposal waits for the owner's review, and what its trial showed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, derive_more::Display)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Reason {
    /// `skills.review` requires it for each.
    #[display("a model wrote it, and skills.review asks for your look")]
    Review,
    /// Others than the owner spoke, or were quoted, in its evidence.
    #[display(
        "tools, other people or quoted texts spoke in what it was made from: their words may be in it"
    )]
    Others,
    /// It would replace a skill that people wrote.
    #[display("it would take the place of a skill that people wrote")]
    Replaces,
    /// Another home shares it, and is not known to be of the same person.
    #[display(
        "it came from {by}, through the shared folder: what others wrote waits for your look"
    )]
    Shared { by: String },
    /// The owner removed an earlier version, or took it back.
    #[display("you removed an earlier version of it, or took it back")]
    Removed,
    /// It was not tried yet.
    #[display("it was not tried on earlier requests yet")]
    Untried,
    /// It was tried.
    #[display("{figures}")]
    Tried {
        figures: TrialFigures,
        /// When, in Unix milliseconds.
        at_ms: u64,
    },
    /// It was tried again while it was in force.
    #[display("{}", figures.again())]
    TriedAgain {
        figures: TrialFigures,
        /// When, in Unix milliseconds.
        at_ms: u64,
    },
    /// Something in it looks dangerous.
    #[display("{what}: {line:?}")]
    Suspicious { what: Suspicion, line: String },
}

/// The state of a proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProposalState {
    /// It waits for the owner's review.
    Waiting,
    /// It was added to the agent's skills.
    Accepted,
    /// The owner rejected it.
    Rejected,
    /// It was accepted and later reverted.
    Reverted,
    /// Its trial showed no gain, or a loss.
    Declined,
    /// It was in force, until a later trial showed no gain any more.
    AgedOut,
    /// Its evidence was deleted, or its author withdrew it, so its words are gone.
    Forgotten,
}

/// How far an agent's turns have been used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Number of the agent's main turns when the evolver was last asked.
    pub n_main: u64,
    /// Turns that were evidence and are not used again.
    pub used: BTreeSet<TurnId>,
    /// The tokens that trials have cost, by estimate.
    #[serde(default)]
    pub trial_tokens: u64,
}

#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ProposalStore {
    pub(crate) progress: BTreeMap<AgentId, Progress>,
    pub(crate) proposals: Vec<Proposal>,
}

// === impl Store ===

impl ProposalStore {
    pub(crate) fn read(dir: &Path) -> Result<Self, JournalError> {
        read_json(&dir.join(FILE))
    }

    pub(crate) fn write(&mut self, dir: &Path) -> Result<(), JournalError> {
        self.drop_oldest();
        write_json(&dir.join(FILE), self, write_text)
    }

    pub(crate) fn next_n(&self) -> u64 {
        self.proposals.last().map_or(1, |last| last.n + 1)
    }

    fn drop_oldest(&mut self) {
        let mut too_many = self.proposals.len().saturating_sub(MAX_KEPT);
        self.proposals.retain(|p| {
            let is_settled = p.state == ProposalState::Forgotten || p.state.is_unwanted();
            let goes = too_many > 0 && is_settled;
            too_many -= usize::from(goes);
            !goes
        });
        for progress in self.progress.values_mut() {
            while progress.used.len() > MAX_USED {
                progress.used.pop_first();
            }
        }
    }
}

// === impl ProposalState ===

impl ProposalState {
    pub(crate) fn is_unwanted(self) -> bool {
        match self {
            Self::Rejected | Self::Reverted | Self::Declined | Self::AgedOut => true,
            Self::Waiting | Self::Accepted | Self::Forgotten => false,
        }
    }
}

// === impl Proposal ===

impl Proposal {
    pub(crate) fn in_force_ms(&self) -> u64 {
        self.since_ms.unwrap_or(self.source.at_ms)
    }

    /// Replaces a waiting proposal that says less, and takes over its evidence.
    pub(super) fn takes_place_of(&mut self, before: &Self) {
        self.n = before.n;
        let (own, sources) = (&mut self.source, &before.source);
        own.sessions.extend(sources.sessions.iter().cloned());
        own.sessions.sort();
        own.sessions.dedup();
        own.turns.splice(0..0, sources.turns.iter().copied());
        if before.why.contains(&Reason::Others) && !self.why.contains(&Reason::Others) {
            self.why.push(Reason::Others);
        }
    }

    pub(crate) fn is_of(&self, agent: &AgentId, name: &SkillName) -> bool {
        self.source.agent == *agent && self.name == *name
    }

    pub(crate) fn is_accepted_of(&self, agent: &AgentId, name: &SkillName) -> bool {
        self.state == ProposalState::Accepted && self.is_of(agent, name)
    }

    pub(crate) fn is_from(&self, writer: &WriterId) -> bool {
        self.shared
            .as_ref()
            .is_some_and(|shared| shared.writer == *writer)
    }

    /// Clears its words, including its name.
    pub(crate) fn forget(&mut self) {
        self.name = SkillName::forgotten(self.n);
        self.text.clear();
        self.why.clear();
        self.former = None;
        self.state = ProposalState::Forgotten;
    }

    /// Returns whether it waits for the owner's review.
    pub fn is_waiting(&self) -> bool {
        self.state == ProposalState::Waiting
    }
}

// === impl SharedOrigin ===

impl fmt::Display for SharedOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            writer,
            person,
            machine,
            ..
        } = self;
        match (self.is_own, person.as_str()) {
            (true, _) => write!(f, "your machine {machine} ({writer})"),
            (false, "") => write!(f, "the machine {machine} ({writer}, not verified)"),
            (false, person) => write!(f, "{person}, machine {machine} ({writer}, not verified)"),
        }
    }
}

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

#[derive(Debug, Clone, Copy)]
struct Pooled {
    n: usize,
    good_with: usize,
    good_without: usize,
}

// === impl Pooled ===

impl Pooled {
    fn sum<'a>(requests: impl Iterator<Item = &'a TriedRequest>) -> Self {
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
        let n_failed = self.requests.iter().filter(|r| !r.was_good).count();
        let all = self.all();
        self.requests.len() >= MIN_TRIED
            && n_failed >= MIN_FAILED
            && all.good_with <= all.good_without
    }

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
        Pooled::sum(self.requests.iter())
    }

    fn parts(&self) -> impl Iterator<Item = Pooled> {
        let of = |was_good| {
            let requests = self.requests.iter();
            Pooled::sum(requests.filter(move |request| request.was_good == was_good))
        };
        let each = self.requests.iter().map(|r| Pooled::sum([r].into_iter()));
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
    (0..k).map(|i| (n - i) as f64 / (i + 1) as f64).product()
}

pub(super) const HISTORY_FILE: &str = "evolution_history.jsonl";
/// The file is kept below this many bytes by removing the oldest lines.
const MAX_BYTES: usize = 8 << 20;
/// Characters of each request that are kept, as in the original.
const PROMPT: usize = 300;

/// One request to the evolver.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HistoryEntry {
    /// The time in RFC 3339.
    pub timestamp: String,
    /// Number of failed turns.
    pub num_failures_analyzed: usize,
    /// Number of resulting skills.
    pub num_skills_generated: usize,
    pub skill_names: Vec<String>,
    pub skills: Vec<HistorySkill>,
    /// The end of each request.
    pub failure_prompts: Vec<String>,
    /// The agent of the turns. The original's lines have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<SessionId>,
    /// The numbers of the proposals.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub proposals: Vec<u64>,
    /// The refused parts of the answer, with reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
    /// Whether the sessions behind it were deleted, so that the words are gone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub forgotten: bool,
}

/// A skill in the history.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HistorySkill {
    pub name: String,
    pub category: String,
    pub description: String,
    pub content: String,
}

/// Returns the lines of a history, the oldest first. An unreadable line becomes an empty entry that says so in
/// `refused`.
///
/// # Errors
/// Returns the file system's error. A missing file is an empty history.
pub fn read_history(path: &Path) -> io::Result<Vec<HistoryEntry>> {
    let text = if_there(read_text(path, MAX_JOURNAL))?.unwrap_or_default();
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let read = |line| {
        serde_json::from_str(line).unwrap_or_else(|error| HistoryEntry {
            refused: vec![format!("a line that cannot be read: {error}")],
            ..HistoryEntry::default()
        })
    };
    Ok(lines.map(read).collect())
}

pub(super) fn append(path: &Path, entry: &HistoryEntry) -> io::Result<()> {
    let mut text = if_there(read_text(path, MAX_JOURNAL))?.unwrap_or_default();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&serde_json::to_string(entry)?);
    text.push('\n');
    while text.len() > MAX_BYTES {
        let Some(end) = text.find('\n') else { break };
        text.drain(..=end);
    }
    write_text(path, &text)
}

/// Removes the words from lines that came from some sessions. All other lines stay byte for byte.
pub(super) fn forget(
    path: &Path,
    is_forgotten: &dyn Fn(&AgentId, &SessionId) -> bool,
) -> io::Result<()> {
    let text = if_there(read_text(path, MAX_JOURNAL))?.unwrap_or_default();
    let mut changed = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let entry: Option<HistoryEntry> = serde_json::from_str(line).ok();
        match entry.and_then(|entry| entry.forgotten(is_forgotten)) {
            Some(entry) => changed.push_str(&(serde_json::to_string(&entry)? + "\n")),
            None => changed.push_str(line),
        }
    }
    if changed != text {
        write_text(path, &changed)?;
    }
    Ok(())
}

// === impl HistoryEntry ===

impl HistoryEntry {
    pub(super) fn new(
        agent: &AgentId,
        at_ms: u64,
        failures: &[Failure],
        proposals: &[Proposal],
        refused: &[String],
    ) -> Self {
        let skills: Vec<HistorySkill> = proposals
            .iter()
            .filter_map(HistorySkill::from_proposal)
            .collect();
        let mut sessions: Vec<SessionId> = failures.iter().map(|f| f.session.clone()).collect();
        sessions.extend(proposals.iter().flat_map(|p| p.source.sessions.clone()));
        sessions.sort();
        sessions.dedup();
        Self {
            timestamp: timestamp(at_ms),
            num_failures_analyzed: failures.len(),
            num_skills_generated: skills.len(),
            skill_names: skills.iter().map(|skill| skill.name.clone()).collect(),
            skills,
            failure_prompts: failures
                .iter()
                .map(|failure| tail(failure.trajectory.request()))
                .collect(),
            agent: Some(agent.clone()),
            sessions,
            proposals: proposals.iter().map(|proposal| proposal.n).collect(),
            refused: refused.to_vec(),
            forgotten: false,
        }
    }

    fn forgotten(self, is_forgotten: &dyn Fn(&AgentId, &SessionId) -> bool) -> Option<Self> {
        let agent = self.agent.as_ref()?;
        let mut sessions = self.sessions.iter();
        let goes = !self.forgotten && sessions.any(|session| is_forgotten(agent, session));
        goes.then(|| Self {
            skill_names: Vec::new(),
            skills: Vec::new(),
            failure_prompts: Vec::new(),
            refused: Vec::new(),
            forgotten: true,
            ..self
        })
    }
}

impl HistorySkill {
    fn from_proposal(proposal: &Proposal) -> Option<Self> {
        let skill = Skill::parse(&proposal.text).ok()?;
        Some(Self {
            name: skill.name.to_string(),
            category: skill.category,
            description: skill.description,
            content: skill.content,
        })
    }
}

fn tail(text: &str) -> String {
    let n_chars = text.chars().count();
    text.chars().skip(n_chars.saturating_sub(PROMPT)).collect()
}

fn timestamp(at_ms: u64) -> String {
    let seconds = i64::try_from(at_ms / 1_000).unwrap_or_default();
    let time = Timestamp::from_second(seconds).ok();
    time.map(|time| time.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_originals_lines_are_read_and_a_broken_one_is_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(HISTORY_FILE);
        assert_eq!(read_history(&path).unwrap(), []);
        let theirs = r#"{"timestamp":"2026-03-01T10:00:00","num_failures_analyzed":2,"num_skills_generated":1,"skill_names":["a"],"skills":[{"name":"a","category":"coding","description":"d","content":"c"}],"failure_prompts":["p"]}"#;
        std::fs::write(&path, format!("{theirs}\nbroken")).unwrap();
        let ours = HistoryEntry {
            timestamp: timestamp(1_000),
            ..HistoryEntry::default()
        };
        append(&path, &ours).unwrap();
        let read = read_history(&path).unwrap();
        assert_eq!(read[0].skills[0].content, "c");
        assert!(read[1].refused[0].starts_with("a line that cannot be read"));
        assert_eq!(read[2].timestamp, "1970-01-01T00:00:01Z");
        forget(&path, &|_, _| true).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let is_so = text.starts_with(theirs);
        assert!(is_so, "whose it was is not known: {text}");
    }
}
