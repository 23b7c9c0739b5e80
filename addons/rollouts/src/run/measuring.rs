//! Tasks that are run without training.

use tokio_util::sync::CancellationToken;

use super::{
    journal::{EpisodePlace, JournalEvent},
    order,
    setup::RunTasks,
    task_run::{TaskRun, WantedEpisode, all},
};
use crate::{
    episode::{EpisodeEnd, TaskRunError},
    report::{Measurement, TaskTally},
    task::RolloutTask,
};

#[derive(Debug)]
pub(super) struct MeasuredTasks<'a> {
    pub(super) tasks: &'a [RolloutTask],
    pub(super) name: String,
    pub(super) adapter: Option<String>,
    pub(super) tries: u32,
}

// === impl TaskRun ===

impl TaskRun<'_> {
    /// Measures before the first step, after the last one, and after those between that the file says.
    pub(super) async fn measure_after(&self, n: u64, tasks: &RunTasks) -> Result<(), TaskRunError> {
        let file = self.runner.file;
        let is_last = n == order::n_steps(file, tasks);
        let is_due = file.eval_every.is_some_and(|every| n.is_multiple_of(every));
        if tasks.held_out.is_empty() || !(n == 0 || is_last || is_due) {
            return Ok(());
        }
        self.measure(&MeasuredTasks {
            tasks: &tasks.held_out,
            name: format!("held-out tasks after step {n}"),
            adapter: None,
            tries: file.eval_tries,
        })
        .await
    }

    pub(super) async fn measure(&self, measured: &MeasuredTasks<'_>) -> Result<(), TaskRunError> {
        let is_known = |it: &Measurement| it.name == measured.name;
        if self.journal.borrow().history.measured.iter().any(is_known) {
            return Ok(());
        }
        let n = measured.tasks.len() as u64 * u64::from(measured.tries);
        self.progress.begin(measured.name.clone(), n);
        let tallies = self.tallies(measured, &self.cancel).await?;
        let name = measured.name.clone();
        let done = Measurement::new(name, measured.adapter.clone(), &tallies, measured.tries);
        if done.n_tries == 0 {
            return Err(TaskRunError::Refused(format!(
                "no episode of {} has a score: the lines above say why, and {} has what the programs printed",
                measured.name,
                self.folder.join("output").display()
            )));
        }
        self.progress.line(&done.to_string());
        self.write(JournalEvent::Measured(done))
    }

    pub(super) async fn tallies(
        &self,
        measured: &MeasuredTasks<'_>,
        cancel: &CancellationToken,
    ) -> Result<Vec<TaskTally>, TaskRunError> {
        let prefix = self.journal.borrow().history.prefix.clone();
        let name = measured.name.replace(' ', "-");
        let wanted = |index: usize, attempt| WantedEpisode {
            task: &measured.tasks[index],
            place: EpisodePlace {
                group: format!("{prefix}/{name}/{index}"),
                task: measured.tasks[index].id.clone(),
                attempt,
                held_out: true,
            },
            group_size: measured.tries,
            adapter: measured.adapter.as_deref(),
        };
        let of_task = |index: usize| {
            let episodes = (0..measured.tries)
                .map(move |attempt| self.episode(wanted(index, attempt), cancel));
            all(episodes)
        };
        let ends = all((0..measured.tasks.len()).map(of_task)).await?;
        let success_at = self.runner.file.success_at;
        let tally = |ends: &Vec<EpisodeEnd>| TaskTally::new(ends, success_at);
        Ok(ends.iter().map(tally).collect())
    }
}
