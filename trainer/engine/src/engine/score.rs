//! How likely the tokens of a prompt were, from hidden states that a round has computed anyway.

use tch::Tensor;

use super::stream::Stream;
use crate::generate::{PromptScoring, Scores};
use crate::head::{LogProbs, TopTokens};
use crate::lora::Segment;
use crate::model::Model;
use crate::pack::to_i64;
use crate::torch::Result;

/// Positions that go through the LM head in one call. The logits of a whole prompt would be the largest tensor of a
/// round by far.
const ROWS: usize = 32;

/// What the next `n` positions of a stream say of its prompt; `None` where nothing is asked of them.
///
/// # Shapes
/// `hidden_nd`: `[n, d]`, before the last norm, f32.
///
/// # Errors
/// What libtorch refuses.
pub(super) fn score(
    model: &Model,
    stream: &Stream,
    n: usize,
    hidden_nd: &Tensor,
) -> Result<Option<Scores>> {
    let scored = stream.scored(n);
    let scoring = stream.reply.scoring().filter(|_| !scored.is_empty());
    let Some(top) = scoring.map(PromptScoring::top) else {
        return Ok(None);
    };
    let mut scores = Scores {
        logprobs: Vec::new(),
        top: TopTokens::default(),
    };
    for start in scored.clone().step_by(ROWS) {
        let at = start..scored.end.min(start + ROWS);
        let targets = stream.following(at.clone()).iter().copied();
        let targets: Vec<i64> = targets.map(i64::from).collect();
        let targets_m1 = Tensor::f_from_slice(&targets)?
            .f_unsqueeze(1)?
            .f_to_device(model.placement.last())?;
        let rows = hidden_nd.f_narrow(0, to_i64(at.start), to_i64(at.len()))?;
        let adapter = Segment::whole(to_i64(at.len()), stream.lora());
        let hidden_md = model.last_norm(&rows)?;
        let (lm_head, cap) = (&model.weights.lm_head, model.config.logit_cap);
        let chunk = LogProbs::new(&hidden_md, lm_head, adapter.as_slice(), cap)?;
        scores.logprobs.extend(chunk.of(&targets_m1)?);
        if top > 0 {
            let more = chunk.top(top)?;
            scores.top.ids.extend(more.ids);
            scores.top.logprobs.extend(more.logprobs);
        }
    }
    Ok(Some(scores))
}
