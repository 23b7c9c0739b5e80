//! One step of several replies: a forward pass, and a draw for those whose ids have then all run.

use tch::Tensor;

use super::score::score;
use super::stream::Stream;
use crate::aten::PlainCalls;
use crate::batch::{Keep, segments};
use crate::generate::{GenerateError, Scores};
use crate::guard::guarded;
use crate::kv::KvPool;
use crate::model::Model;
use crate::sampler::{self, DrawnToken, SampleError, SequenceSampler};
use crate::torch::Result;

#[derive(Default)]
pub(super) struct StreamOutcome {
    pub(super) scores: Option<Scores>,
    pub(super) token: Option<Result<DrawnToken, SampleError>>,
}

/// Runs rows (which of the live streams, how many) together; where that fails, each stream's alone, so that one of
/// them ends and not all.
pub(super) fn run(
    model: &Model,
    pool: &mut KvPool,
    live: &[Stream],
    chosen: &[(usize, usize)],
) -> Vec<Result<StreamOutcome, GenerateError>> {
    match guarded_together(model, pool, live, chosen) {
        Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
        Err(error) if chosen.len() == 1 => vec![Err(error)],
        Err(error) => {
            let n = chosen.len();
            tracing::warn!(%error, n, "a batch failed: its replies are run one by one");
            let alone = |one: &(usize, usize)| {
                let outcomes = guarded_together(model, pool, live, &[*one])?;
                Ok(outcomes.into_iter().next().unwrap_or_default())
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
) -> Result<Vec<StreamOutcome>, GenerateError> {
    let done = guarded("batch", || {
        let _guards = (tch::no_grad_guard(), PlainCalls::begin());
        together(model, pool, live, chosen)
    });
    Ok(done.map_err(GenerateError::Panicked)??)
}

fn together(
    model: &Model,
    pool: &mut KvPool,
    live: &[Stream],
    chosen: &[(usize, usize)],
) -> Result<Vec<StreamOutcome>> {
    let rows: Vec<_> = chosen.iter().map(|&(i, n)| live[i].rows(n)).collect();
    let hidden_md = model.forward_batch(&rows, pool)?;
    let mut outcomes = Vec::with_capacity(chosen.len());
    let mut drawn = Vec::new();
    let mut end = 0;
    for (at, (&(i, n), rows)) in chosen.iter().zip(&rows).enumerate() {
        let stream = &live[i];
        let start = end;
        end += kept(rows.keep, n);
        if stream.n_pending() == n {
            drawn.push((at, i, end - 1));
        }
        let own_nd = hidden_md.f_narrow(0, start, end - start)?;
        outcomes.push(StreamOutcome {
            scores: score(model, stream, n, &own_nd)?,
            token: None,
        });
    }
    draw(model, live, &drawn, &hidden_md, &mut outcomes)?;
    Ok(outcomes)
}

fn kept(keep: Keep, n: usize) -> i64 {
    match keep {
        Keep::Last => 1,
        Keep::All => i64::try_from(n).unwrap_or(i64::MAX),
    }
}

/// A token for each of some streams: its outcome, its place among the live ones, and its row of the hidden states.
fn draw(
    model: &Model,
    live: &[Stream],
    drawn: &[(usize, usize, i64)],
    hidden_md: &Tensor,
    outcomes: &mut [StreamOutcome],
) -> Result<()> {
    if drawn.is_empty() {
        return Ok(());
    }
    let rows: Vec<i64> = drawn.iter().map(|&(_, _, row)| row).collect();
    let rows = Tensor::f_from_slice(&rows)?.f_to_device(model.placement.last())?;
    let streams = || drawn.iter().map(|&(_, i, _)| &live[i]);
    let adapters = segments(streams().map(|stream| (1, stream.lora())));
    let logits_nv = model.logits_of_rows(&hidden_md.f_index_select(0, &rows)?, &adapters)?;
    let samplers: Vec<&SequenceSampler> = streams().map(|stream| stream.reply.sampler()).collect();
    let tokens = sampler::sample(&logits_nv, &samplers)?;
    for (&(at, _, _), token) in drawn.iter().zip(tokens) {
        outcomes[at].token = Some(token);
    }
    Ok(())
}
