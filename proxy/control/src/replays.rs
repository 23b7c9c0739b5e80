//! Replays of a home: where they stand on disk, and one at a time.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, anyhow};
use futures_util::future::BoxFuture;
use metaclaw_chat::{AgentId, if_there};
use metaclaw_learner::{
    Learner, LearnerConfig, Recorder, ReplayEvent, ReplayReport, ReplayWanted, ReportTo,
};
use metaclaw_trainer_api::AdapterName;
use metaclaw_turns::{TurnLog, TurnsConfig};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

/// What is to be trained again, as a command asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayAsked {
    /// By which it is known; its numbers lie in a folder of this name.
    pub name: AdapterName,
    pub agent: AgentId,
    /// Only sessions that ended since then, in Unix milliseconds.
    pub since_ms: Option<u64>,
    pub steps: Option<usize>,
    pub seed: Option<u64>,
    /// Keys of settings with their values.
    pub set: Vec<(String, String)>,
}

/// Reads settings anew with the values of some keys.
pub type Overridden = fn(&LearnerConfig, &[(String, String)]) -> anyhow::Result<LearnerConfig>;

#[derive(Debug)]
pub struct Replays {
    scratch: PathBuf,
    numbers: PathBuf,
    report_to: Vec<ReportTo>,
    overridden: Overridden,
    /// One at a time: they would train in each other's way.
    running: Mutex<()>,
}

// === impl Replays ===

impl Replays {
    /// With a folder for the copy of the log, and one for numbers.
    pub fn new(
        scratch: PathBuf,
        numbers: PathBuf,
        report_to: &[ReportTo],
        overridden: Overridden,
    ) -> Self {
        Self {
            scratch,
            numbers,
            report_to: report_to.to_vec(),
            overridden,
            running: Mutex::new(()),
        }
    }

    /// Replays; `told` hears how it goes. The copy of the log is gone afterwards.
    ///
    /// # Errors
    /// Where one runs already, a setting is refused, or the learner's.
    ///
    /// # Cancel safety
    /// A dropped replay ends where it stands; the next one clears up behind it.
    pub fn run<'a>(
        &'a self,
        learner: &'a Learner,
        asked: ReplayAsked,
        told: Box<dyn FnMut(ReplayEvent) + Send + 'a>,
    ) -> BoxFuture<'a, anyhow::Result<ReplayReport>> {
        Box::pin(async move {
            let running = self.running.try_lock();
            let _running = running.map_err(|_| anyhow!("a replay is under way: one at a time"))?;
            let config = (self.overridden)(learner.config(), &asked.set)?;
            let recorder = Recorder::new(self.numbers.join(asked.name.as_str()), &self.report_to);
            let wanted = ReplayWanted {
                name: asked.name.to_string(),
                agent: asked.agent,
                since_ms: asked.since_ms,
                steps: asked.steps,
                seed: asked.seed,
                config,
            };
            let scratch = self.open().await?;
            let done = learner
                .replay(wanted, scratch.clone(), recorder, told)
                .await;
            scratch.close().await;
            self.clear()?;
            Ok(done?)
        })
    }

    /// An empty log; what an interrupted replay left is gone.
    async fn open(&self) -> anyhow::Result<TurnLog> {
        self.clear()?;
        let folder = self.scratch.clone();
        // What is copied was masked when it was kept.
        let config = TurnsConfig {
            mask_secrets: false,
            ..TurnsConfig::default()
        };
        let opened = tokio::task::spawn_blocking(move || TurnLog::open(&folder, &config));
        Ok(opened.await??)
    }

    fn clear(&self) -> anyhow::Result<()> {
        if_there(fs::remove_dir_all(&self.scratch))
            .map(drop)
            .with_context(|| format!("cannot remove {}", self.scratch.display()))
    }
}
