//! Training runs, on the engine's thread.

use std::{ops::ControlFlow, time::Duration};

use metaclaw_engine::{
    engine::{EngineError, EngineState, JobProgress, SlicedJob},
    head::TopTokens,
    lora::{LoraSpec, LoraTargets},
    loss::{Loss, LossSignal},
    optim::AdamConfig,
    run::{OpenRun, ParamsVersion, RunConfig},
    train::{TrainJob, TrainOut, Wanted},
};
use metaclaw_trainer_api::{
    Datum, LossConfig, LossFn, RunId,
    wire::{
        CreateReply, CreateRequest, ForwardBackwardReply, ForwardBackwardRequest, ForwardReply,
        ForwardRequest, LossFnOutput, OptimStepReply, OptimStepRequest,
    },
};
use tokio::sync::oneshot;

use super::{Host, failure::RunError};
use crate::error::{ApiError, Result};

type Begin =
    Box<dyn FnOnce(&mut EngineState) -> Result<(TrainJob, ParamsVersion), RunError> + Send>;
type Finish<T> =
    Box<dyn FnOnce(&mut EngineState, ParamsVersion, TrainOut) -> Result<T, RunError> + Send>;

/// A forward_backward or forward in progress.
///
/// If the caller disconnects, the pass ends without an effect: what was not answered was not done.
struct PassJob<T> {
    stage: Stage,
    finish: Option<Finish<T>>,
    answer: Option<oneshot::Sender<Result<T, RunError>>>,
}

enum Stage {
    Waiting(Begin),
    Going(Box<TrainJob>, ParamsVersion),
    Over,
}

// === impl Host ===

