//! One episode: a rollout is opened, its program is run, and the rollout is closed with what it earned.

use std::{pin::pin, time::Duration};

use futures_util::future;
use metaclaw_chat::RolloutId;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    file::{RewardSource, RolloutFile},
    host::RunHost,
    pool::{EnvironmentPool, PoolError, PoolSlot},
    program::{ProgramEnd, ProgramError, ProgramJob},
    proxy::{OpenedRollout, ProxyClient, ProxyError, RolloutClosing, RolloutRequest, RolloutView},
    reward::{EndedEpisode, RewardGiver},
    task::RolloutTask,
    tracks::EpisodeScore,
};

/// The time beyond a program's own timeout for its end and for the reward, in seconds.
const OVERTIME_S: u64 = 300;
/// How long a turn may take from the end of its reply into the log.
const LAST_TURN: Duration = Duration::from_secs(5);
const SETTLE_PAUSE: Duration = Duration::from_millis(250);
const TURNS_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EpisodeEnd {
    Scored(EpisodeScore),
    /// Its program was ended, because it took too long or too many turns. It counts for nothing in training, and as no
    /// success in a measurement.
    OverLimit(String),
    /// Something failed; the text says what. It counts for nothing.
    Failed(String),
    /// Nobody was there to close it. It counts for nothing.
    Unfinished,
}

#[derive(Debug)]
pub(crate) struct FinishedEpisode {
    pub end: EpisodeEnd,
    pub next: AfterEpisode,
}

#[derive(Debug)]
pub(crate) enum AfterEpisode {
    Continue,
    /// Its place or the model was gone: the episode is run again.
    Rerun,
    /// The run ends.
    Stop(TaskRunError),
}

/// Why a run cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum TaskRunError {
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    #[error(transparent)]
    Pool(PoolError),
    #[error("the journal {path} cannot be read or written: {source}")]
    Journal {
        path: String,
        source: std::io::Error,
    },
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    #[error("{0}")]
    Refused(String),
}

#[derive(Debug)]
pub(crate) struct EpisodeRunner<'a> {
    pub file: &'a RolloutFile,
    pub host: &'a dyn RunHost,
    pub http: &'a reqwest::Client,
    pub proxy: &'a ProxyClient,
    pub pool: &'a EnvironmentPool,
}

#[derive(Debug)]
pub(crate) struct ReadyEpisode<'a> {
    pub slot: PoolSlot<'a>,
    pub opened: OpenedRollout,
}

#[derive(Debug)]
pub(crate) struct OpenedEpisode<'a> {
    pub opened: &'a OpenedRollout,
    pub task: &'a RolloutTask,
    pub cancel: &'a CancellationToken,
}

// === impl EpisodeRunner ===

