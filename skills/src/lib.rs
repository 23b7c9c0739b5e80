//! Wishes and skills: what is on disk, what of it fits a request, and how it is written into one.
//!
//! A *skill* is a SKILL.md file that is retrieved when the owner's message asks for it; a *wish* is
//! one line of WISHES.md that always stands. Everything here works on files and text; nothing asks a
//! model or the network: what a model is asked for skills, and what it answers, are texts here.

mod bank;
mod config;
mod evolve;
mod file;
mod guard;
mod hearing;
mod host;
mod host_learning;
mod journal;
mod learn;
mod library;
mod lock;
mod patterns;
mod render;
mod retrieve;
mod scan;
mod skill;
mod undo;
mod warning;
mod wishes;
mod words;

pub use self::{
    bank::{BankError, install as install_bank},
    config::{Refresh, SkillsConfig, WishPlace, WishesConfig},
    evolve::{
        EvolutionRun, EvolveError, Evolved, Failure, HistoryEntry, HistorySkill, Progress,
        Proposal, ProposalState, Reason, Source, Step, Teller, Trajectory, read_history,
    },
    file::read_text,
    guard::{Suspicion, suspicions},
    hearing::{Certainty, Facet, Heard, Question, hear},
    host::{HeldBack, HostLessons, HostNote, HostReading, HostSkill, host_part},
    journal::{JournalError, Lesson, LessonState, Origin},
    learn::LearnError,
    library::{Lessons, Library, OfWeights, SkillRef},
    render::{user_line, without_wishes},
    skill::{NameError, Skill, SkillError, SkillName},
    undo::{TakenBack, UndoError},
    warning::{SkillFault, SkillWarning},
    wishes::{Wish, WishError},
};
