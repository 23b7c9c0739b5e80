//! Log-probabilities of given ids: by the base model and by a run's weights.
//!
//! Tinker's `forward` is of a run and gives the log-probabilities of targets. What the base model thinks, and which ids are
//! likeliest at a position, samplers answer: they give log-probabilities of a prompt's own tokens, of the likeliest ones,
//! and (where the server can) of ids that are named.

use futures_util::future::try_join_all;

use super::{
    bodies,
    models::ServerSampler,
    samplers::{Samplers, WeightsSource},
};
use crate::backend::Result;
use crate::{
    BackendError, Datum, Tensor2,
    tinker::{
        MAX_ELEMENTS, SampleOutput,
        json::TensorData,
        proto::SampleResponse,
        tensor::{Room, WireTensor as _},
    },
    wire::ForwardReply,
};

const AT_ONCE: usize = 8;

#[derive(Debug, Clone, Copy)]
pub(super) struct Look<'a> {
    pub(super) datum: &'a Datum,
    /// Counted from 0; none is all of them.
    pub(super) positions: Option<&'a [usize]>,
    pub(super) top_k: u32,
}

#[derive(Debug, Default)]
struct Found {
    logprobs: Vec<f32>,
    ids: Vec<Vec<u32>>,
    likely: Vec<Vec<f32>>,
}

// === impl Look ===

impl Look<'_> {
    fn positions(&self) -> Vec<usize> {
        match self.positions {
            Some(positions) => positions.to_vec(),
            None => (0..self.datum.n_tokens()).collect(),
        }
    }

    /// The sequence as one prompt: what the model reads, and the last target.
    fn prompt(&self) -> Vec<u32> {
        let parts = self.datum.parts();
        let mut prompt = parts.model_input_tokens.clone();
        let targets = &parts.target_tokens;
        let last = targets.rows().saturating_sub(1) * targets.width();
        prompt.extend(targets.values().get(last));
        prompt
    }

    fn is_shifted(&self, prompt: &[u32]) -> bool {
        let targets = &self.datum.parts().target_tokens;
        let is_next = |at: &usize| targets.values().get(*at) == prompt.get(at + 1);
        targets.width() == 1 && self.positions().iter().all(is_next)
    }

    /// The ids that are asked about, `[N, K]`; -1 where nothing is.
    fn named(&self) -> Tensor2<i64> {
        let targets = &self.datum.parts().target_tokens;
        let (n, width) = (targets.rows(), targets.width());
        let mut cells = vec![-1_i64; n * width];
        for at in self.positions() {
            let row = at * width..(at + 1) * width;
            let ids = targets.values().get(row.clone());
            if let (Some(cells), Some(ids)) = (cells.get_mut(row), ids) {
                for (cell, id) in cells.iter_mut().zip(ids) {
                    *cell = i64::from(*id);
                }
            }
        }
        Tensor2::shaped(cells, &[n, width]).unwrap_or_else(|_| Tensor2::vector(Vec::new()))
    }
}

// === impl Samplers ===