impl EpisodeRunner<'_> {
    pub(crate) async fn open<'p>(
        &'p self,
        request: &RolloutRequest,
        cancel: &CancellationToken,
    ) -> Result<ReadyEpisode<'p>, TaskRunError> {
        let opening = async {
            let slot = self.pool.take().await.map_err(TaskRunError::Pool)?;
            let opened = self.proxy.open(request).await?;
            Ok(ReadyEpisode { slot, opened })
        };
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(TaskRunError::Interrupted),
            ready = opening => ready,
        }
    }

    /// Runs the program of an opened rollout, and closes the rollout.
    ///
    /// # Errors
    /// If the proxy does not answer; the rollout is open then.
    pub(crate) async fn run(
        &self,
        slot: PoolSlot<'_>,
        episode: &OpenedEpisode<'_>,
    ) -> Result<FinishedEpisode, TaskRunError> {
        let job = self.job(episode);
        let rollout = job.rollout.as_str();
        let ending = episode.cancel.child_token();
        let mut over_limit = None;
        let ended = {
            let mut running = pin!(slot.run(&job, &ending));
            tokio::select! {
                ended = &mut running => ended,
                why = self.too_many_turns(&job.rollout) => {
                    over_limit = Some(why);
                    ending.cancel();
                    running.await
                }
            }
        };
        let (end, next) = match (ended, over_limit) {
            (Ok(ended), _) => self.judged(episode, &ended).await?,
            (Err(PoolError::Program(ProgramError::Interrupted)), Some(why)) => {
                (EpisodeEnd::OverLimit(why), AfterEpisode::Continue)
            }
            (Err(PoolError::Program(ProgramError::Interrupted)), None) => {
                let stop = AfterEpisode::Stop(TaskRunError::Interrupted);
                (EpisodeEnd::Unfinished, stop)
            }
            (Err(error), _) => {
                let next = match error {
                    PoolError::Gone { .. } => AfterEpisode::Rerun,
                    PoolError::Program(_) | PoolError::NoneLeft => AfterEpisode::Continue,
                };
                (EpisodeEnd::Failed(error.to_string()), next)
            }
        };
        Ok(FinishedEpisode {
            end: self.close(rollout, end).await?,
            next,
        })
    }

    /// Returns how an episode ended. It is run again if the model is not served when its program ends.
    async fn judged(
        &self,
        episode: &OpenedEpisode<'_>,
        ended: &ProgramEnd,
    ) -> Result<(EpisodeEnd, AfterEpisode), TaskRunError> {
        // A program that ends because nobody answers it has not failed at its task.
        if !ended.timed_out && !self.proxy.is_ready().await {
            let why = "the model was not served when the program ended".to_owned();
            return Ok((EpisodeEnd::Failed(why), AfterEpisode::Rerun));
        }
        let end = self.rewarded(episode, ended).await?;
        Ok((end, AfterEpisode::Continue))
    }

    /// Waits until a program has made too many turns, and says so.
    async fn too_many_turns(&self, rollout: &RolloutId) -> String {
        let Some(most) = self.file.max_turns else {
            return future::pending().await;
        };
        loop {
            sleep(TURNS_PAUSE).await;
            // A proxy that does not answer is noticed when the episode ends.
            let view = self.proxy.rollout(rollout).await;
            if view.is_ok_and(|view| view.turns.len() > most as usize) {
                return format!("it made more than {most} turns");
            }
        }
    }

    fn job(&self, episode: &OpenedEpisode<'_>) -> ProgramJob {
        let OpenedEpisode { opened, task, .. } = episode;
        let host = self.file.proxy_url.as_ref();
        ProgramJob {
            rollout: opened.id.clone(),
            task: task.fields.clone(),
            base_url: opened.base_url.at_host(host),
            anthropic_base_url: opened.anthropic_base_url.at_host(host),
            api_key: opened.api_key.expose().to_owned(),
            max_turns: self.file.max_turns,
        }
    }

    async fn rewarded(
        &self,
        episode: &OpenedEpisode<'_>,
        ended: &ProgramEnd,
    ) -> Result<EpisodeEnd, TaskRunError> {
        let rollout = &episode.opened.id;
        if ended.timed_out {
            let why = format!("its time of {} was over", self.file.timeout);
            return Ok(EpisodeEnd::OverLimit(why));
        }
        let view = self.settled(rollout).await?;
        if view.state != "open" {
            // Its deadline is over, or somebody else has closed it.
            return Ok(EpisodeEnd::Unfinished);
        }
        if view.turns.is_empty() {
            let code = ended.exit_code.map_or_else(
                || "a signal ended it".to_owned(),
                |code| format!("it ended with code {code}"),
            );
            return Ok(EpisodeEnd::Failed(format!(
                "the program asked the model nothing at OPENAI_BASE_URL or ANTHROPIC_BASE_URL, and {code}"
            )));
        }
        let giver = RewardGiver {
            source: &self.file.reward,
            host: self.host,
            http: self.http,
        };
        let of_program = EndedEpisode {
            rollout,
            task: episode.task,
            turns: &view.turns,
            end: ended,
        };
        let rewarded = tokio::select! {
            rewarded = giver.reward(&of_program) => rewarded,
            () = episode.cancel.cancelled() => return Ok(EpisodeEnd::Unfinished),
        };
        Ok(rewarded.map_or_else(EpisodeEnd::Failed, EpisodeEnd::Scored))
    }

    /// Waits until the turns of a rollout are in the log. A turn comes into the log a moment after its reply has ended.
    /// So an empty list is asked for again; if the reward is made from the turns, until the list stays the same.
    async fn settled(&self, rollout: &RolloutId) -> Result<RolloutView, ProxyError> {
        let reads_turns = !matches!(
            self.file.reward,
            RewardSource::ExitCode | RewardSource::File
        );
        let until = Instant::now() + LAST_TURN;
        let mut view = self.proxy.rollout(rollout).await?;
        while view.state == "open" && Instant::now() < until {
            if !view.turns.is_empty() && !reads_turns {
                break;
            }
            sleep(SETTLE_PAUSE).await;
            let next = self.proxy.rollout(rollout).await?;
            let is_same = !next.turns.is_empty() && next.turns.len() == view.turns.len();
            view = next;
            if is_same {
                break;
            }
        }
        Ok(view)
    }

    pub(crate) async fn close(
        &self,
        rollout: &str,
        end: EpisodeEnd,
    ) -> Result<EpisodeEnd, TaskRunError> {
        let mut feedback = json!({"rollout": rollout});
        match &end {
            EpisodeEnd::Scored(reward) => {
                feedback["score"] = json!(reward.score);
                if !reward.steps.is_empty() {
                    feedback["steps"] = json!(reward.steps);
                }
            }
            EpisodeEnd::OverLimit(why) | EpisodeEnd::Failed(why) => feedback["failed"] = json!(why),
            EpisodeEnd::Unfinished => feedback["failed"] = json!("its runner ended before it"),
        }
        match self.proxy.close(&feedback).await {
            Ok(RolloutClosing::Closed) => Ok(end),
            // The proxy may have taken the score before, and its answer was lost, as while it restarts.
            Ok(RolloutClosing::TooLate) if matches!(end, EpisodeEnd::Scored(_)) => {
                let view = self.proxy.rollout(rollout).await;
                let is_taken = view.is_ok_and(|view| view.state == "scored");
                Ok(if is_taken {
                    end
                } else {
                    EpisodeEnd::Unfinished
                })
            }
            Ok(RolloutClosing::TooLate) => Ok(EpisodeEnd::Unfinished),
            // A score that the proxy does not take is the episode's fault, and no reason to end the run.
            Err(ProxyError::Refused { message, .. }) if matches!(end, EpisodeEnd::Scored(_)) => {
                let why = format!("the proxy refused its score: {message}");
                let feedback = json!({"rollout": rollout, "failed": why});
                self.proxy.close(&feedback).await?;
                Ok(EpisodeEnd::Failed(why))
            }
            Err(error) => Err(error.into()),
        }
    }
}

pub(crate) fn deadline_s(file: &RolloutFile) -> u64 {
    file.timeout.0.as_secs() + OVERTIME_S
}
