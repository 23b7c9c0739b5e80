//! Measures training. Only [`Trainer`] uses the training interface.

use std::ops::ControlFlow;
use std::time::Duration;

use metaclaw_engine::engine::{EngineState, JobProgress, SlicedJob};
use metaclaw_engine::head::TopTokens;
use metaclaw_engine::lora::LoraSpec;
use metaclaw_engine::loss::Loss;
use metaclaw_engine::model::Model;
use metaclaw_engine::optim::AdamConfig;
use metaclaw_engine::run::{OpenRun, RunConfig};
use metaclaw_engine::train::{SliceSizes, TrainJob, TrainOut, Wanted};
use metaclaw_trainer_terms::{Datum, DatumError};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::failure::Failure;
use crate::input::{BenchSample, Input, Train};
use crate::measure::Clock;

/// The adapter's rank, the same as in `peer.py`.
const RANK: i64 = 16;

/// A run and the sizes of its slices.
pub(crate) struct Trainer {
    run: OpenRun,
    sizes: SliceSizes,
}

/// A training step on an engine's thread, in slices between the streams.
pub(crate) struct StepJob {
    datums: Vec<Datum>,
    trainer: Option<Trainer>,
    going: Option<TrainJob>,
    answer: Option<oneshot::Sender<Result<f64, Failure>>>,
}

/// Measures one step.
///
/// # Errors
/// Returns the engine's error.
pub(crate) fn run(input: &Input, work: &Train) -> Result<Value, Failure> {
    let model = load(input)?;
    let mut trainer = Trainer::new(&model)?;
    let batch = batch(&work.samples)?;
    let warm = work.warm_tokens.map(|n| work.samples[0].cut(n));
    match warm {
        Some(sample) => trainer.step(&model, &self::batch(&[sample])?)?,
        None => trainer.step(&model, &batch)?,
    };
    let clock = Clock::start()?;
    let loss = trainer.step(&model, &batch)?;
    let mut figures = clock.figures()?;
    figures["loss"] = loss.into();
    let n_tokens: usize = work.samples.iter().map(|it| it.ids.len() - 1).sum();
    figures["tokens"] = n_tokens.into();
    figures["n_params"] = model.config.n_params().into();
    Ok(figures)
}

/// Loads the model on this thread, with the requested number of threads.
///
/// # Errors
/// Returns the engine's error.
pub(crate) fn load(input: &Input) -> Result<Model, Failure> {
    // A thread's first call of libtorch resets the number of threads.
    let _before = tch::get_num_threads();
    tch::set_num_threads(i32::try_from(input.threads)?);
    let (kind, devices) = (input.dtype()?.kind(), input.devices()?);
    let quantization = input.quantization();
    Ok(Model::load_as(&input.model, kind, &devices, quantization)?)
}

/// Makes datums with the mean loss over all positions that count.
///
/// # Errors
/// Fails for a sample without a prediction.
pub(crate) fn batch(samples: &[BenchSample]) -> Result<Vec<Datum>, DatumError> {
    let n_targets = samples.iter().map(BenchSample::n_targets).sum();
    samples.iter().map(|it| it.datum(n_targets)).collect()
}

// === impl Trainer ===

impl Trainer {
    /// # Errors
    /// Returns the engine's error.
    pub(crate) fn new(model: &Model) -> Result<Self, Failure> {
        let lora = LoraSpec {
            rank: RANK,
            ..LoraSpec::default()
        };
        Ok(Self {
            run: OpenRun::new(model, &RunConfig { lora, seed: 1 })?,
            sizes: SliceSizes::measured(model, None)?,
        })
    }

    /// Runs forward, backward and optimiser, and returns the loss.
    ///
    /// # Errors
    /// Returns the engine's error.
    pub(crate) fn step(&mut self, model: &Model, datums: &[Datum]) -> Result<f64, Failure> {
        let job = self.begin(model, datums)?;
        let out = job.finish(model)?;
        self.end(out)
    }

    /// Returns the base model's most likely tokens after each position that counts.
    ///
    /// # Errors
    /// Returns the engine's error.
    pub(crate) fn teacher(
        &self,
        model: &Model,
        samples: &[BenchSample],
        top_k: usize,
    ) -> Result<Vec<TopTokens>, Failure> {
        let datums = samples.iter().map(|it| it.datum(1));
        let datums: Vec<Datum> = datums.collect::<Result<_, _>>()?;
        let positions = samples
            .iter()
            .map(|it| (it.loss_from..it.ids.len() - 1).collect());
        let wanted = Wanted {
            positions: Some(positions.collect()),
            top_k,
        };
        Ok(
            TrainJob::forward(model, None, &datums, &wanted, self.sizes)?
                .finish(model)?
                .top,
        )
    }

    fn begin(&self, model: &Model, datums: &[Datum]) -> Result<TrainJob, Failure> {
        let (lora, loss) = (self.run.lora(), Loss::CrossEntropy);
        Ok(TrainJob::forward_backward(
            model, lora, datums, loss, self.sizes,
        )?)
    }

    /// Nothing else changes the run between [`Trainer::begin`] and this.
    fn end(&mut self, mut out: TrainOut) -> Result<f64, Failure> {
        self.run.accumulate_grads(self.run.version(), &mut out)?;
        self.run.optim_step(&AdamConfig::default())?;
        Ok(out.loss)
    }
}

// === impl StepJob ===

impl StepJob {
    /// Makes a step, and the receiver of its loss.
    ///
    /// # Errors
    /// Fails for a sample without a prediction.
    pub(crate) fn new(
        samples: &[BenchSample],
    ) -> Result<(Self, oneshot::Receiver<Result<f64, Failure>>), DatumError> {
        let (answer, receiver) = oneshot::channel();
        let job = Self {
            datums: batch(samples)?,
            trainer: None,
            going: None,
            answer: Some(answer),
        };
        Ok((job, receiver))
    }

    /// Returns the loss at the end.
    fn work(&mut self, state: &EngineState, slice: Duration) -> Result<Option<f64>, Failure> {
        let trainer = match self.trainer.take() {
            Some(trainer) => trainer,
            None => Trainer::new(&state.model)?,
        };
        let trainer = self.trainer.insert(trainer);
        let job = match self.going.take() {
            Some(job) => job,
            None => trainer.begin(&state.model, &self.datums)?,
        };
        match job.advance(&state.model, slice)? {
            ControlFlow::Continue(job) => {
                self.going = Some(job);
                Ok(None)
            }
            ControlFlow::Break(out) => trainer.end(out).map(Some),
        }
    }
}

impl SlicedJob for StepJob {
    fn advance(&mut self, state: &mut EngineState, slice: Duration) -> JobProgress {
        let Some(answer) = self.work(state, slice).transpose() else {
            return JobProgress::More;
        };
        if let Some(sender) = self.answer.take() {
            // The receiver may be gone.
            let _ = sender.send(answer);
        }
        JobProgress::Done
    }
}
