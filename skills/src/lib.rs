//! Lessons: the files on disk, the selection for a request, and the text that is added to it.
//!
//! A *skill* is a SKILL.md file that is used when the owner's message needs it. A *wish* is one line of WISHES.md that
//! is always used. A *memory* is a fact that the owner told, for sessions that it may help. Everything here works on files and text, without a model or the network: prompts and answers of a
//! model are only texts here.

mod bank;
mod config;
mod evidence;
mod evolve;
mod file;
mod guard;
mod hearing;
mod holder;
mod host;
mod host_learning;
mod journal;
mod learn;
mod library;
mod memory;
mod render;
mod retrieve;
mod scan;
mod share;
mod skill;
mod standing;
mod wishes;
mod words;

pub use crate::{
    bank::install as install_bank,
    config::{
        MemoryConfig, Refresh, RetrievalMode, ShareConfig, SkillsConfig, WishPlace, WishesConfig,
    },
    evidence::LessonEvidence,
    evolve::{
        EvolutionRun, EvolveError, Evolved, Failure, HistoryEntry, HistorySkill, MIN_TRIED,
        Progress, Proposal, ProposalState, Reason, SharedOrigin, SkillTrial, Source, TRIAL_DRAWS,
        Teller, Trajectory, TrajectoryStep, TrialFigures, TrialVerdict, TriedRequest, read_history,
    },
    file::{JournalError, WriterId, WriterIdError, read_text, remove_drafts, write_private},
    guard::{Suspicion, suspicions},
    hearing::{Certainty, Facet, Heard, Question, Remark, hear, is_doubtful, remark},
    holder::Holder,
    host::{HeldBack, HostLessons, HostNote, HostReading, HostSkill, host_part},
    journal::{Lesson, LessonState, Origin},
    learn::{LearnError, TakenBack},
    library::{Lessons, Library, OfWeights, SkillRef},
    memory::{
        BufferedSession, BufferedTurn, Consolidated, Fact, FactQuestion, MEMORY_HEADING, Memory,
        MemoryError, MemoryHit, MemoryKind, MemoryKindError, MemoryPolicy, MemoryScope,
        MemoryState, MemoryStore, Recall, Remembered, memory_json, plain_facts, search_json,
        stats_json, summary_json,
    },
    render::{user_line, without_wishes},
    scan::{SkillFault, SkillWarning},
    share::{
        FolderStore, ShareError, ShareFile, ShareKey, SharePeer, ShareReport, ShareStore, ShareSync,
    },
    skill::{Skill, SkillError, SkillName, SkillNameError},
    standing::SettledLessons,
    wishes::{Wish, WishError},
    words::{estimate_tokens, terms},
};
