//! Which turns the lessons in force came from, and when the last of these lessons came into force.

use std::collections::BTreeSet;

use metaclaw_chat::{AgentId, TurnId};

use crate::{
    evolve::EvolveError,
    journal::{Lesson, LessonState, Origin},
    library::Library,
};

/// The evidence for the lessons that are in force for one agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LessonEvidence {
    /// The failed turns from which a model wrote the skills.
    pub failed: BTreeSet<TurnId>,
    /// The turns in which the owner said the wishes, and the complaints that became wishes.
    pub said: BTreeSet<TurnId>,
    /// When a lesson of the agent or of all agents last came into force, in Unix milliseconds. `None` if none is in
    /// force.
    pub changed_ms: Option<u64>,
}

// === impl Library ===

impl Library {
    /// Returns the evidence for an agent's lessons. A lesson that people wrote by hand has no evidence. A lesson whose
    /// line or file was removed by hand does not count. It accesses the file system, and waits for a lesson that is
    /// being learned.
    ///
    /// # Errors
    /// Returns [`EvolveError::File`] if the history of lessons or the proposals cannot be read.
    pub fn evidence(&self, agent: &AgentId) -> Result<LessonEvidence, EvolveError> {
        // A wish is in its file, and so in force, a moment before its turns are in the history.
        let _lock = self.lock_lessons()?;
        let (journal, proposals) = (self.journal()?, self.proposals()?);
        let mut evidence = LessonEvidence::default();
        for lesson in &journal {
            if is_wish_of(agent, lesson) {
                evidence.came_into_force(lesson.in_force_ms());
                let same = journal.iter().filter(|other| led_to(other, lesson));
                evidence.said.extend(same.filter_map(|s| s.origin.turn));
            }
        }
        for proposal in &proposals {
            let name = &proposal.name;
            if proposal.is_accepted_of(agent, name) && self.skill(agent, name).is_some() {
                evidence.came_into_force(proposal.in_force_ms());
                evidence.failed.extend(&proposal.source.turns);
            }
        }
        Ok(evidence)
    }
}

// === impl LessonEvidence ===

impl LessonEvidence {
    fn came_into_force(&mut self, at_ms: u64) {
        self.changed_ms = self.changed_ms.max(Some(at_ms));
    }
}

fn is_wish_of(agent: &AgentId, lesson: &Lesson) -> bool {
    let Origin {
        agent: of, sender, ..
    } = &lesson.origin;
    lesson.state == LessonState::InForce && (of == agent || of.is_shared()) && sender.is_none()
}

/// Returns whether a lesson is this one in force, or an earlier complaint that led to it.
fn led_to(earlier: &Lesson, lesson: &Lesson) -> bool {
    earlier.origin.agent == lesson.origin.agent
        && earlier.wish == lesson.wish
        && earlier.n <= lesson.n
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{SkillsConfig, WishesConfig},
        hearing::{Certainty, Facet, Heard},
    };

    fn said(seq: u32) -> Origin {
        Origin {
            agent: AgentId::default_agent(),
            session: Some("s".parse().unwrap()),
            turn: Some(id(seq)),
            sender: None,
            at_ms: u64::from(seq),
        }
    }

    fn id(seq: u32) -> TurnId {
        TurnId { session: 1, seq }
    }

    #[test]
    fn what_was_said_before_a_wish_is_evidence_while_the_wish_stands() {
        let dir = tempfile::tempdir().unwrap();
        let (library, _) =
            Library::open(dir.path(), SkillsConfig::default(), WishesConfig::default());
        let agent = AgentId::default_agent();
        let complaint = || Heard::Complaint {
            facet: Facet::Length,
            wish: "Keep answers short.",
            text: "Too long.".to_owned(),
        };
        library.learn(&complaint(), said(1)).unwrap();
        let none = LessonEvidence::default();
        assert_eq!(library.evidence(&agent).unwrap(), none, "only noted");
        let lesson = library.learn(&complaint(), said(5)).unwrap().unwrap();
        let evidence = library.evidence(&agent).unwrap();
        assert_eq!(evidence.said, BTreeSet::from([id(1), id(5)]));
        assert_eq!(evidence.changed_ms, Some(5));

        let wish = Heard::Wish {
            said: "Use the metric system.".to_owned(),
            wish: "Use the metric system.".to_owned(),
            facet: None,
            certainty: Certainty::Likely,
        };
        library.learn(&wish, said(7)).unwrap();
        assert_eq!(library.evidence(&agent).unwrap(), evidence, "it waits");
        let other: AgentId = "other".parse().unwrap();
        assert_eq!(library.evidence(&other).unwrap(), none);
        library
            .write_down(&AgentId::shared(), "Be kind.", 9)
            .unwrap();
        assert_eq!(library.evidence(&other).unwrap().changed_ms, Some(9));
        library.undo(lesson.n).unwrap();
        assert_eq!(library.evidence(&agent).unwrap().said, BTreeSet::new());
    }
}
