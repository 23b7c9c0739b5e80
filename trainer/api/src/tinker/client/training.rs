//! forward, forward_backward and optim_step: datums out, log-probabilities and losses back.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use prost::Message as _;

use super::{
    bodies,
    futures::{self, Either, PollLimits, PromiseResult},
    http::{HttpRequest, RequestBody},
    models::{ModelCalls, ServerModel, State, follows_api},
    session::Flags,
};
use crate::backend::Result;
use crate::{
    BackendError, Datum, LossConfig, LossFn, Tensor2,
    tinker::{
        ModelId, TrainOutput,
        json::{JsonTrainOutput, OptimStepped, Promise},
        proto, to_proto,
    },
    wire::{ForwardBackwardReply, LossFnOutput, OptimStepReply, OptimStepRequest},
};

#[derive(Debug)]
pub(super) struct Pass<'a> {
    pub(super) datums: &'a [Datum],
    pub(super) loss: LossFn,
    pub(super) config: &'a LossConfig,
    pub(super) is_forward: bool,
}

// === impl Pass ===

impl Pass<'_> {
    fn call(&self) -> &'static str {
        if self.is_forward {
            "forward"
        } else {
            "forward_backward"
        }
    }

    fn chunks(&self, flags: &Flags) -> Vec<&[Datum]> {
        let (mut chunks, mut start, mut bytes) = (Vec::new(), 0, 0);
        for (at, datum) in self.datums.iter().enumerate() {
            let size = to_proto(datum).encoded_len();
            let is_full = at - start >= flags.most_datums || bytes + size > flags.most_bytes;
            if at > start && is_full {
                chunks.push(&self.datums[start..at]);
                (start, bytes) = (at, 0);
            }
            bytes += size;
        }
        chunks.push(&self.datums[start..]);
        chunks
    }

    fn request(
        &self,
        chunk: &[Datum],
        model: &ModelId,
        seq: i32,
        flags: &Flags,
        protobuf: bool,
    ) -> Result<HttpRequest> {
        let call = self.call();
        let unwritten = |why: String| BackendError::Request { call, why };
        if !protobuf {
            let mut input = bodies::input(chunk, self.loss.as_str(), self.config);
            if !follows_api(model) {
                // This server takes the mean over tokens with a weight. Without weights that includes the prompt.
                bodies::weigh(&mut input, chunk);
            }
            let body = bodies::pass(model, seq, self.is_forward, &input);
            let body = body.map_err(|error| unwritten(error.to_string()))?;
            return HttpRequest::json(call, call, &body);
        }
        let setting = |value: f64| proto::LossConfigValue {
            value: Some(proto::Setting::Number(value)),
        };
        let message = proto::ProtoForwardBackward {
            model_id: model.to_string(),
            seq_id: seq,
            data: chunk.iter().map(to_proto).collect(),
            loss_fn: self.loss.as_str().to_owned(),
            loss_fn_config: self.config.clone(),
            forward_only: self.is_forward,
            loss_fn_config_v2: self
                .config
                .iter()
                .map(|(key, value)| (key.clone(), setting(*value)))
                .collect(),
        };
        let bytes = message.encode_to_vec();
        let body = if flags.compress {
            let packed = zstd::encode_all(bytes.as_slice(), 1);
            RequestBody::Compressed(packed.map_err(|error| unwritten(error.to_string()))?.into())
        } else {
            RequestBody::Protobuf(bytes.into())
        };
        Ok(HttpRequest::post(call, "forward_backward", body))
    }
}

// === impl ModelCalls ===

