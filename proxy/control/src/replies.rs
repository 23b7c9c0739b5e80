//! The types of lower crates that replies of operations contain.
//!
//! An addon needs them, and depends only on this crate and `metaclaw-chat`.

pub use metaclaw_gateway::UpstreamAnswers;
pub use metaclaw_learner::{
    AgentStatus, GateReport, LearnerStatus, POLICY_UPSTREAM, Phase, StepPreview, StepReport,
};
pub use metaclaw_schedule::SavedState;
pub use metaclaw_skills::{Lesson, LessonState, Proposal, ProposalState, Skill};
pub use metaclaw_turns::{
    ConversationPage, ConversationSummary, Funnel, LessonCounts, Step, StepOutcome, StreamEnd,
    Turn, TurnKind, TurnMeta, TurnState, TurnSummary,
};
