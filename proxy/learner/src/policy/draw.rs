//! Replies drawn.

use std::collections::BTreeSet;

use metaclaw_trainer_api::{BackendError, wire::SampleRequest};

use super::server::{MOST_STREAMS, PolicyModel};

/// Ids that stand together, of which the distinct ones are counted.
const GRAM: usize = 4;

#[derive(Debug, Clone, Copy)]
pub(crate) struct DrawRequest<'a> {
    /// An adapter's name; none is the base model.
    pub(crate) adapter: Option<&'a str>,
    pub(crate) prompt: &'a [u32],
    pub(crate) n: u32,
    pub(crate) max_tokens: u32,
    pub(crate) temperature: f64,
    /// The same seed, the same replies.
    pub(crate) seed: u64,
}

/// A reply that was drawn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DrawnReply {
    /// Its ids, the one that ends it among them.
    pub(crate) ids: Vec<u32>,
    pub(crate) text: String,
    /// Whether it ended by itself.
    pub(crate) ended: bool,
}

// === impl DrawnReply ===

impl DrawnReply {
    /// Of who gives no reply.
    pub(crate) fn nothing() -> Self {
        Self {
            ids: Vec::new(),
            text: String::new(),
            ended: true,
        }
    }
}

// === impl PolicyModel ===

impl PolicyModel {
    /// Replies from the model's whole distribution. No more are drawn at once than leave the chats their part.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn draw(
        &self,
        request: DrawRequest<'_>,
    ) -> Result<Vec<DrawnReply>, BackendError> {
        let mut draws = Vec::new();
        let mut first = 0;
        while first < request.n {
            let n = (request.n - first).min(MOST_STREAMS);
            // The semaphore is never closed.
            let _streams = self.streams.acquire_many(n).await.ok();
            draws.extend(self.draw_some(request, first, n).await?);
            first += n;
        }
        Ok(draws)
    }

    /// One reply; who gives none said nothing.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn draw_one(
        &self,
        request: DrawRequest<'_>,
    ) -> Result<DrawnReply, BackendError> {
        let drawn = self.draw(request).await?.into_iter().next();
        Ok(drawn.unwrap_or_else(DrawnReply::nothing))
    }

    /// `n` of them from the `first` on: each has a seed of its own, so that all are what one call would have drawn.
    async fn draw_some(
        &self,
        request: DrawRequest<'_>,
        first: u32,
        n: u32,
    ) -> Result<impl Iterator<Item = DrawnReply>, BackendError> {
        let request = SampleRequest {
            tokens: request.prompt.to_vec(),
            num_samples: n,
            temperature: request.temperature,
            max_tokens: request.max_tokens,
            top_k: 0,
            top_p: 1.0,
            stop: None,
            model: Some(request.adapter.unwrap_or("base").to_owned()),
            seed: Some(request.seed.wrapping_add(u64::from(first))),
        };
        let drawn = self.backend.sample(request).await?.sequences;
        Ok(drawn.into_iter().map(|sequence| DrawnReply {
            ids: sequence.tokens,
            text: sequence.text,
            ended: sequence.stop_reason == "stop",
        }))
    }
}

/// The distinct 4-grams of ids as a share of all of them, over all replies together: who says one thing over and over, in one
/// reply or in each, has few. 1 where there are none.
pub(crate) fn distinct_share(replies: &[&DrawnReply]) -> f64 {
    let mut distinct = BTreeSet::new();
    let mut n = 0;
    for gram in replies.iter().flat_map(|reply| reply.ids.windows(GRAM)) {
        n += 1;
        distinct.insert(gram);
    }
    if n == 0 {
        1.0
    } else {
        distinct.len() as f64 / f64::from(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(replies: &[&[u32]]) -> f64 {
        let draw = |ids: &&[u32]| DrawnReply {
            ids: ids.to_vec(),
            ..DrawnReply::nothing()
        };
        let draws: Vec<DrawnReply> = replies.iter().map(draw).collect();
        distinct_share(&draws.iter().collect::<Vec<_>>())
    }

    #[test]
    fn who_repeats_has_few_distinct_grams() {
        let shares = [
            (share(&[&[1, 2, 3, 4, 5]]), 1.0),
            // Within one reply.
            (share(&[&[1; 8]]), 0.2),
            // The same in each.
            (share(&[&[1, 2, 3, 4], &[1, 2, 3, 4]]), 0.5),
            (share(&[&[1, 2, 3]]), 1.0),
        ];
        for (share, expected) in shares {
            assert!((share - expected).abs() < 1e-9, "{share}, not {expected}");
        }
    }
}
