//! forward, forward_backward and optim_step: datums out, log-probabilities and losses back.

use std::{collections::BTreeMap, sync::Arc};

use prost::Message as _;

use super::{
    bodies,
    futures::{self, Either},
    http::{HttpRequest, RequestBody},
    losses,
    models::{ModelCalls, follows_api},
    runs::{ServerModel, State},
    session::Flags,
    usage::TinkerUsage,
};
use crate::{
    BackendError, Datum, LossConfig, LossFn, Tensor2,
    tinker::{
        ModelId, TrainOutput,
        json::{JsonTrainOutput, OptimStepped, Promise},
        proto, to_proto,
    },
    wire::{ForwardBackwardReply, LossFnOutput, OptimStepReply, OptimStepRequest},
};

/// A pass over datums.
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

    /// Splits the datums into chunks that the server accepts in one request.
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
    ) -> Result<HttpRequest, BackendError> {
        let call = self.call();
        if !protobuf {
            let mut input = bodies::input(chunk, self.loss.as_str(), self.config);
            if !follows_api(model) {
                // This server takes the mean over tokens with a weight. Without weights that includes the prompt.
                bodies::weigh(&mut input, chunk);
            }
            let body = bodies::pass(model, seq, self.is_forward, &input);
            let body = body.map_err(|error| BackendError::Request {
                call,
                why: error.to_string(),
            })?;
            return HttpRequest::json(call, call, &body);
        }
        let settings = self.config.iter();
        let message = proto::ProtoForwardBackward {
            model_id: model.to_string(),
            seq_id: seq,
            data: chunk.iter().map(to_proto).collect(),
            loss_fn: self.loss.as_str().to_owned(),
            loss_fn_config: self.config.clone(),
            forward_only: self.is_forward,
            loss_fn_config_v2: settings
                .map(|(key, value)| (key.clone(), setting(*value)))
                .collect(),
        };
        let body: Result<RequestBody, String> = futures::protobuf(flags, &message);
        let body = body.map_err(|why| BackendError::Request { call, why })?;
        Ok(HttpRequest::post(call, "forward_backward", body))
    }
}

fn setting(value: f64) -> proto::LossConfigValue {
    let value = Some(proto::Setting::Number(value));
    proto::LossConfigValue { value }
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
    ) -> Result<(Vec<Tensor2<f32>>, f64), BackendError> {
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
            let result = self.fetch(call, &promised, limits).await?;
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
        limits: futures::PollLimits,
    ) -> Result<Promise, BackendError> {
        let flags = Arc::clone(&model.session.flags);
        let build = |protobuf: bool| {
            let flags = Arc::clone(&flags);
            move |id: &ModelId, seq: i32| pass.request(chunk, id, seq, &flags, protobuf)
        };
        if !flags.protobuf() || !follows_api(&model.id) {
            return self.send(model, build(false), limits).await;
        }
        match self.send(model, build(true), limits).await {
            Err(refused) if matches!(refused.status(), Some(415 | 422)) && !model.is_in_doubt => {
                let promised = self.send(model, build(false), limits).await;
                // If the server refuses JSON as well, the form was not the reason.
                let promised = promised.map_err(|_| refused)?;
                flags.set_json();
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
        result: futures::Result_,
    ) -> Result<(Vec<Tensor2<f32>>, f64), BackendError> {
        let whose = self.http().whose(call);
        let read =
            result.either::<proto::ForwardBackwardOutput, JsonTrainOutput>(self.http(), call)?;
        let output = match read {
            Either::Protobuf(output) => TrainOutput::from_proto(output),
            Either::Json(output) => TrainOutput::from_json(output),
        };
        let output = output.map_err(|error| whose.unreadable(error.to_string()))?;
        let n_values = |it: &Tensor2<f32>| it.values().len();
        let asked = chunk
            .iter()
            .map(|it| it.parts().target_tokens.values().len());
        if !output.logprobs.iter().map(n_values).eq(asked) {
            let n = output.logprobs.len();
            let why = format!(
                "log-probabilities of {n} sequences for {}, or of other lengths",
                chunk.len()
            );
            return Err(whose.unreadable(why));
        }
        let each = chunk.iter().zip(&output.logprobs);
        let found = || {
            each.map(|(datum, it)| losses::loss(pass.loss, pass.config, datum, it.values()))
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
    ) -> Result<ForwardBackwardReply, BackendError> {
        let (logprobs, loss) = self.pass(state, pass, usage).await?;
        let total_tokens = pass.datums.iter().map(losses::n_counted).sum();
        state.loss.0 += loss;
        state.loss.1 += total_tokens;
        let known = |it: &f32| Some(*it).filter(|it| it.is_finite());
        let outputs = logprobs.iter().map(|it| LossFnOutput {
            logprobs: it.values().iter().map(known).collect(),
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
    ) -> Result<OptimStepReply, BackendError> {
        let call = "optim_step";
        let model = self.standing(call, state).await?;
        let done = self
            .operate(model, call, |id, seq| {
                HttpRequest::json(call, call, &bodies::optim_step(id, seq, request))
            })
            .await?;
        let done: OptimStepped = done.json(self.http(), call)?;
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