impl ModelCalls {
    /// Passes datums through the run's model. Returns the log-probabilities of each, and the loss.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn pass(
        &self,
        state: &mut State,
        pass: &Pass<'_>,
        usage: &TinkerUsage,
    ) -> Result<(Vec<Tensor2<f32>>, f64)> {
        let call = pass.call();
        let limits = self.asker.limits();
        let model = self.standing(call, state).await?;
        let flags = Arc::clone(&model.session.flags);
        let mut promises = Vec::new();
        for chunk in pass.chunks(&flags) {
            let promised = self.send_chunk(model, pass, chunk, limits).await?;
            promises.push((chunk, promised));
        }
        let (mut logprobs, mut loss) = (Vec::new(), 0.0);
        let (mut failed, mut n_passed) = (None, 0);
        for (chunk, promised) in promises {
            let result = futures::result(self.http(), call, &promised, limits).await?;
            let before = n_passed;
            n_passed += chunk.len();
            match self.read(call, pass, chunk, result) {
                Ok((of_chunk, loss_here)) => {
                    logprobs.extend(of_chunk);
                    loss += loss_here;
                }
                Err(error) if failed.is_none() => failed = Some(named(error, before)),
                Err(_) => {}
            }
            let n: usize = chunk.iter().map(Datum::n_tokens).sum();
            usage.trained(n);
        }
        // Every call of it has ended, well or badly.
        model.is_in_doubt = false;
        match failed {
            Some(error) => Err(error),
            None => Ok((logprobs, loss)),
        }
    }

    /// Sends one chunk: as protobuf, and as JSON where the server shows that it reads nothing else.
    async fn send_chunk(
        &self,
        model: &mut ServerModel,
        pass: &Pass<'_>,
        chunk: &[Datum],
        limits: PollLimits,
    ) -> Result<Promise> {
        let flags = &Arc::clone(&model.session.flags);
        let build = |protobuf: bool| {
            move |id: &ModelId, seq: i32| pass.request(chunk, id, seq, flags, protobuf)
        };
        if !flags.protobuf.get() || !follows_api(&model.id) {
            return self.send(model, build(false), limits).await;
        }
        match self.send(model, build(true), limits).await {
            Err(refused) if matches!(refused.status(), Some(415 | 422)) && !model.is_in_doubt => {
                let promised = self.send(model, build(false), limits).await;
                // If the server refuses JSON as well, the form was not the reason.
                let promised = promised.map_err(|_| refused)?;
                flags.protobuf.set(false);
                Ok(promised)
            }
            sent => sent,
        }
    }

    fn read(
        &self,
        call: &'static str,
        pass: &Pass<'_>,
        chunk: &[Datum],
        result: PromiseResult,
    ) -> Result<(Vec<Tensor2<f32>>, f64)> {
        let whose = self.http().whose(call);
        let read =
            result.either::<proto::ForwardBackwardOutput, JsonTrainOutput>(self.http(), call)?;
        let output = match read {
            Either::Protobuf(output) => TrainOutput::from_proto(output),
            Either::Json(output) => TrainOutput::from_json(output),
        };
        let output = output.map_err(|error| whose.unreadable(error.to_string()))?;
        let n_values = |tensor: &Tensor2<f32>| tensor.values().len();
        let asked = chunk
            .iter()
            .map(|datum| datum.parts().target_tokens.values().len());
        if !output.logprobs.iter().map(n_values).eq(asked) {
            let n = output.logprobs.len();
            let n_wanted = chunk.len();
            let why =
                format!("log-probabilities of {n} sequences for {n_wanted}, or of other lengths");
            return Err(whose.unreadable(why));
        }
        let each = chunk.iter().zip(&output.logprobs);
        let found = || {
            each.map(|(datum, found)| loss(pass.loss, pass.config, datum, found.values()))
                .sum()
        };
        let loss = output.loss().unwrap_or_else(found);
        Ok((output.logprobs, loss))
    }

    /// Passes datums and has their gradients added up.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn forward_backward(
        &self,
        state: &mut State,
        pass: &Pass<'_>,
        usage: &TinkerUsage,
    ) -> Result<ForwardBackwardReply> {
        let (logprobs, loss) = self.pass(state, pass, usage).await?;
        let total_tokens = pass.datums.iter().map(n_counted).sum();
        state.loss.0 += loss;
        state.loss.1 += total_tokens;
        let known = |logprob: &f32| Some(*logprob).filter(|logprob| logprob.is_finite());
        let outputs = logprobs.iter().map(|tensor| LossFnOutput {
            logprobs: tensor.values().iter().map(known).collect(),
        });
        Ok(ForwardBackwardReply {
            status: "ok".to_owned(),
            loss,
            total_tokens,
            num_datums: pass.datums.len() as u64,
            loss_fn_outputs: outputs.collect(),
        })
    }

    /// Takes a step along the gradients.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn optim_step(
        &self,
        state: &mut State,
        request: &OptimStepRequest,
    ) -> Result<OptimStepReply> {
        let call = "optim_step";
        let model = self.standing(call, state).await?;
        let body = |id: &ModelId, seq| bodies::optim_step(id, seq, request);
        let done: OptimStepped = self.operate(model, call, body).await?;
        let (loss, n_tokens) = state.loss;
        state.moved();
        state.step += 1;
        Ok(OptimStepReply {
            status: "ok".to_owned(),
            step: state.step,
            grad_norm: done.metrics.as_ref().and_then(norm).unwrap_or(0.0),
            skipped: false,
            median_grad_norm: None,
            avg_loss: loss / n_tokens.max(1) as f64,
            learning_rate: request.learning_rate,
        })
    }
}

