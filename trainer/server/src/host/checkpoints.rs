//! Saves runs as adapters and checkpoints, and deletes old ones.

use std::collections::BTreeMap;

use metaclaw_engine::{
    adapter,
    checkpoint::{self, CheckpointEntry, TrainingSnapshot},
    engine::EngineState,
    folder,
    optim::AdamState,
};
use metaclaw_trainer_api::{
    AdapterName, CheckpointName, RunId,
    tinker::WeightsKind,
    wire::{
        CheckpointInfo, CheckpointLoadReply, CheckpointSaveReply, CheckpointSaveRequest,
        SaveWeightsReply,
    },
};
use metaclaw_trainer_terms::ErrorCode;

use super::{Host, failure::RunError};
use crate::error::Result;
use crate::{error::ApiError, tinker::stored};

// === impl Host ===

impl Host {
    /// Saves a run's adapter for serving.
    ///
    /// # Errors
    /// 404 for an unknown run, 500 when it cannot be written.
    ///
    /// # Cancel safety
    /// What has begun to be written is written whole.
    pub(crate) async fn save_adapter(
        &self,
        run: RunId,
        name: AdapterName,
    ) -> Result<SaveWeightsReply> {
        let turn = self.store.turn().await;
        let snapshot = self.snapshot(&run).await?;
        let step = snapshot.adam.steps;
        let (folder, base) = (
            self.store.folder.clone(),
            self.engine.get()?.base().id.clone(),
        );
        let save = move |_: &mut _| adapter::save(&folder, &name, &snapshot.lora, &base, step);
        let saved = turn.work(save).await?;
        tracing::info!(path = %saved.folder.display(), step, sha256 = saved.sha256, "adapter saved");
        Ok(SaveWeightsReply {
            status: "ok".to_owned(),
            adapter_path: saved.folder.display().to_string(),
            step,
            sha256: Some(saved.sha256),
        })
    }

    /// Saves the whole state of a run.
    ///
    /// # Errors
    /// 404 for an unknown run, 500 when it cannot be written.
    ///
    /// # Cancel safety
    /// What has begun to be written is written whole.
    pub(crate) async fn save_checkpoint(
        &self,
        request: CheckpointSaveRequest,
    ) -> Result<CheckpointSaveReply> {
        let (run, name) = (request.session_id, request.name);
        let turn = self.store.turn().await;
        let snapshot = self.snapshot(&run).await?;
        let (folder, base) = (
            self.store.folder.clone(),
            self.engine.get()?.base().id.clone(),
        );
        let (saved_as, manifest) = (name.clone(), request.manifest);
        let save =
            move |_: &mut _| checkpoint::save(&folder, &saved_as, &base, &snapshot, &manifest);
        let path = turn.work(save).await?;
        let note = move |state: &mut EngineState| {
            // A run that was closed meanwhile has no checkpoint to note.
            if let Ok(run) = state.runs.get(&run) {
                run.saved_as(name);
            }
        };
        self.engine.call_now(note).await?;
        tracing::info!(path = %path.display(), "checkpoint saved");
        let (status, path) = ("ok".to_owned(), path.display().to_string());
        Ok(CheckpointSaveReply { status, path })
    }

    /// Makes a run what a checkpoint holds; without its optimiser, one that has seen nothing takes the place.
    ///
    /// # Errors
    /// 404 for an unknown run or checkpoint, 400 for one of another model.
    pub(crate) async fn load_checkpoint(
        &self,
        run: RunId,
        name: CheckpointName,
        optimizer: bool,
    ) -> Result<CheckpointLoadReply> {
        let turn = self.store.turn().await;
        self.check_run(&run).await?;
        let (folder, base) = (self.store.folder.clone(), self.engine.get()?.base().clone());
        let wanted = name.clone();
        let load = move |_: &mut _| {
            let mut snapshot = checkpoint::load(&folder, &wanted, &base)?;
            if !optimizer {
                snapshot.adam = AdamState::new(&snapshot.lora)?;
            }
            Ok(snapshot)
        };
        let snapshot = turn.work(load).await?;
        let restore = move |state: &mut EngineState| -> Result<_, RunError> {
            let run = state.runs.get(&run)?;
            Ok(run.restore(name, &snapshot)?)
        };
        let step = self.engine.call(restore).await??;
        self.set_last_step(step);
        let status = "ok".to_owned();
        Ok(CheckpointLoadReply { status, step })
    }

    /// Every complete checkpoint, oldest first.
    ///
    /// # Errors
    /// 500 when the folder cannot be read.
    pub(crate) async fn checkpoints(&self) -> Result<Vec<CheckpointInfo>> {
        let folder = self.store.folder.clone();
        let turn = self.store.turn().await;
        let listed = turn.work(move |index| index.list(&folder)).await?;
        let infos = listed.into_iter().map(|checkpoint| CheckpointInfo {
            name: checkpoint.name,
            path: checkpoint.path.display().to_string(),
            step: checkpoint.step,
            sha256: checkpoint.sha256,
            manifest: checkpoint.manifest,
            created_ms: checkpoint.created_ms,
        });
        Ok(infos.collect())
    }

