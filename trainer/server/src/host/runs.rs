//! Training runs, on the engine's thread.

use metaclaw_engine::{
    adapter::{self, AdapterError, BaseId, Fit},
    checkpoint::{self, Snapshot},
    engine::{EngineError, EngineState},
    lora::LayerDims,
    model::Model,
    run::{Run, RunConfig},
    train::{TrainJob, TrainOut, Wanted},
};
use metaclaw_trainer_api::{
    AdapterName, CheckpointName, RunId,
    wire::{
        CheckpointInfo, CheckpointLoadReply, CheckpointSaveReply, CheckpointSaveRequest,
        CreateReply, CreateRequest, ForwardBackwardReply, ForwardBackwardRequest, ForwardReply,
        ForwardRequest, LossFnOutput, OptimStepReply, OptimStepRequest, SaveWeightsReply,
    },
};

use super::{Host, convert, failure::RunError, job::PassJob};
use crate::error::ApiError;

// === impl Host ===

impl Host {
    /// Steps of the run that was last used; `None` before there is one.
    pub(crate) fn last_step(&self) -> Option<u64> {
        self.last_step.get()
    }

    /// Opens a run.
    ///
    /// # Errors
    /// 400 for a rank, alpha or targets that cannot be.
    pub(crate) async fn create_run(&self, request: CreateRequest) -> Result<CreateReply, ApiError> {
        let config = RunConfig {
            lora: convert::lora_spec(&request)?,
            seed: request.seed.unwrap_or_else(rand::random),
        };
        let n_base = usize::try_from(self.engine.get()?.info().n_params).unwrap_or(usize::MAX);
        let create = move |state: &mut EngineState| -> Result<_, RunError> {
            let run = Run::new(&state.model, &config)?;
            let params = run.trainable_params(n_base);
            Ok((state.runs.open(run), params))
        };
        let (id, trainable_params) = self.engine.call(create).await??;
        tracing::info!(
            run = id,
            rank = request.rank,
            trainable_params,
            "run opened"
        );
        self.last_step.set(0);
        Ok(CreateReply {
            session_id: id
                .parse()
                .map_err(|error| ApiError::internal(format!("{error}")))?,
            status: "ready".to_owned(),
            model: self.base().to_owned(),
            rank: request.rank,
            trainable_params,
        })
    }

    /// Log-probabilities; touches no gradient.
    ///
    /// # Errors
    /// 404 for an unknown run, 400 for a datum that cannot be.
    pub(crate) async fn forward(&self, request: ForwardRequest) -> Result<ForwardReply, ApiError> {
        let top_k = request.top_k as usize;
        let wanted = Wanted {
            positions: request.positions,
            top_k,
        };
        let datums: Vec<_> = request
            .datums
            .into_iter()
            .map(convert::train_datum)
            .collect();
        let begin = move |state: &mut EngineState| {
            let run = state.runs.get(request.session_id.as_str())?;
            let lora = request.adapter.then(|| run.lora());
            let job = TrainJob::forward(&state.model, lora, &datums, &wanted, state.sizes)?;
            Ok((job, run.version()))
        };
        let (job, answer) = PassJob::new(
            Box::new(begin),
            Box::new(|_, _, out| Ok((out.logprobs, out.top))),
        );
        self.engine.submit(Box::new(job))?;
        let (logprobs, top) = answer.await.map_err(|_| EngineError::Failed)??;
        Ok(convert::forward_reply(logprobs, &top, top_k))
    }

    /// Adds the gradients of a loss.
    ///
    /// # Errors
    /// 404 for an unknown run, 400 for a loss or datum that cannot be.
    ///
    /// # Cancel safety
    /// Dropping the future ends the pass; its gradients are not added.
    pub(crate) async fn forward_backward(
        &self,
        request: ForwardBackwardRequest,
    ) -> Result<ForwardBackwardReply, ApiError> {
        let loss = convert::loss(request.loss_fn, &request.loss_fn_config)?;
        let n_datums = request.datums.len();
        let datums: Vec<_> = request
            .datums
            .into_iter()
            .map(convert::train_datum)
            .collect();
        let run = request.session_id;
        let id = run.clone();
        let begin = move |state: &mut EngineState| {
            let run = state.runs.get(id.as_str())?;
            let (model, sizes) = (&state.model, state.sizes);
            let job = TrainJob::forward_backward(model, run.lora(), &datums, loss, sizes)?;
            Ok((job, run.version()))
        };
        let finish = move |state: &mut EngineState, version, mut out: TrainOut| {
            let run = state.runs.get(run.as_str())?;
            run.accumulate_grads(version, &mut out)?;
            Ok((out.loss, out.n_loss_tokens, out.logprobs))
        };
        let (job, answer) = PassJob::new(Box::new(begin), Box::new(finish));
        self.engine.submit(Box::new(job))?;
        let (loss, n_loss_tokens, logprobs) = answer.await.map_err(|_| EngineError::Failed)??;
        let outputs = logprobs
            .into_iter()
            .map(|logprobs| LossFnOutput { logprobs });
        Ok(ForwardBackwardReply {
            status: "ok".to_owned(),
            loss,
            total_tokens: n_loss_tokens as u64,
            num_datums: n_datums as u64,
            loss_fn_outputs: outputs.collect(),
        })
    }