/// The error with the datum that its words name as `data[3]`, counted through all chunks.
fn named(mut error: BackendError, n_before: usize) -> BackendError {
    if let BackendError::Status { message, param, .. } = &mut error {
        let at = message.split_once("data[").and_then(|(_, rest)| {
            let (at, _) = rest.split_once(']')?;
            at.parse::<usize>().ok()
        });
        if let Some(at) = at {
            *param = Some(format!("datums[{}]", at + n_before));
        }
    }
    error
}

/// The gradient's norm. Servers name it differently: `grad_norm`, `optim/grad_norm`, `grad_norm:mean`.
fn norm(metrics: &BTreeMap<String, f64>) -> Option<f64> {
    let is_norm = |name: &str| name.contains("grad_norm") || name.contains("grad_l2_norm");
    let mut norms = metrics.iter().filter(|(name, _)| is_norm(name));
    norms.next().map(|(_, norm)| *norm)
}

fn n_counted(datum: &Datum) -> u64 {
    let parts = datum.parts();
    let counted = match (&parts.weights, &parts.advantages) {
        (Some(weights), _) => {
            let width = weights.width();
            let rows = weights.values().chunks(width);
            rows.filter(|row| row.iter().any(|weight| *weight != 0.0))
                .count()
        }
        (None, Some(advantages)) => advantages
            .iter()
            .filter(|advantage| **advantage != 0.0)
            .count(),
        (None, None) => 0,
    };
    counted as u64
}

/// The loss of a datum whose targets have these log-probabilities: a sum, by the formulas of [`LossFn`].
fn loss(loss_fn: LossFn, config: &LossConfig, datum: &Datum, logprobs: &[f32]) -> f64 {
    let parts = datum.parts();
    if loss_fn == LossFn::CrossEntropy {
        let weights = parts.weights.as_ref().map(Tensor2::values);
        let terms = weights.unwrap_or_default().iter().zip(logprobs);
        let terms = terms.filter(|(weight, _)| **weight != 0.0);
        return -terms
            .map(|(weight, logprob)| f64::from(*weight) * f64::from(*logprob))
            .sum::<f64>();
    }
    let sampled = parts.logprobs.as_deref().unwrap_or_default();
    let advantages = parts.advantages.as_deref().unwrap_or_default();
    let terms = sampled.iter().zip(advantages).zip(logprobs);
    let terms = terms.filter(|((_, advantage), _)| **advantage != 0.0);
    let terms = terms.map(|((sampled, advantage), now)| {
        let [now, sampled, advantage] = [now, sampled, advantage].map(|number| f64::from(*number));
        term(loss_fn, config, now, sampled, advantage)
    });
    -terms.sum::<f64>()
}