impl Samplers {
    /// Scores datums by the base model.
    ///
    /// # Errors
    /// The server's; [`BackendError::NotSupported`] for what it does not answer.
    pub(super) async fn look_by_base(&self, looks: &[Look<'_>]) -> Result<ForwardReply> {
        let sampler = self.get(&WeightsSource::Base).await?;
        match self.look_all(&sampler, looks).await {
            Err(error) if error.status().is_some_and(super::session::is_gone) => {
                self.drop(&WeightsSource::Base).await;
                let sampler = self.get(&WeightsSource::Base).await?;
                self.look_all(&sampler, looks).await
            }
            found => found,
        }
    }

    /// Scores datums by a sampler's weights.
    ///
    /// # Errors
    /// As [`Samplers::look_by_base`].
    pub(super) async fn look_all(
        &self,
        sampler: &ServerSampler,
        looks: &[Look<'_>],
    ) -> Result<ForwardReply> {
        let mut reply = ForwardReply::default();
        for some in looks.chunks(AT_ONCE) {
            let some = some.iter().map(|look| self.score(sampler, *look));
            for found in try_join_all(some).await? {
                reply.logprobs.push(found.logprobs);
                reply.topk_ids.push(found.ids);
                reply.topk_logprobs.push(found.likely);
            }
        }
        if looks.iter().all(|look| look.top_k == 0) {
            reply.topk_ids.clear();
            reply.topk_logprobs.clear();
        }
        Ok(reply)
    }

    async fn score(&self, sampler: &ServerSampler, look: Look<'_>) -> Result<Found> {
        let prompt = look.prompt();
        let is_shifted = look.is_shifted(&prompt);
        let mut sample = bodies::score(prompt);
        sample.topk_prompt_logprobs = look.top_k;
        if !is_shifted {
            let named = look.named();
            sample.target_prompt_logprobs = Some(TensorData::of(named.values(), &named.shape()));
        }
        let (output, message) = self.ask_for(sampler, &sample).await?;
        let positions = look.positions();
        let logprobs = if is_shifted {
            self.of_prompt(&output, &positions)?
        } else {
            let width = look.datum.parts().target_tokens.width();
            self.of_named(message, &positions, width)?
        };
        let (ids, likely) = match look.top_k {
            0 => Default::default(),
            k => self.likeliest(&output, &positions, k as usize)?,
        };
        Ok(Found {
            logprobs,
            ids,
            likely,
        })
    }

    fn lacks(&self, what: &str) -> BackendError {
        self.whose("asample").not_supported(what)
    }

    /// A token at position p of the sequence is the prompt's at p + 1.
    fn of_prompt(&self, output: &SampleOutput, positions: &[usize]) -> Result<Vec<f32>> {
        let all = output.prompt_logprobs.as_ref();
        let all = all.ok_or_else(|| self.lacks("log-probabilities of a prompt"))?;
        let known = |at: &usize| all.get(at + 1).copied().flatten();
        let found: Option<Vec<f32>> = positions.iter().map(known).collect();
        let why = "it has no log-probability of a token that was asked about";
        found.ok_or_else(|| self.whose("asample").unreadable(why))
    }

    fn of_named(
        &self,
        message: Option<SampleResponse>,
        positions: &[usize],
        width: usize,
    ) -> Result<Vec<f32>> {
        let answered = message.and_then(|message| message.target_prompt_logprobs);
        let what =
            "log-probabilities of ids that are not the prompt's own (target_prompt_logprobs)";
        let answered = answered.ok_or_else(|| self.lacks(what))?;
        let all = answered.read::<f32>(&mut Room(MAX_ELEMENTS));
        let all = all.map_err(|why| self.whose("asample").unreadable(why))?;
        let row = |at: &usize| all.values().get(at * width..(at + 1) * width);
        let rows: Option<Vec<&[f32]>> = positions.iter().map(row).collect();
        let rows = rows.ok_or_else(|| {
            let shape = all.shape();
            let why = format!("target_prompt_logprobs has shape {shape:?}");
            self.whose("asample").unreadable(why)
        })?;
        Ok(rows.concat())
    }

    #[expect(
        clippy::type_complexity,
        reason = "two tables that the reply has side by side"
    )]
    fn likeliest(
        &self,
        output: &SampleOutput,
        positions: &[usize],
        k: usize,
    ) -> Result<(Vec<Vec<u32>>, Vec<Vec<f32>>)> {
        let all = output.topk_prompt_logprobs.as_ref();
        let all = all.ok_or_else(|| self.lacks("the likeliest ids of a prompt's positions"))?;
        let row = |at: &usize| all.get(at + 1)?.as_ref().filter(|row| row.len() >= k);
        let rows: Option<Vec<_>> = positions.iter().map(row).collect();
        let rows = rows.ok_or_else(|| {
            let why = format!("it has fewer than the {k} likeliest ids of a position");
            self.whose("asample").unreadable(why)
        })?;
        let split = rows
            .into_iter()
            .map(|row| row.iter().take(k).copied().unzip());
        Ok(split.unzip())
    }
}