    /// Deletes a checkpoint. The adapter with the same name stays.
    ///
    /// # Errors
    /// 404 for an unknown one, 409 while an open run stands there.
    pub(crate) async fn delete_checkpoint(&self, name: CheckpointName) -> Result<()> {
        let turn = self.store.turn().await;
        if self.standing().await?.contains(&name) {
            let text = format!(
                "checkpoint {name} is in use: an open run was saved as it or loaded from it; close the run first"
            );
            return Err(ApiError::conflict(text).with_code(ErrorCode::CheckpointInUse));
        }
        let folder = self.store.folder.clone();
        let delete = move |_: &mut _| {
            let folder = checkpoint::existing(&folder, &name)?;
            folder::remove(&folder)?;
            tracing::info!(path = %folder.display(), "checkpoint deleted");
            Ok(())
        };
        turn.work(delete).await
    }

    /// Deletes checkpoints that are not needed any more, with their adapters. Returns the deleted names. `default` is
    /// the adapter that serves requests without a model.
    ///
    /// # Errors
    /// 500 when the folder cannot be read or written; what went before that is gone.
    pub(crate) async fn prune(
        &self,
        keep: Vec<CheckpointName>,
        default: Option<AdapterName>,
    ) -> Result<Vec<CheckpointName>> {
        let turn = self.store.turn().await;
        let mut kept = self.standing().await?;
        kept.extend(keep);
        kept.extend(default.as_ref().map(CheckpointName::from));
        let (folder, n) = (self.store.folder.clone(), self.store.keep);
        let adapters = self.engine.get()?.adapters().clone();
        let prune = move |index: &mut checkpoint::CheckpointIndex| {
            let mut listed = index.list(&folder)?;
            // Checkpoints of Tinker's clients are deleted only by those clients.
            listed
                .retain(|entry| stored::path(entry.name.as_str(), WeightsKind::Training).is_none());
            let is_needed = |name: &CheckpointName| {
                kept.contains(name) || adapters.is_in_use(&AdapterName::from(name))
            };
            let mut deleted = Vec::new();
            for name in outdated(&listed, n, is_needed) {
                let adapter = AdapterName::from(name);
                adapters.unload(&adapter);
                if let Ok(adapter) = adapter::existing(&folder, &adapter) {
                    folder::remove(&adapter)?;
                }
                folder::remove(&checkpoint::folder_of(&folder, name))?;
                deleted.push(name.clone());
            }
            Ok(deleted)
        };
        let deleted = turn.work(prune).await?;
        if !deleted.is_empty() {
            tracing::info!(?deleted, "checkpoints pruned");
        }
        Ok(deleted)
    }

    /// A run as it is after the jobs that were submitted before.
    async fn snapshot(&self, run: &RunId) -> Result<TrainingSnapshot> {
        let run = run.clone();
        let snapshot = move |state: &mut EngineState| -> Result<_, RunError> {
            Ok(state.runs.get(&run)?.snapshot()?)
        };
        Ok(self.engine.call(snapshot).await??)
    }

    async fn check_run(&self, run: &RunId) -> Result<()> {
        let run = run.clone();
        let check = move |state: &mut EngineState| -> Result<(), RunError> {
            Ok(state.runs.get(&run).map(|_| ())?)
        };
        Ok(self.engine.call_now(check).await??)
    }

    async fn standing(&self) -> Result<Vec<CheckpointName>> {
        let standing = |state: &mut EngineState| state.runs.checkpoints();
        self.engine.call_now(standing).await
    }
}

/// The checkpoints that may be deleted: those that are not among the last `n` of their line of training and are not needed, oldest first.
///
/// A line of training consists of a run's checkpoints and those of the runs that continued from one of them; usually it
/// is an agent's. So an agent that trains often does not displace the checkpoints of one that trains seldom.
fn outdated(
    oldest_first: &[CheckpointEntry],
    n: usize,
    is_needed: impl Fn(&CheckpointName) -> bool,
) -> Vec<&CheckpointName> {
    let mut n_newer: BTreeMap<&str, usize> = BTreeMap::new();
    let mut outdated = Vec::new();
    for info in oldest_first.iter().rev() {
        let n_of_line = n_newer.entry(&info.line).or_default();
        if *n_of_line >= n && !is_needed(&info.name) {
            outdated.push(&info.name);
        }
        *n_of_line += 1;
    }
    outdated.reverse();
    outdated
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn info(line: &str, step: u64) -> CheckpointEntry {
        CheckpointEntry {
            name: format!("{line}-{step}").parse().unwrap(),
            path: "x".into(),
            step,
            line: line.to_owned(),
            sha256: None,
            manifest: Value::Null,
            created_ms: step,
        }
    }

    #[test]
    fn the_last_of_each_line_and_what_is_needed_stay() {
        let listed = [("a", 1), ("a", 2), ("b", 3), ("a", 4), ("a", 5), ("a", 6)];
        let listed = listed.map(|(line, step)| info(line, step));
        let outdated = |n, needed: &str| -> Vec<&str> {
            let outdated = outdated(&listed, n, |name| name.as_str() == needed);
            outdated.into_iter().map(CheckpointName::as_str).collect()
        };
        assert_eq!(outdated(2, ""), ["a-1", "a-2", "a-4"]);
        // A checkpoint that is needed does not count against the limit.
        assert_eq!(outdated(2, "a-2"), ["a-1", "a-4"]);
        assert_eq!(outdated(2, "a-5"), ["a-1", "a-2", "a-4"]);
        assert!(outdated(5, "").is_empty());
    }
}
