//! Training runs, on the engine's thread.

use metaclaw_engine::{
    engine::{EngineError, EngineState},
    run::{OpenRun, RunConfig},
    train::{TrainJob, TrainOut, Wanted},
};
use metaclaw_trainer_api::{
    Datum, LossConfig, LossFn, RunId,
    wire::{
        CreateReply, CreateRequest, ForwardBackwardReply, ForwardBackwardRequest, ForwardReply,
        ForwardRequest, LossFnOutput, OptimStepReply, OptimStepRequest,
    },
};

use tokio::sync::oneshot::error::RecvError;

use super::{Host, convert, failure::RunError, job::PassJob};
use crate::error::ApiError;

/// The answer of a job, or the engine's failure.
fn ended<T>(answer: Result<Result<T, RunError>, RecvError>) -> Result<T, RunError> {
    answer.map_err(|_| RunError::from(EngineError::Failed))?
}

// === impl Host ===

impl Host {
    /// Returns the steps of the last used run, or `None` before there is one.
    pub(crate) fn last_step(&self) -> Option<u64> {
        self.last_step.get()
    }

    /// Opens a run.
    ///
    /// # Errors
    /// Returns 400 for an invalid rank, alpha or targets.
    pub(crate) async fn create_run(&self, request: CreateRequest) -> Result<CreateReply, ApiError> {
        let config = RunConfig {
            lora: convert::lora_spec(&request)?,
            seed: request.seed.unwrap_or_else(rand::random),
        };
        // The first call of a new client waits for what the previous client had begun to write.
        drop(self.store.turn().await);
        let n_base = usize::try_from(self.engine.get()?.info().n_params).unwrap_or(usize::MAX);
        let create = move |state: &mut EngineState| -> Result<_, RunError> {
            let run = OpenRun::new(&state.model, &config)?;
            let params = run.trainable_params(n_base);
            Ok((state.runs.open(run), params))
        };
        let (id, trainable_params) = self.engine.call(create).await??;
        tracing::info!(
            run = %id,
            rank = request.rank,
            trainable_params,
            "run opened"
        );
        self.last_step.set(0);
        Ok(CreateReply {
            session_id: id,
            status: "ready".to_owned(),
            model: self.base().to_owned(),
            rank: request.rank,
            trainable_params,
        })
    }

    /// Computes log-probabilities without changing a gradient.
    ///
    /// # Errors
    /// Returns 404 for an unknown run, and 400 for an invalid datum.
    pub(crate) async fn forward(&self, request: ForwardRequest) -> Result<ForwardReply, ApiError> {
        let top_k = request.top_k as usize;
        let wanted = Wanted {
            positions: request.positions,
            top_k,
        };
        let begin = move |state: &mut EngineState| {
            let run = state.runs.get(&request.session_id)?;
            let lora = request.adapter.then(|| run.lora());
            let job = TrainJob::forward(&state.model, lora, &request.datums, &wanted, state.sizes)?;
            Ok((job, run.version()))
        };
        let (job, answer) = PassJob::new(
            Box::new(begin),
            Box::new(|_, _, out| Ok((out.logprobs, out.top))),
        );
        self.engine.submit(Box::new(job))?;
        let (logprobs, top) = ended(answer.await)?;
        Ok(convert::forward_reply(logprobs, &top, top_k))
    }

    /// Adds the gradients of a loss.
    ///
    /// # Errors
    /// Returns 404 for an unknown run, and 400 for an invalid loss or datum.
    ///
    /// # Cancel safety
    /// If the future is dropped, the pass ends and its gradients are not added.
    pub(crate) async fn forward_backward(
        &self,
        request: ForwardBackwardRequest,
    ) -> Result<ForwardBackwardReply, ApiError> {
        let loss = convert::loss(request.loss_fn, &request.loss_fn_config)?;
        let datums = request.datums;
        let n_datums = datums.len();
        let run = request.session_id;
        let id = run.clone();
        let begin = move |state: &mut EngineState| {
            let run = state.runs.get(&id)?;
            let (model, sizes) = (&state.model, state.sizes);
            let job = TrainJob::forward_backward(model, run.lora(), &datums, loss, sizes)?;
            Ok((job, run.version()))
        };
        let finish = move |state: &mut EngineState, version, mut out: TrainOut| {
            let run = state.runs.get(&run)?;
            run.accumulate_grads(version, &mut out)?;
            Ok((out.loss, out.n_loss_tokens, out.logprobs))
        };
        let (job, answer) = PassJob::new(Box::new(begin), Box::new(finish));
        self.engine.submit(Box::new(job))?;
        let (loss, n_loss_tokens, logprobs) = ended(answer.await)?;
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

    /// Returns the loss of log-probabilities that were computed without gradients; the sum is the same as
    /// forward_backward's.
    ///
    /// # Errors
    /// Returns 400 for a setting that the loss does not have, or a datum that lacks a field.
    pub(crate) fn loss_of(
        loss_fn: LossFn,
        config: &LossConfig,
        datums: &[Datum],
        logprobs: &[Vec<f32>],
    ) -> Result<f64, ApiError> {
        let loss = convert::loss(loss_fn, config)?;
        let sums = datums.iter().zip(logprobs).enumerate();
        let sums = sums.map(|(at, (datum, logprobs))| {
            convert::loss_sum(&loss, datum, logprobs).map_err(|field| {
                let text = format!("datums[{at}] has no {field}, which {loss_fn} reads");
                ApiError::field(format!("datums[{at}]"), text)
            })
        });
        sums.sum()
    }

    /// Applies the waiting gradients.
    ///
    /// # Errors
    /// Returns 404 for an unknown run, and 400 without gradients or for a setting out of range.
    pub(crate) async fn optim_step(
        &self,
        request: OptimStepRequest,
    ) -> Result<OptimStepReply, ApiError> {
        let adam = convert::adam(&request);
        let run = request.session_id;
        let id = run.clone();
        let step = move |state: &mut EngineState| -> Result<_, RunError> {
            Ok(state.runs.get(&id)?.optim_step(&adam)?)
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

    /// Returns the number of a run's steps.
    ///
    /// # Errors
    /// Returns 404 for an unknown run.
    pub(crate) async fn step_of(&self, run: RunId) -> Result<u64, ApiError> {
        let step = move |state: &mut EngineState| -> Result<_, RunError> {
            Ok(state.runs.get(&run)?.step())
        };
        Ok(self.engine.call(step).await??)
    }

    /// Closes a run and frees its memory.
    ///
    /// # Errors
    /// Returns 404 for an unknown run.
    pub(crate) async fn close_run(&self, run: RunId) -> Result<(), ApiError> {
        let id = run.clone();
        let close =
            move |state: &mut EngineState| -> Result<(), RunError> { Ok(state.runs.close(&id)?) };
        self.engine.call(close).await??;
        tracing::info!(%run, "run closed");
        Ok(())
    }
}