fn term(loss_fn: LossFn, config: &LossConfig, now: f64, sampled: f64, advantage: f64) -> f64 {
    let ratio = (now - sampled).exp();
    let bound = |key: &str, usual: f64| config.get(key).copied().unwrap_or(usual);
    let clipped = |low: f64, high: f64| {
        let low = bound("clip_low_threshold", low);
        ratio.max(low).min(bound("clip_high_threshold", high))
    };
    match loss_fn {
        LossFn::CrossEntropy => now,
        LossFn::ImportanceSampling => ratio * advantage,
        LossFn::Ppo => (ratio * advantage).min(clipped(0.8, 1.2) * advantage),
        LossFn::Cispo => clipped(0.0, 4.0) * now * advantage,
        LossFn::Dro => now * advantage - 0.5 * bound("beta", 0.05) * (now - sampled).powi(2),
    }
}

/// The tokens since the process began. All counts only grow.
#[derive(Debug, Default)]
pub struct TinkerUsage {
    trained: AtomicU64,
    read: AtomicU64,
    sampled: AtomicU64,
}

/// The counts at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TinkerTokens {
    /// Tokens that went through forward or forward_backward.
    pub trained: u64,
    /// Tokens of prompts that were sampled from or scored.
    pub read: u64,
    pub sampled: u64,
}

// === impl TinkerUsage ===

impl TinkerUsage {
    /// Returns the present counts.
    pub fn now(&self) -> TinkerTokens {
        TinkerTokens {
            trained: self.trained.load(Ordering::Relaxed),
            read: self.read.load(Ordering::Relaxed),
            sampled: self.sampled.load(Ordering::Relaxed),
        }
    }

    pub(super) fn trained(&self, n: usize) {
        self.trained.fetch_add(n as u64, Ordering::Relaxed);
    }

    pub(super) fn drawn(&self, n_read: usize, n_sampled: usize) {
        self.read.fetch_add(n_read as u64, Ordering::Relaxed);
        self.sampled.fetch_add(n_sampled as u64, Ordering::Relaxed);
    }
}

// === impl TinkerTokens ===

impl std::ops::Sub for TinkerTokens {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            trained: self.trained.saturating_sub(before.trained),
            read: self.read.saturating_sub(before.read),
            sampled: self.sampled.saturating_sub(before.sampled),
        }
    }
}

impl std::ops::AddAssign for TinkerTokens {
    fn add_assign(&mut self, more: Self) {
        self.trained += more.trained;
        self.read += more.read;
        self.sampled += more.sampled;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
    }

    #[test]
    fn losses_are_sums_as_documented() {
        let logprobs = [-1.0, -2.0];
        let taught = Datum::cross_entropy(vec![1, 2], vec![2, 3], vec![0.0, 0.5]).unwrap();
        let none = LossConfig::new();
        near(loss(LossFn::CrossEntropy, &none, &taught, &logprobs), 1.0);
        assert_eq!(n_counted(&taught), 1);
        let pushed = Datum::policy(vec![1, 2], vec![2, 3], vec![-1.0, -1.0], vec![0.0, 2.0]);
        let pushed = pushed.unwrap();
        let ratio = (-1.0_f64).exp();
        let of = |loss_fn| loss(loss_fn, &none, &pushed, &logprobs);
        near(of(LossFn::ImportanceSampling), -2.0 * ratio);
        near(of(LossFn::Ppo), -2.0 * ratio);
        near(of(LossFn::Cispo), 4.0 * ratio);
        near(of(LossFn::Dro), 4.0 + 0.025);
        let clip = LossConfig::from([("clip_high_threshold".to_owned(), 0.1)]);
        near(loss(LossFn::Ppo, &clip, &pushed, &logprobs), -0.2);
    }
}
