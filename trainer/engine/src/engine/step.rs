//! One step of several replies: a pass over the weights, and a draw for those whose ids are then all run.

use tch::{TchError, Tensor};

use super::guard::guarded;
use super::stream::Stream;
use crate::batch::segments;
use crate::generate::GenerateError;
use crate::kv::KvPool;
use crate::model::Model;
use crate::sampler::{self, SampleError, SampledToken, Sampler};

/// What running its rows gave a stream: a token once all its ids are run.
pub(super) type Outcome = Option<Result<SampledToken, SampleError>>;

/// Runs rows (which of the live streams, how many) together; where that fails, each stream's alone, so that one of
/// them ends and not all.
pub(super) fn run(
    model: &Model,
    pool: &mut KvPool,
    live: &[Stream],
    chosen: &[(usize, usize)],
) -> Vec<Result<Outcome, GenerateError>> {
    match guarded_together(model, pool, live, chosen) {
        Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
        Err(error) if chosen.len() == 1 => vec![Err(error)],
        Err(error) => {
            let n = chosen.len();
            tracing::warn!(%error, n, "a batch failed: its replies are run one by one");
            let alone = |one: &(usize, usize)| {
                let outcomes = guarded_together(model, pool, live, &[*one])?;
                Ok(outcomes.into_iter().next().flatten())
            };
            chosen.iter().map(alone).collect()
        }
    }
}

fn guarded_together(
    model: &Model,
    pool: &mut KvPool,
    live: &[Stream],
    chosen: &[(usize, usize)],
) -> Result<Vec<Outcome>, GenerateError> {
    let done = guarded("batch", || {
        let _guard = tch::no_grad_guard();
        together(model, pool, live, chosen)
    });
    Ok(done.map_err(GenerateError::Panicked)??)
}

/// One forward pass and one draw for the streams whose ids are then all run.
fn together(
    model: &Model,
    pool: &mut KvPool,
    live: &[Stream],
    chosen: &[(usize, usize)],
) -> Result<Vec<Outcome>, TchError> {
    let rows: Vec<_> = chosen.iter().map(|&(i, n)| live[i].rows(n)).collect();
    let hidden_nd = model.forward_batch(&rows, pool)?;
    let is_drawn = |&(i, n): &(usize, usize)| live[i].n_pending() == n;
    let drawn = (0_i64..).zip(chosen).filter(|(_, one)| is_drawn(one));
    let (places, streams): (Vec<i64>, Vec<usize>) = drawn.map(|(at, &(i, _))| (at, i)).unzip();
    if places.is_empty() {
        return Ok(chosen.iter().map(|_| None).collect());
    }
    let places = Tensor::f_from_slice(&places)?.f_to_device(model.device)?;
    let adapters = segments(streams.iter().map(|&i| (1, live[i].lora())));
    let logits_nv = model.logits_of_rows(&hidden_nd.f_index_select(0, &places)?, &adapters)?;
    let samplers: Vec<&Sampler> = streams.iter().map(|&i| live[i].reply.sampler()).collect();
    let mut tokens = sampler::sample(&logits_nv, &samplers)?.into_iter();
    let outcome = |one| if is_drawn(one) { tokens.next() } else { None };
    Ok(chosen.iter().map(outcome).collect())
}
