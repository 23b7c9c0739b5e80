//! Scores replies with the base model, and asks an adapter the probes.

use std::collections::BTreeMap;

use anyhow::Result;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::sync::Mutex;

use crate::{
    content::{Content, Probe, Wish},
    measure::{Probed, Scored, test_seed},
    trainer::{Pair, Reply, Trainer},
};

/// The number of replies that are requested at once.
const AT_ONCE: usize = 16;
/// The base model's name at the training server.
pub const BASE: &str = "base";

/// Scores replies; prompts are rendered once.
#[derive(Debug)]
pub struct Scorer<'a> {
    pub trainer: &'a Trainer,
    pub content: &'a Content,
    prompts: Mutex<BTreeMap<String, Vec<u32>>>,
}

/// A reply to a question of a list.
pub type Said<'a> = (usize, &'a Reply);

// === impl Scorer ===

impl<'a> Scorer<'a> {
    pub fn new(trainer: &'a Trainer, content: &'a Content) -> Self {
        Self {
            trainer,
            content,
            prompts: Mutex::default(),
        }
    }

    /// Returns the replies of `model` to the test questions, each in the form `told`, with fixed seeds.
    pub async fn replies(&self, model: &str, told: impl Fn(&str) -> String) -> Result<Vec<Reply>> {
        let asked = self.content.test.iter().enumerate().map(|(i, question)| {
            let told = told(question);
            async move { self.trainer.ask(model, &told, test_seed(i)).await }
        });
        stream::iter(asked).buffered(AT_ONCE).try_collect().await
    }

    /// Computes the relevance among the questions of a list, and the likelihood with a wish. A reply without ids has no
    /// relevance.
    pub async fn score(
        &self,
        questions: &[String],
        replies: &[Said<'_>],
        wish: Option<&Wish>,
    ) -> Result<Vec<Scored>> {
        let (mut prompts, mut with_ids) = (Vec::new(), Vec::new());
        for (at, (index, reply)) in replies.iter().enumerate() {
            if reply.ids.is_empty() {
                continue;
            }
            let other = |by: usize| &questions[(index + by) % questions.len()];
            let told = wish.map_or_else(|| other(0).clone(), |wish| wish.told(other(0)));
            prompts.push([
                self.prompt(other(0)).await?,
                self.prompt(other(1)).await?,
                self.prompt(other(2)).await?,
                self.prompt(&told).await?,
            ]);
            with_ids.push(at);
        }
        let pairs = with_ids.iter().zip(&prompts).flat_map(|(at, prompts)| {
            let ids: &[u32] = &replies[*at].1.ids;
            prompts.iter().map(move |prompt| (&prompt[..], ids))
        });
        let pairs: Vec<Pair<'_>> = pairs.collect();
        let means = self.trainer.score(&pairs).await?;
        let mut scored: Vec<Scored> = replies
            .iter()
            .map(|(index, reply)| Scored {
                question: questions[*index].clone(),
                text: reply.text.clone(),
                ended: reply.ended,
                relevance: 0.0,
                nll: 0.0,
            })
            .collect();
        for (at, means) in with_ids.into_iter().zip(means.chunks_exact(4)) {
            scored[at].relevance = means[0] - f64::midpoint(means[1], means[2]);
            scored[at].nll = -means[3];
        }
        Ok(scored)
    }

    /// Returns the mean negative log-probability per token of each reply after its question with the wish, in nats. A
    /// reply without ids has none.
    pub async fn nll(
        &self,
        questions: &[String],
        replies: &[Said<'_>],
        wish: &Wish,
    ) -> Result<Vec<f64>> {
        let mut prompts = Vec::new();
        let said = replies.iter().filter(|(_, reply)| !reply.ids.is_empty());
        for (index, reply) in said {
            let told = self.prompt(&wish.told(&questions[*index])).await?;
            prompts.push((told, reply.ids.as_slice()));
        }
        let pairs = prompts.iter().map(|(told, ids)| (told.as_slice(), *ids));
        let means = self.trainer.score(&pairs.collect::<Vec<_>>()).await?;
        Ok(means.into_iter().map(|mean| -mean).collect())
    }

    /// Asks and scores the test questions.
    pub async fn test(
        &self,
        model: &str,
        wish: Option<&Wish>,
        told: impl Fn(&str) -> String,
    ) -> Result<Vec<Scored>> {
        let replies = self.replies(model, told).await?;
        let said: Vec<Said<'_>> = replies.iter().enumerate().collect();
        self.score(&self.content.test, &said, wish).await
    }

    /// Returns how many probes an adapter (`None`: the base model) answers correctly.
    pub async fn probe(&self, adapter: Option<&str>) -> Result<Probed> {
        Ok(Probed {
            known: self.right(adapter, &self.content.probes).await?,
            hidden: self.right(adapter, &self.content.hidden).await?,
        })
    }

    async fn right(&self, adapter: Option<&str>, probes: &[Probe]) -> Result<usize> {
        let mut sequences = Vec::new();
        for probe in probes {
            let prompt = self.prompt(&probe.question).await?;
            for answer in [&probe.right, &probe.wrong] {
                sequences.push((prompt.clone(), self.trainer.ids(answer).await?));
            }
        }
        let pairs: Vec<Pair<'_>> = sequences
            .iter()
            .map(|(prompt, answer)| (&prompt[..], &answer[..]))
            .collect();
        let means = match adapter {
            Some(adapter) => self.trainer.score_by(adapter, &pairs).await?,
            None => self.trainer.score(&pairs).await?,
        };
        let is_right = |pair: &&[f64]| pair[0] > pair[1];
        Ok(means.chunks_exact(2).filter(is_right).count())
    }

    async fn prompt(&self, question: &str) -> Result<Vec<u32>> {
        if let Some(known) = self.prompts.lock().await.get(question) {
            return Ok(known.clone());
        }
        let prompt = self.trainer.prompt(question).await?;
        self.prompts
            .lock()
            .await
            .insert(question.to_owned(), prompt.clone());
        Ok(prompt)
    }
}
