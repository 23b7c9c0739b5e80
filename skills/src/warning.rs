//! Warnings about files in the library's folder that are not used, or probably not as intended.

use std::path::PathBuf;

use metaclaw_chat::AgentId;

use crate::{
    file::{MAX_FILE, SHARED, SKILL_FILE, WISHES_FILE},
    skill::SkillError,
};

/// A file or folder of the library that is not used, or probably not as intended, with the reason.
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
    /// The file system refused to read it.
    #[error("cannot be read: {reason}")]
    Unreadable {
        /// The file system's message.
        reason: String,
    },
    /// It is too large to be an instruction.
    #[error("has {bytes} bytes, at most {MAX_FILE} are read")]
    TooLarge { bytes: u64 },
    /// It was read, but is not a valid skill.
    #[error(transparent)]
    NoSkill(#[from] SkillError),
    /// It is a skill, whose front matter was read line by line.
    #[error(
        "line {line} is no YAML, so its front matter is read line by line. Put quotation marks around the value"
    )]
    NoYaml { line: u64 },
    /// Another file has the same name.
    #[error("has the same name {name:?} as {}", first.display())]
    SameName {
        name: String,
        /// The file that is used.
        first: PathBuf,
    },
    /// The folder is neither a skill, nor is its name a valid agent name.
    #[error(transparent)]
    FolderName(#[from] metaclaw_chat::NameError),
    /// It is longer than all skills of a request together may be.
    #[error("costs about {tokens} tokens and skills.budget_tokens is {budget}, so it never fits")]
    OverBudget {
        /// Its approximate cost.
        tokens: usize,
        budget: usize,
    },
    /// The file is read only if its name is upper case.
    #[error("is not read: it must be called {name}")]
    Misnamed {
        /// Its required name.
        name: &'static str,
    },
    #[error(
        "is nobody's: put everyone's wishes into {SHARED}/{WISHES_FILE}, and those of one agent into its folder, as main/{WISHES_FILE}"
    )]
    WishesOfNobody,
    /// A skill without its own folder.
    #[error("is not read: a skill has a folder of its own, as {SHARED}/NAME/{SKILL_FILE}")]
    NoFolder,
    /// The file has text, but no list item.
    #[error("has no wish in it: a wish is a line that begins with \"- \"")]
    NoWish,
    /// The folder is neither an agent's nor a skill's.
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
    /// Returns how the message ends if the fault does not say what happens to the file.
    fn end(&self) -> &'static str {
        match self {
            Self::Unreadable { .. }
            | Self::TooLarge { .. }
            | Self::NoSkill(_)
            | Self::SameName { .. }
            | Self::FolderName(_)
            | Self::OverBudget { .. } => "; skipped",
            Self::NoYaml { .. }
            | Self::Misnamed { .. }
            | Self::WishesOfNobody
            | Self::NoFolder
            | Self::NoWish
            | Self::NoLesson
            | Self::UnknownAgent { .. } => "",
        }
    }
}
