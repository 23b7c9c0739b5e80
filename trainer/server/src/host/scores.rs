//! How likely a text is under weights that are served.

use std::sync::{Arc, Mutex, PoisonError};

use metaclaw_engine::{
    adapter,
    engine::{EngineError, EngineState},
    run::ParamsVersion,
    train::{TrainJob, Wanted},
};
use metaclaw_trainer_api::{AdapterName, Datum, LossConfig, LossFn};

use super::{Host, convert, failure::RunError, job::PassJob, last_scored::Scored};
use crate::error::ApiError;

/// Of the tokens that were asked for, one entry each.
#[derive(Debug, Default)]
pub(crate) struct Scores {
    pub(crate) logprobs: Vec<f32>,
    /// The likeliest ids, the likeliest first.
    pub(crate) top: Vec<Vec<(u32, f32)>>,
}

// === impl Host ===

impl Host {
    /// Log-probabilities of `tokens[from + 1..]`, each after all before it, and the likeliest ids there; at temperature
    /// 1 over the full vocabulary.
    ///
    /// # Errors
    /// 404 for an unknown adapter, 400 for tokens that cannot be.
    ///
    /// # Cancel safety
    /// Dropping the future ends the pass.
    pub(crate) async fn score(
        &self,
        adapter: Option<AdapterName>,
        tokens: Vec<u32>,
        from: usize,
        top_k: u32,
    ) -> Result<Scores, ApiError> {
        let n = tokens.len().saturating_sub(1);
        if from >= n {
            return Ok(Scores::default());
        }
        let (input, targets) = (tokens[..n].to_vec(), tokens[1..].to_vec());
        let datum = Datum::cross_entropy(input, targets, vec![1.0; n]);
        let datum = datum.map_err(|error| ApiError::field("prompt", error.to_string()))?;
        let lora = match adapter {
            Some(name) => Some(self.adapter_to_score(name).await?),
            None => None,
        };
        let wanted = Wanted {
            positions: Some(vec![(from..n).collect()]),
            top_k: top_k as usize,
        };
        let begin = move |state: &mut EngineState| {
            let (model, sizes) = (&state.model, state.sizes);
            let job = TrainJob::forward(model, lora.as_ref(), &[datum], &wanted, sizes)?;
            Ok((job, ParamsVersion::default()))
        };
        let finish = |_: &mut EngineState, _, out: metaclaw_engine::train::TrainOut| {
            Ok((out.logprobs, out.top))
        };
        let (job, answer) = PassJob::new(Box::new(begin), Box::new(finish));
        self.engine.submit(Box::new(job))?;
        let (logprobs, top) = answer
            .await
            .map_err(|_| RunError::from(EngineError::Failed))??;
        let reply = convert::forward_reply(logprobs, &top, top_k as usize);
        let rows = reply.topk_ids.into_iter().flatten();
        let rows = rows.zip(reply.topk_logprobs.into_iter().flatten());
        Ok(Scores {
            logprobs: reply.logprobs.into_iter().flatten().collect(),
            top: rows
                .map(|(ids, all)| ids.into_iter().zip(all).collect())
                .collect(),
        })
    }

    /// Handles on an adapter's numbers, for the engine's thread; read from disk unless it was the last one.
    async fn adapter_to_score(
        &self,
        name: AdapterName,
    ) -> Result<metaclaw_engine::lora::Lora, ApiError> {
        let folder = self.store.folder.clone();
        let base = Arc::clone(self.engine.get()?.base());
        let stamp = adapter::stamp(&adapter::folder_of(&folder, &name));
        let known = self.last_scored.get(&name, &stamp);
        let wanted = name.clone();
        let read = move || -> Result<_, RunError> {
            let adapter = match known {
                Some(adapter) => adapter,
                None => Arc::new(Mutex::new(adapter::load(&folder, &wanted, &base)?)),
            };
            let handles = adapter
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .handles()?;
            Ok((adapter, handles))
        };
        let done = tokio::task::spawn_blocking(read).await;
        let done = done.map_err(|error| ApiError::internal(format!("reading failed: {error}")))?;
        let (adapter, handles) = done?;
        self.last_scored.set(Scored {
            name,
            stamp,
            adapter,
        });
        Ok(handles)
    }

    /// A loss of log-probabilities that were computed without gradients; the same sum as forward_backward's.
    ///
    /// # Errors
    /// 400 for a setting that the loss does not have, or a datum that lacks what it reads.
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
}
