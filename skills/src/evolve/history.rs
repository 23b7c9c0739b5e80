//! `evolution_history.jsonl`: one line for each request to the evolver, in the original's form.
//!
//! The original's fields come first, with its names. Our fields after them give the agent and the results.

use std::{io, path::Path};

use jiff::Timestamp;
use metaclaw_chat::{AgentId, SessionId, if_there};
use serde::{Deserialize, Serialize};

use super::{prompt::Failure, proposal::Proposal};
use crate::{
    file::{MAX_JOURNAL, read_text, write_text},
    skill::Skill,
};

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
