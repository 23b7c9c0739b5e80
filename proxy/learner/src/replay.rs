//! Weights trained again from the log: other settings, another seed, a lineage of their own.
//!
//! The loop is the one beside the chat ([`Training`]): it runs over a copy of the log in which nothing was trained yet, and
//! into which sessions come in the order in which they ended. What was judged is not judged again; the teacher, the batches,
//! the steps and the gate are those of the settings. Nothing that it makes serves.

use std::{collections::BTreeMap, sync::Arc};

use metaclaw_chat::{AgentId, Span, TurnId};
use metaclaw_turns::{LogError, StateKind, TurnLog};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{LearnerConfig, Mode, RlConfig},
    error::TrainError,
    lineage::Replayed,
    metrics::Recorder,
    shared::{Parts, Shared},
    status::StepReport,
    step::TrainingContext,
    training::Training,
};

/// A hundred years. What is replayed is as old as it is, and a batch goes when it is full.
const NEVER: Span = Span::hours(100 * 365 * 24);
const JUDGED: [StateKind; 4] = [
    StateKind::Judged,
    StateKind::Taken,
    StateKind::Trained,
    StateKind::Spent,
];

/// What is to be replayed.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplayWanted {
    /// A name for it, which the checkpoints tell.
    pub name: String,
    pub agent: AgentId,
    /// Only sessions whose last turn ended since then, in Unix milliseconds.
    pub since_ms: Option<u64>,
    pub steps: Option<usize>,
    /// The seed of the first weights; none: one is drawn.
    pub seed: Option<u64>,
    /// The settings; when and for whom weights learn does not matter here.
    pub config: LearnerConfig,
}

/// How a replay goes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum ReplayEvent {
    Began {
        n_sessions: usize,
    },
    /// A step was made.
    Step(Box<StepReport>),
    /// Sessions came into it.
    Read {
        n_sessions: usize,
    },
    Ended(ReplayReport),
    /// The last event of a replay that failed, for whoever follows it from another process.
    Failed {
        why: String,
    },
}

/// What a replay came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayReport {
    pub name: String,
    pub agent: AgentId,
    /// Sessions that it had.
    pub n_sessions: usize,
    /// Steps that were made, those among them that the gate declined.
    pub n_steps: usize,
    /// The last adapter, of those that passed the gate where it is on; none where there is none.
    pub adapter: Option<String>,
    /// Samples that waited for more when it ended; none where it ended before all was read.
    pub n_left: Option<usize>,
    /// Turns that the teacher had nothing to teach for, by reason.
    pub not_taught: BTreeMap<String, usize>,
}

/// Replays an agent's sessions.
///
/// # Errors
/// [`TrainError`].
pub(crate) async fn replay(
    of: &Shared,
    wanted: ReplayWanted,
    scratch: TurnLog,
    recorder: Recorder,
    mut told: impl FnMut(ReplayEvent) + Send,
) -> Result<ReplayReport, TrainError> {
    let backend = of.backend.clone().ok_or(TrainError::NoBackend)?;
    let sessions = sessions(of, &wanted).await?;
    told(ReplayEvent::Began {
        n_sessions: sessions.len(),
    });
    let shared = Arc::new(again(of, &wanted, scratch, recorder));
    let mut context = TrainingContext::new(Arc::clone(&shared), backend);
    context.replay = Some(Replayed {
        name: wanted.name.clone(),
        seed: wanted.seed,
        since_ms: wanted.since_ms,
    });
    let mut training = Training::new(context);
    let replaying = Replaying {
        of,
        shared: &shared,
        wanted: &wanted,
        sessions: &sessions,
    };
    let made = replaying.steps(&mut training, &mut told).await;
    training.close().await;
    let (n_steps, adapter) = made?;
    let notes = shared.status.read();
    let known = notes.agents.get(&wanted.agent);
    let is_whole = wanted.steps.is_none_or(|most| n_steps < most);
    let report = ReplayReport {
        n_left: is_whole.then(|| training.n_left(&wanted.agent)),
        not_taught: known.map(|k| k.not_taught.clone()).unwrap_or_default(),
        name: wanted.name,
        agent: wanted.agent,
        n_sessions: sessions.len(),
        n_steps,
        adapter,
    };
    told(ReplayEvent::Ended(report.clone()));
    Ok(report)
}

struct Replaying<'a> {
    of: &'a Shared,
    shared: &'a Shared,
    wanted: &'a ReplayWanted,
    sessions: &'a [u64],
}

// === impl Replaying ===

impl Replaying<'_> {
    async fn steps(
        self,
        training: &mut Training,
        told: &mut (impl FnMut(ReplayEvent) + Send),
    ) -> Result<(usize, Option<String>), TrainError> {
        let most = self.wanted.steps.unwrap_or(usize::MAX);
        let (mut n_steps, mut adapter) = (0, None);
        for (n_sessions, session) in (1..).zip(self.sessions) {
            if n_steps >= most {
                break;
            }
            self.of.log.copy_session(*session, &self.shared.log).await?;
            told(ReplayEvent::Read { n_sessions });
            let stepped = |report: StepReport| {
                if report.serves {
                    adapter = Some(report.adapter.clone());
                }
                told(ReplayEvent::Step(Box::new(report)));
            };
            let made = training.all_steps(&self.wanted.agent, most - n_steps, stepped);
            n_steps += made.await?;
        }
        Ok((n_steps, adapter))
    }
}

/// The agent's sessions that have verdicts, by number, in the order in which they ended.
async fn sessions(of: &Shared, wanted: &ReplayWanted) -> Result<Vec<u64>, LogError> {
    let mut last: BTreeMap<u64, TurnId> = BTreeMap::new();
    for kind in JUDGED {
        let ids = of.in_state(&wanted.agent, kind).await?;
        for id in ids {
            let known = last.entry(id.session).or_insert(id);
            *known = id.max(*known);
        }
    }
    let mut sessions = Vec::with_capacity(last.len());
    for (session, id) in last {
        let turn = of.turn(id).await?;
        let Some(turn) = turn else {
            continue;
        };
        let ended_ms = turn.meta.ended_ms;
        if wanted.since_ms.is_none_or(|since_ms| ended_ms >= since_ms) {
            sessions.push((ended_ms, session));
        }
    }
    sessions.sort_unstable();
    Ok(sessions.into_iter().map(|(_, session)| session).collect())
}

/// The same learner over another log, with other settings: it trains whenever a batch is full, and nothing serves by it.
fn again(of: &Shared, wanted: &ReplayWanted, log: TurnLog, recorder: Recorder) -> Shared {
    let config = LearnerConfig {
        mode: Mode::Rl,
        agents: BTreeMap::new(),
        rl: RlConfig {
            max_age: NEVER,
            max_wait: NEVER,
            ..wanted.config.rl.clone()
        },
        ..wanted.config.clone()
    };
    let parts = Parts {
        config,
        log,
        backend: of.backend.clone(),
        judge: of.judge.clone(),
        // A replay hears nothing.
        listener: None,
        external_teacher: of.external_teacher.clone(),
        advantages: of.advantages.clone(),
        schedule: of.schedule.clone(),
        library: of.library.clone(),
        memory: None,
        is_off: Arc::new(|_| false),
        is_chatting: Arc::new(|| false),
        evolver: None,
        recorder,
        folder: of.folder.clone(),
        on_swap: Arc::new(|_, _| ()),
    };
    Shared::new(parts, CancellationToken::new())
}
