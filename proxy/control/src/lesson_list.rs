//! Lists all lessons of an agent: MetaClaw's, and those that the agent's own software has learned.

use metaclaw_chat::{AgentId, display_as_serde};
use metaclaw_skills::{HeldBack, HostReading, Library};
use serde::{Deserialize, Serialize};

/// All lessons of one agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LessonList {
    pub agent: AgentId,
    /// When this text of the host was first seen, in Unix milliseconds, or `None` if that is not known.
    pub host_seen_ms: Option<u64>,
    pub lessons: Vec<ListedLesson>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LessonSource {
    Ours,
    /// A lesson of the agent's own software.
    Host,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LessonKind {
    Wish,
    Skill,
    /// A line that the host keeps about its owner.
    Note,
    /// A rule of the host for a kind of task.
    Intent,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedLesson {
    pub source: LessonSource,
    pub kind: LessonKind,
    /// Its words, or a skill's name.
    pub lesson: String,
    /// What a skill is for, or what a note is limited to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// Why it is not used: the host says the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_back: Option<String>,
}

// === impl LessonList ===

impl LessonList {
    /// Returns the lessons of an agent.
    pub fn new(library: &Library, agent: &AgentId) -> Self {
        let mut lessons = ours(library, agent);
        let host = library.host(agent);
        let host_seen_ms = host.as_ref().map(|host| host.at_ms);
        lessons.extend(host.map(hosts).into_iter().flatten());
        Self {
            agent: agent.clone(),
            host_seen_ms,
            lessons,
        }
    }
}

fn ours(library: &Library, agent: &AgentId) -> Vec<ListedLesson> {
    let held: HeldBack = library.held_back(agent);
    let wishes = library.wishes(agent).into_iter().map(|wish| ListedLesson {
        source: LessonSource::Ours,
        kind: LessonKind::Wish,
        about: None,
        held_back: held
            .line_for(&wish)
            .map(|line| format!("the host says: {line}")),
        lesson: wish.text,
    });
    let skills = library.skills(agent).into_iter().map(|skill| ListedLesson {
        source: LessonSource::Ours,
        kind: LessonKind::Skill,
        lesson: skill.name.to_string(),
        about: Some(skill.description.clone()),
        held_back: held
            .skills
            .contains(&skill.name)
            .then(|| "the host has one of this name".to_owned()),
    });
    wishes.chain(skills).collect()
}

fn hosts(host: HostReading) -> Vec<ListedLesson> {
    let of = |kind, lesson, about| ListedLesson {
        source: LessonSource::Host,
        kind,
        lesson,
        about,
        held_back: None,
    };
    let lessons = host.lessons;
    let notes = lessons.notes.into_iter();
    let notes = notes.map(|note| of(LessonKind::Note, note.text, note.within));
    let intents = lessons.intents.into_iter();
    let intents = intents.map(|intent| of(LessonKind::Intent, intent, None));
    let skills = lessons.skills.into_iter().map(|skill| {
        let about = Some(skill.description).filter(|it| !it.is_empty());
        of(LessonKind::Skill, skill.name, about)
    });
    notes.chain(intents).chain(skills).collect()
}

display_as_serde!(LessonSource, LessonKind);
