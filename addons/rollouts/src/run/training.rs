//! The steps of a run: groups of episodes, and the training step that is made of them.

use std::time::Duration;

use futures_util::{StreamExt as _, future, stream::FuturesUnordered};
use tokio_util::sync::CancellationToken;

use super::{
    journal::{EpisodePlace, JournalEvent, StepLine, differs},
    measuring::MeasuredTasks,
    order::{self, TaskOrder},
    setup::RunTasks,
    task_run::{TaskRun, WantedEpisode, all},
};
use crate::{
    episode::TaskRunError,
    host::TrainedStep,
    proxy::WantedHeldOut,
    report::{Measurement, TaskTally},
    task::RolloutTask,
};

const WANTED_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct EndedGroup {
    tally: TaskTally,
    /// Whether the scores of the group differ. If they are equal, nothing can be learned from the group.
    differs: bool,
}

// === impl EndedGroup ===

impl EndedGroup {
    fn line(&self, task: &str) -> String {
        let tally = &self.tally;
        let mean = tally.mean_score().map_or_else(
            || "no score".to_owned(),
            |mean| format!("mean score {mean:.3}"),
        );
        let lost = match tally.n_failed + tally.n_over_limit {
            0 => String::new(),
            n_lost => format!(", {n_lost} failed"),
        };
        let flat = if self.differs {
            ""
        } else {
            "; all are equal, so nothing can be learned from them"
        };
        let (n_success, n_scored) = (tally.n_success, tally.n_scored);
        format!("task {task}: {mean}, {n_success} of {n_scored} succeeded{lost}{flat}")
    }
}

// === impl TaskRun ===