impl Host {
    /// Opens a run.
    ///
    /// # Errors
    /// Returns 400 for an invalid rank, alpha or targets.
    pub(crate) async fn create_run(&self, request: CreateRequest) -> Result<CreateReply> {
        let lora = lora_spec(&request)?;
        let seed = request.seed.unwrap_or_else(rand::random);
        let config = RunConfig { lora, seed };
        // The first call of a new client waits for what the previous client had begun to write.
        drop(self.store.turn().await);
        let n_base = usize::try_from(self.engine.get()?.info().n_params).unwrap_or(usize::MAX);
        let create = move |state: &mut EngineState| -> Result<_, RunError> {
            let run = OpenRun::new(&state.model, &config)?;
            let params = run.trainable_params(n_base);
            Ok((state.runs.open(run), params))
        };
        let (id, trainable_params) = self.engine.call(create).await??;
        tracing::info!(run = %id, rank = request.rank, trainable_params, "run opened");
        self.set_last_step(0);
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
    pub(crate) async fn forward(&self, request: ForwardRequest) -> Result<ForwardReply> {
        let top_k = request.top_k as usize;
        let positions = request.positions;
        let wanted = Wanted { positions, top_k };
        let begin = move |state: &mut EngineState| {
            let run = state.runs.get(&request.session_id)?;
            let lora = request.adapter.then(|| run.lora());
            let job = TrainJob::forward(&state.model, lora, &request.datums, &wanted, state.sizes)?;
            Ok((job, run.version()))
        };
        let finish = |_: &mut EngineState, _, out: TrainOut| Ok((out.logprobs, out.top));
        let (logprobs, top) = self.pass(begin, finish).await?;
        Ok(forward_reply(logprobs, &top, top_k))
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
    ) -> Result<ForwardBackwardReply> {
        let loss = loss(request.loss_fn, &request.loss_fn_config)?;
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
        let (loss, n_loss_tokens, logprobs) = self.pass(begin, finish).await?;
        let outputs = logprobs.into_iter();
        let outputs = outputs.map(|logprobs| LossFnOutput { logprobs });
        Ok(ForwardBackwardReply {
            status: "ok".to_owned(),
            loss,
            total_tokens: n_loss_tokens as u64,
            num_datums: n_datums as u64,
            loss_fn_outputs: outputs.collect(),
        })
    }

    async fn pass<T: Send + 'static>(
        &self,
        begin: impl FnOnce(&mut EngineState) -> Result<(TrainJob, ParamsVersion), RunError>
        + Send
        + 'static,
        finish: impl FnOnce(&mut EngineState, ParamsVersion, TrainOut) -> Result<T, RunError>
        + Send
        + 'static,
    ) -> Result<T> {
        let (answer, received) = oneshot::channel();
        self.engine.submit(Box::new(PassJob {
            stage: Stage::Waiting(Box::new(begin)),
            finish: Some(Box::new(finish)),
            answer: Some(answer),
        }))?;
        // The channel closes without an answer if the job failed inside the engine.
        let ended = received.await.map_err(|_| EngineError::Failed);
        Ok(ended.map_err(RunError::from)??)
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
    ) -> Result<f64> {
        let loss = loss(loss_fn, config)?;
        let sums = datums.iter().zip(logprobs).enumerate();
        let sums = sums.map(|(at, (datum, logprobs))| {
            loss_sum(&loss, datum, logprobs).map_err(|field| {
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
    pub(crate) async fn optim_step(&self, request: OptimStepRequest) -> Result<OptimStepReply> {
        let adam = adam(&request);
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
        self.set_last_step(out.step);
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
    pub(crate) async fn step_of(&self, run: RunId) -> Result<u64> {
        let step = move |state: &mut EngineState| -> Result<_, RunError> {
            Ok(state.runs.get(&run)?.step())
        };
        Ok(self.engine.call(step).await??)
    }

    /// Closes a run and frees its memory.
    ///
    /// # Errors
    /// Returns 404 for an unknown run.
    pub(crate) async fn close_run(&self, run: RunId) -> Result<()> {
        let id = run.clone();
        let close =
            move |state: &mut EngineState| -> Result<(), RunError> { Ok(state.runs.close(&id)?) };
        self.engine.call(close).await??;
        tracing::info!(%run, "run closed");
        Ok(())
    }
}

// === impl PassJob ===

impl<T> PassJob<T> {
    fn has_left(&self) -> bool {
        self.answer.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Works on the pass for one slice. Returns its answer once it has ended, unless the caller has left.
    fn work(&mut self, state: &mut EngineState, slice: Duration) -> Option<Result<T, RunError>> {
        let job = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Waiting(begin) => begin(state),
            Stage::Going(job, version) => Ok((*job, version)),
            Stage::Over => return None,
        };
        let progress =
            job.and_then(|(job, version)| Ok((job.advance(&state.model, slice)?, version)));
        match progress {
            Ok((ControlFlow::Continue(job), version)) => {
                self.stage = Stage::Going(Box::new(job), version);
                None
            }
            // A caller that left during the last slice will send the request again, so nothing of this one may count.
            Ok((ControlFlow::Break(_), _)) if self.has_left() => None,
            Ok((ControlFlow::Break(out), version)) => {
                Some(self.finish.take()?(state, version, out))
            }
            Err(error) => Some(Err(error)),
        }
    }
}

impl<T: Send> SlicedJob for PassJob<T> {
    fn advance(&mut self, state: &mut EngineState, slice: Duration) -> JobProgress {
        if self.has_left() {
            return JobProgress::Done;
        }
        if let Some(answer) = self.work(state, slice)
            && let Some(to) = self.answer.take()
        {
            // A send fails only if the caller has left.
            let _ = to.send(answer);
        }
        match self.stage {
            Stage::Waiting(_) | Stage::Going(..) => JobProgress::More,
            Stage::Over => JobProgress::Done,
        }
    }
}

fn loss(name: LossFn, config: &LossConfig) -> Result<Loss> {
    Loss::new(name, config).map_err(|error| ApiError::field("loss_fn_config", error.to_string()))
}

/// Missing fields have Tinker's defaults.
fn adam(request: &OptimStepRequest) -> AdamConfig {
    let default = AdamConfig::default();
    let given = request.adam;
    AdamConfig {
        learning_rate: request.learning_rate,
        beta1: given.beta1.unwrap_or(default.beta1),
        beta2: given.beta2.unwrap_or(default.beta2),
        eps: given.eps.unwrap_or(default.eps),
        weight_decay: given.weight_decay.unwrap_or(default.weight_decay),
        grad_clip_norm: given.grad_clip_norm.unwrap_or(default.grad_clip_norm),
        skip_over: given.skip_over.unwrap_or(default.skip_over),
    }
}

fn lora_spec(request: &CreateRequest) -> Result<LoraSpec> {
    let default = LoraSpec::default();
    let targets = match &request.targets {
        None => default.targets,
        Some(names) => LoraTargets::named(names.iter().map(String::as_str))
            .map_err(|error| ApiError::field("targets", error.to_string()))?,
    };
    Ok(LoraSpec {
        rank: i64::from(request.rank),
        alpha: request.lora_alpha.map_or(Ok(default.alpha), alpha)?,
        targets,
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be whole and within a u32"
)]
fn alpha(given: f64) -> Result<u32> {
    if given.fract() == 0.0 && given >= 1.0 && given <= f64::from(u32::MAX) {
        return Ok(given as u32);
    }
    let text = format!("lora_alpha is {given}: a whole number of at least 1, as PEFT writes it");
    Err(ApiError::field("lora_alpha", text))
}

/// Returns the sum of a loss over one datum's targets, from their log-probabilities in row-major order.
///
/// # Errors
/// Returns the name of a field that the loss reads and the datum lacks.
fn loss_sum(loss: &Loss, datum: &Datum, logprobs: &[f32]) -> Result<f64, &'static str> {
    let parts = datum.parts();
    let (weights, sampled) = match loss.loss_fn() {
        LossFn::CrossEntropy => (parts.weights.as_ref().ok_or("weights")?.values(), None),
        LossFn::ImportanceSampling | LossFn::Ppo | LossFn::Cispo | LossFn::Dro => {
            let advantages = parts.advantages.as_deref().ok_or("advantages")?;
            let sampled = parts.logprobs.as_deref().ok_or("logprobs")?;
            (advantages, Some(sampled))
        }
    };
    let terms = logprobs.iter().zip(weights).enumerate();
    let terms = terms.map(|(at, (logprob, weight))| {
        let sampled = sampled.and_then(|all| all.get(at)).copied();
        let (weight, sampled) = (*weight, sampled.unwrap_or_default());
        let signal = LossSignal { weight, sampled };
        if loss.is_masked(signal) {
            return 0.0;
        }
        loss.term(f64::from(*logprob), signal).loss
    });
    Ok(terms.sum())
}

fn forward_reply(logprobs: Vec<Vec<Option<f32>>>, top: &[TopTokens], k: usize) -> ForwardReply {
    let computed = |all: Vec<Option<f32>>| all.into_iter().flatten().collect();
    let top = if k == 0 { &[] } else { top };
    ForwardReply {
        logprobs: logprobs.into_iter().map(computed).collect(),
        topk_ids: top.iter().map(|top| rows(&top.ids, k)).collect(),
        topk_logprobs: top.iter().map(|top| rows(&top.logprobs, k)).collect(),
    }
}

fn rows<T: Clone>(values: &[T], k: usize) -> Vec<Vec<T>> {
    values.chunks(k).map(<[T]>::to_vec).collect()
}
