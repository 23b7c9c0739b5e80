//! The loop behind the chat: judge what happened, batch what can be learned, train, swap.
//!
//! The learner runs as background tasks. No chat request waits for them. `tokens` fetches what the trainer sampled as
//! soon as a turn is in the log; `judging` judges a turn when the next one of its session shows what
//! came of it, or when nobody speaks there any more; `training` turns judged turns into samples and samples into steps. The log holds all
//! state between them, so that a killed process goes on where it was. Beside them `hearing` writes wishes down, and
//! `evolution` asks a model for skills that would have prevented what went wrong.
//!
//! ```text
//! turn -> (what follows) -> verdict -> sample -> batch -> step -> adapter -> served
//! ```

mod advantages;
mod batch;
mod calls;
mod config;
mod error;
mod eval;
mod evolution;
mod evolver;
mod external_teacher;
mod feed;
mod feedback;
mod formulas;
mod gate;
mod heard_turns;
mod held_out_rollouts;
mod host;
mod judge;
mod judging;
mod learner;
mod lineage;
mod listener;
mod memory_extraction;
mod methods;
mod metrics;
mod owner_text;
mod policy;
mod replay;
mod sample;
mod sft;
mod shared;
mod status;
mod step;
mod teacher;
#[cfg(test)]
mod testing;
mod tokens;
mod trainer;
mod training;
mod trials;
mod unread;
mod wish_detection;

pub use crate::{
    advantages::AdvantageFunction,
    config::{
        AgentConfig, GateConfig, GatePart, JudgeConfig, JudgeKind, LearnerConfig, Methods, Mode,
        RlConfig, RlConfigError, RolloutsConfig, SupportQuery, TargetForm, Teacher, Words,
    },
    error::{NoTokenIds, TrainError},
    eval::{EvalError, EvalReport, EvalRow, EvalTurns, EvalWanted, Replied},
    evolver::{Evolver, MayStart},
    external_teacher::ExternalTeacher,
    feedback::{About, Feedback, FeedbackError, Rated},
    gate::{GateReport, GateTest, KnowledgeNumbers, ReplyNumbers, ReplyPair},
    held_out_rollouts::WantedRollouts,
    host::note_hosts,
    judge::{Ask, AskFailed, Judge, Post, PostFailed, RewardFunction},
    learner::Learner,
    lineage::{BatchStats, DataSetUse, Drift, Numbers, Replayed, RolloutStats, Spread},
    listener::Listener,
    memory_extraction::{IngestError, IngestedSession},
    metrics::{Recorder, ReportTo, StepFigures, WandbClient},
    replay::{ReplayEvent, ReplayReport, ReplayWanted},
    sample::{AdvantageForm, POLICY_UPSTREAM},
    sft::{
        HeldOutRows, RateSchedule, SftEpoch, SftError, SftEvent, SftOrigin, SftPlanned, SftReport,
        SftStep, SftWanted,
    },
    shared::{IsChatting, IsOff, OnSwap, Parts},
    status::{
        AgentStatus, BeganAnew, Declined, HearingStatus, JudgingStatus, LearnerCounts,
        LearnerStatus, Phase, StepReport, SupportCounts, WasTakenBack,
    },
    step::{SamplePreview, SpentTurn, StepPreview, TokenPreview, TurnPreview},
    wish_detection::{WITH_WORDS, WITHOUT_WORDS},
};