impl TaskRun<'_> {
    pub(super) async fn steps(&self, tasks: &RunTasks) -> Result<(), TaskRunError> {
        let file = self.runner.file;
        let order = TaskOrder::new(tasks.train.len(), file.seed);
        let n_steps = order::n_steps(file, tasks);
        let last = self.journal.borrow().history.steps.last().cloned();
        let (n_done, mut n_groups) = last.map_or((0, 0), |it| (it.n, it.n_groups));
        if n_done >= n_steps {
            self.progress.line(&format!("run {} has made its {n_done} steps: raise `steps`, or begin another run with --run", self.name));
        }
        // The run may have ended in the middle of this measurement.
        self.measure_after(n_done, tasks).await?;
        for n in n_done + 1..=n_steps {
            self.runner
                .pool
                .refresh(|line| self.progress.line(line))
                .await;
            self.progress.begin(
                format!("step {n} of {n_steps}"),
                file.tasks_per_step as u64 * u64::from(file.group_size),
            );
            let task = |group: u64| &tasks.train[order.at(group)];
            let groups = self.groups(n_groups, task).await?;
            n_groups += groups.len() as u64;
            self.step(n, n_groups, &groups, &tasks.held_out).await?;
            self.measure_after(n, tasks).await?;
        }
        Ok(())
    }

    /// Runs the groups of one step, from group `first` of the run. Those without a difference are replaced, as often as
    /// the file allows.
    async fn groups<'t>(
        &self,
        first: u64,
        task: impl Fn(u64) -> &'t RolloutTask,
    ) -> Result<Vec<EndedGroup>, TaskRunError> {
        let file = self.runner.file;
        let mut next = first;
        let mut left = file.resample;
        let mut running = FuturesUnordered::new();
        while running.len() < file.tasks_per_step {
            running.push(self.group(next, task(next)));
            next += 1;
        }
        let mut ended = Vec::new();
        let mut failure = None;
        while let Some(group) = running.next().await {
            match group {
                Ok(group) => {
                    if !group.differs && left > 0 && failure.is_none() {
                        left -= 1;
                        self.progress.more(file.group_size.into());
                        running.push(self.group(next, task(next)));
                        next += 1;
                    }
                    ended.push(group);
                }
                // The others end what they have begun, and their rollouts are closed.
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(ended),
        }
    }

    async fn group(&self, number: u64, task: &RolloutTask) -> Result<EndedGroup, TaskRunError> {
        let file = self.runner.file;
        let prefix = self.journal.borrow().history.prefix.clone();
        let wanted = |attempt| WantedEpisode {
            task,
            place: EpisodePlace {
                group: format!("{prefix}/{number}"),
                task: task.id.clone(),
                attempt,
                held_out: false,
            },
            group_size: file.group_size,
            adapter: None,
        };
        let episodes =
            (0..file.group_size).map(|attempt| self.episode(wanted(attempt), &self.cancel));
        let ends = all(episodes).await?;
        let group = EndedGroup {
            tally: TaskTally::new(&ends, file.success_at),
            differs: differs(ends.iter()),
        };
        self.progress.line(&group.line(&task.id));
        Ok(group)
    }

    async fn step(
        &self,
        n: u64,
        n_groups: u64,
        groups: &[EndedGroup],
        held_out: &[RolloutTask],
    ) -> Result<(), TaskRunError> {
        if groups.iter().all(|group| group.tally.n_scored == 0) {
            return Err(TaskRunError::Refused(format!(
                "no episode of step {n} has a score: the lines above say why, and {} has what the programs printed; mend it and run this again",
                self.folder.join("output").display()
            )));
        }
        let n_differ = groups.iter().filter(|it| it.differs).count();
        let trained = if n_differ == 0 {
            TrainedStep {
                n_turns: 0,
                line: "nothing was trained, because all rewards of each group are equal".to_owned(),
            }
        } else {
            self.progress
                .line(&format!("step {n}: training on {n_differ} groups"));
            self.train(n, held_out).await?
        };
        let all = groups
            .iter()
            .fold(TaskTally::default(), |sum, it| sum.plus(&it.tally));
        let measured = Measurement::new(format!("step {n}"), None, &[all], 1);
        let success = measured.pass.first().map_or(0.0, |it| it.estimate);
        self.progress.line(&format!(
            "step {n}: success {success:.3} of {} episodes in {} groups, {n_differ} with a difference; {}",
            all.n,
            groups.len(),
            trained.line
        ));
        self.write(JournalEvent::Step(StepLine {
            n,
            n_groups,
            n_turns: trained.n_turns,
            line: trained.line,
        }))
    }

    /// Asks for a training step. Meanwhile, runs the held-out tasks that the learner's gate wants.
    async fn train(&self, n: u64, held_out: &[RolloutTask]) -> Result<TrainedStep, TaskRunError> {
        let done = self.cancel.child_token();
        let training = async {
            let trained = tokio::select! {
                trained = self.runner.host.train(&self.runner.file.agent) => {
                    trained.map_err(|error| TaskRunError::Refused(format!("no training step was made: {error:#}")))
                }
                () = self.cancel.cancelled() => Err(TaskRunError::Interrupted),
            };
            done.cancel();
            trained
        };
        let (trained, tried) = future::join(training, self.try_wanted(n, held_out, &done)).await;
        match tried {
            Ok(()) | Err(TaskRunError::Interrupted) => trained,
            Err(error) => Err(error),
        }
    }

    async fn try_wanted(
        &self,
        n: u64,
        held_out: &[RolloutTask],
        done: &CancellationToken,
    ) -> Result<(), TaskRunError> {
        let mut seen = self.wanted.subscribe();
        let mut tried: Vec<Option<String>> = Vec::new();
        while let Some(Ok(())) = done.run_until_cancelled(seen.changed()).await {
            let WantedHeldOut {
                adapter,
                held_out: n_wanted,
            } = seen.borrow_and_update().clone();
            if n_wanted == 0 || held_out.is_empty() || tried.contains(&adapter) {
                continue;
            }
            let tasks = &held_out[..held_out.len().min(n_wanted)];
            let by = adapter.as_deref().unwrap_or("what serves");
            self.progress.line(&format!(
                "step {n}: the gate wants {} held-out tasks under {by}",
                tasks.len()
            ));
            let measured = MeasuredTasks {
                tasks,
                name: format!("gate-{n}-{}", adapter.as_deref().unwrap_or("serving")),
                adapter: adapter.clone(),
                tries: 1,
            };
            self.tallies(&measured, done).await?;
            tried.push(adapter);
        }
        Ok(())
    }

    /// Asks the proxy what the gate wants, as long as this is polled. While somebody asks, the learner makes steps of
    /// rollouts only when it is asked to.
    pub(super) async fn ask_what_is_wanted(&self) {
        loop {
            // A proxy that does not answer is noticed by the episodes.
            if let Ok(wanted) = self.runner.proxy.wanted(&self.runner.file.agent).await {
                self.wanted.send_if_modified(|known| {
                    let is_new = *known != wanted;
                    *known = wanted;
                    is_new
                });
            }
            tokio::time::sleep(WANTED_PAUSE).await;
        }
    }
}