    /// Applies the gradients that wait.
    ///
    /// # Errors
    /// 404 for an unknown run, 400 without gradients or for a setting out of range.
    pub(crate) async fn optim_step(
        &self,
        request: OptimStepRequest,
    ) -> Result<OptimStepReply, ApiError> {
        let adam = convert::adam(&request);
        let run = request.session_id;
        let id = run.clone();
        let step = move |state: &mut EngineState| -> Result<_, RunError> {
            Ok(state.runs.get(id.as_str())?.optim_step(&adam)?)
        };
        let out = self.engine.call(step).await??;
        if out.skipped {
            tracing::warn!(%run, step = out.step, out.grad_norm, out.median_norm, "step skipped: the gradient is out of line");
        } else {
            tracing::info!(%run, step = out.step, out.grad_norm, out.avg_loss, "step taken");
        }
        self.last_step.set(out.step);
        Ok(OptimStepReply {
            status: "ok".to_owned(),
            step: out.step,
            grad_norm: out.grad_norm,
            skipped: out.skipped,
            median_grad_norm: out.median_norm,
            avg_loss: out.avg_loss,
            learning_rate: request.learning_rate,
        })
    }

    /// Steps behind a run.
    ///
    /// # Errors
    /// 404 for an unknown run.
    pub(crate) async fn step_of(&self, run: RunId) -> Result<u64, ApiError> {
        let step = move |state: &mut EngineState| -> Result<_, RunError> {
            Ok(state.runs.get(run.as_str())?.step())
        };
        Ok(self.engine.call(step).await??)
    }

    /// Saves a run's adapter for serving.
    ///
    /// # Errors
    /// 404 for an unknown run, 500 when it cannot be written.
    pub(crate) async fn save_adapter(
        &self,
        run: RunId,
        name: AdapterName,
    ) -> Result<SaveWeightsReply, ApiError> {
        let (snapshot, base) = self.snapshot(run).await?;
        let step = snapshot.adam.steps;
        let folder = self.checkpoint_dir.clone();
        let save = move || adapter::save(&folder, name.as_str(), &snapshot.lora, &base, step);
        let path = beside_the_engine(save).await?;
        tracing::info!(path = %path.display(), step, "adapter saved");
        Ok(SaveWeightsReply {
            status: "ok".to_owned(),
            adapter_path: path.display().to_string(),
            step,
        })
    }

    /// Saves all that a run goes on from.
    ///
    /// # Errors
    /// 404 for an unknown run, 500 when it cannot be written.
    pub(crate) async fn save_checkpoint(
        &self,
        request: CheckpointSaveRequest,
    ) -> Result<CheckpointSaveReply, ApiError> {
        let (snapshot, base) = self.snapshot(request.session_id).await?;
        let folder = self.checkpoint_dir.clone();
        let (name, manifest) = (request.name, request.manifest);
        let save = move || checkpoint::save(&folder, name.as_str(), &base, &snapshot, &manifest);
        let path = beside_the_engine(save).await?;
        tracing::info!(path = %path.display(), "checkpoint saved");
        Ok(CheckpointSaveReply {
            status: "ok".to_owned(),
            path: path.display().to_string(),
        })
    }

    /// Makes a run what a checkpoint holds.
    ///
    /// # Errors
    /// 404 for an unknown run or checkpoint, 400 for one of another model.
    pub(crate) async fn load_checkpoint(
        &self,
        run: RunId,
        name: CheckpointName,
    ) -> Result<CheckpointLoadReply, ApiError> {
        let load = move |state: &mut EngineState| -> Result<_, RunError> {
            let EngineState {
                model,
                base,
                checkpoint_dir,
                runs,
                ..
            } = state;
            let fit = fit(model, base);
            Ok(runs
                .get(run.as_str())?
                .load_checkpoint(checkpoint_dir, name.as_str(), &fit)?)
        };
        let step = self.engine.call(load).await??;
        self.last_step.set(step);
        Ok(CheckpointLoadReply {
            status: "ok".to_owned(),
            step,
        })
    }

    /// A run as it is after the jobs that were submitted before, and the base it belongs to.
    async fn snapshot(&self, run: RunId) -> Result<(Snapshot, BaseId), ApiError> {
        let copy = move |state: &mut EngineState| -> Result<_, RunError> {
            let snapshot = state.runs.get(run.as_str())?.snapshot()?;
            Ok((snapshot, state.base.clone()))
        };
        Ok(self.engine.call(copy).await??)
    }

    /// Every complete checkpoint, oldest first.
    ///
    /// # Errors
    /// 500 when the folder cannot be read.
    pub(crate) async fn checkpoints(&self) -> Result<Vec<CheckpointInfo>, ApiError> {
        let folder = self.checkpoint_dir.clone();
        let mut listed = beside_the_engine(move || checkpoint::list(&folder)).await?;
        listed.sort_by_key(|checkpoint| checkpoint.created_ms);
        let infos = listed.into_iter().filter_map(|checkpoint| {
            Some(CheckpointInfo {
                // What others put into the folder under names that are none of ours is not listed.
                name: checkpoint.name.parse().ok()?,
                path: checkpoint.path.display().to_string(),
                step: checkpoint.step,
                manifest: checkpoint.manifest,
                created_ms: checkpoint.created_ms,
            })
        });
        Ok(infos.collect())
    }
}

/// Work on the disk, on a thread that may wait for it: replies go on meanwhile.
async fn beside_the_engine<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AdapterError> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    let done =
        done.map_err(|error| ApiError::internal(format!("the disk work failed: {error}")))?;
    Ok(done.map_err(RunError::from)?)
}

/// What a checkpoint must be to fit the base; beside a run that is borrowed.
fn fit<'a>(model: &Model, base: &'a BaseId) -> Fit<'a> {
    Fit {
        base,
        dims: LayerDims::of(&model.family),
        n_layers: model.family.n_layers,
    }
}
