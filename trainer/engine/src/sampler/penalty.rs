//! Logits as the reply so far bends them: penalties, and no end before `min_tokens`.

use tch::{Kind, Tensor};

use super::counts::differs;
use super::sequence::SequenceSampler;
use crate::torch::Result;
use metaclaw_trainer_terms::SamplingParams;

/// A copy of the logits with what each sequence asks for; `None` when none asks for anything.
///
/// # Shapes
/// `logits_nv`: `[n, v]`, f32; returns the same.
pub(super) fn adjust(logits_nv: &Tensor, samplers: &[&SequenceSampler]) -> Result<Option<Tensor>> {
    let is_bent = |s: &&SequenceSampler| must_go_on(s) || !s.counts.seen.is_empty();
    if !samplers.iter().any(is_bent) {
        return Ok(None);
    }
    let mut copy_nv = logits_nv.f_empty_like()?;
    copy_nv.f_copy_(logits_nv)?;
    for (i, sampler) in (0..).zip(samplers) {
        let mut row_v = copy_nv.f_get(i)?;
        if !sampler.counts.seen.is_empty() {
            penalise(&mut row_v, sampler)?;
        }
        if must_go_on(sampler) {
            let ends = Tensor::f_from_slice(&sampler.end_ids)?.f_to_device(row_v.device())?;
            let _filled = row_v.f_index_fill_(0, &ends, f64::NEG_INFINITY)?;
        }
    }
    Ok(Some(copy_nv))
}

fn must_go_on(sampler: &SequenceSampler) -> bool {
    sampler.n_generated < sampler.params.min_tokens && !sampler.end_ids.is_empty()
}

fn penalise(row_v: &mut Tensor, sampler: &SequenceSampler) -> Result<()> {
    let SamplingParams {
        repetition_penalty: repetition,
        presence_penalty: presence,
        frequency_penalty: frequency,
        ..
    } = sampler.params;
    let (mut ids, mut fines) = (Vec::new(), Vec::new());
    for (&id, &n) in &sampler.counts.seen {
        ids.push(i64::from(id));
        let said = if n > 0 { presence } else { 0.0 };
        fines.push(said + frequency * f64::from(n));
    }
    let device = row_v.device();
    let ids = Tensor::f_from_slice(&ids)?.f_to_device(device)?;
    let fines = Tensor::f_from_slice(&fines)?
        .f_to_kind(Kind::Float)?
        .f_to_device(device)?;
    let logits = row_v.f_index_select(0, &ids)?;
    let repeated = if differs(repetition, 1.0) {
        let shrunk = logits.f_div_scalar(repetition)?;
        shrunk.f_where_self(&logits.f_gt(0.0)?, &logits.f_mul_scalar(repetition)?)?
    } else {
        logits
    };
    let _changed = row_v.f_index_copy_(0, &ids, &repeated.f_sub(&fines)?)?;
    Ok(())
}
