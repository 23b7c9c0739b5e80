//! What of the library's folder is not used, or not as it may be meant.

use std::path::PathBuf;

use metaclaw_chat::AgentId;

use crate::{
    file::{MAX_FILE, SHARED, SKILL_FILE, WISHES_FILE},
    skill::SkillError,
};

/// A file or folder of the library that is not used, or not as it may be meant, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {fault}{}", path.display(), fault.end())]
pub struct SkillWarning {
    pub path: PathBuf,
    /// What is wrong with it.
    pub fault: SkillFault,
}

/// What is wrong with a file or folder of the library.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SkillFault {
    /// The file system would not give it.
    #[error("cannot be read: {reason}")]
    Unreadable {
        /// The file system's words.
        reason: String,
    },
    /// Too large to be an instruction.
    #[error("has {bytes} bytes, at most {MAX_FILE} are read")]
    TooLarge { bytes: u64 },
    /// Read, but no skill.
    #[error(transparent)]
    NoSkill(#[from] SkillError),
    /// Another file has the same name.
    #[error("has the same name {name:?} as {}", first.display())]
    SameName {
        name: String,
        /// The file that is used.
        first: PathBuf,
    },
    /// A folder that is neither a skill nor can be an agent's.
    #[error(transparent)]
    FolderName(#[from] metaclaw_chat::NameError),
    /// Longer than the skills of a request may be together.
    #[error("costs about {tokens} tokens and skills.budget_tokens is {budget}, so it never fits")]
    OverBudget {
        /// About what it costs.
        tokens: usize,
        budget: usize,
    },
    /// A file that is read only in capitals.
    #[error("is not read: it must be called {name}")]
    Misnamed {
        /// What it must be called.
        name: &'static str,
    },
    #[error(
        "is nobody's: put everyone's wishes into {SHARED}/{WISHES_FILE}, and those of one agent into its folder, as main/{WISHES_FILE}"
    )]
    WishesOfNobody,
    /// A skill without a folder of its own.
    #[error("is not read: a skill has a folder of its own, as {SHARED}/NAME/{SKILL_FILE}")]
    NoFolder,
    /// Text, and no list item.
    #[error("has no wish in it: a wish is a line that begins with \"- \"")]
    NoWish,
    /// Neither an agent's folder nor a skill's.
    #[error(
        "is no skill, as it has no {SKILL_FILE}, and no agent's, as it has no {WISHES_FILE} and no skill in it"
    )]
    NoLesson,
    /// A folder of skills that may be meant as a group.
    #[error(
        "is taken for the folder of an agent called {agent}, whom nobody has met: only such an agent gets its skills; put those for all agents into {SHARED}/"
    )]
    UnknownAgent { agent: AgentId },
}

// === impl SkillFault ===

impl SkillFault {
    /// What becomes of it, where the fault does not say so.
    fn end(&self) -> &'static str {
        match self {
            Self::Unreadable { .. }
            | Self::TooLarge { .. }
            | Self::NoSkill(_)
            | Self::SameName { .. }
            | Self::FolderName(_)
            | Self::OverBudget { .. } => "; skipped",
            Self::Misnamed { .. }
            | Self::WishesOfNobody
            | Self::NoFolder
            | Self::NoWish
            | Self::NoLesson
            | Self::UnknownAgent { .. } => "",
        }
    }
}
