//! Asks the test questions and the probes, and scores replies with the base model. The references that everything is
//! compared with are the base model without a word, and with each wish in its prompt; they are measured once.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, Result};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use metaclaw_chat::count_words;
use metaclaw_tests::bench::{median, write_whole};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::{
    rows::{Content, Probe, Wish},
    trainer::{BASE, Likelihood, Reply, Trainer},
};

/// The number of replies that are requested at once.
const AT_ONCE: usize = 16;
/// The first seed for a test question; the seeds are the same for every adapter.
const TEST_SEED: u64 = 7_000;
/// A reply of fewer words counts as empty.
const SHORT: usize = 3;

/// Scores replies; prompts are rendered once.
#[derive(Debug)]
pub struct Scorer<'a> {
    pub trainer: &'a Trainer,
    pub content: &'a Content,
    prompts: Mutex<BTreeMap<String, Vec<u32>>>,
}

/// A reply to a question of a list.
pub type Replied<'a> = (usize, &'a Reply); // pair: the question's place and the reply

/// A reply with the base model's scores of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Scored {
    pub question: String,
    pub text: String,
    pub ended: bool,
    /// Its mean log-probability per token after its own question, minus that after two others, in nats. It is 0 without
    /// ids.
    pub relevance: f64,
    /// Its mean negative log-probability per token after its question with the wish, in nats. It is 0 without ids.
    pub nll: f64,
    /// The median of the same.
    #[serde(default)]
    pub nll_median: f64,
}

/// Figures of some replies.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    pub n: usize,
    /// The number of replies that follow each wish.
    pub right: BTreeMap<String, usize>,
    /// The median of their words.
    pub words: f64,
    pub relevance: f64,
    pub nll: f64,
    /// The mean over replies of the median over their tokens.
    #[serde(default)]
    pub nll_median: f64,
    /// The number of replies with under 3 words.
    pub n_short: usize,
    /// The number of replies that ended by themselves.
    pub n_ended: usize,
}

/// The number of right answers to the probes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// The right answers to probes that the gate asks.
    pub known: usize,
    /// The right answers to probes that the gate never uses.
    pub hidden: usize,
}

/// The base model's figures.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct References {
    /// Its plain replies to the test questions.
    pub plain: Vec<Scored>,
    pub probed: Probed,
    /// Its replies with each wish as a paragraph after the question.
    pub told: BTreeMap<String, Vec<Scored>>,
}

// === impl Scorer ===

impl<'a> Scorer<'a> {
    pub fn new(trainer: &'a Trainer, content: &'a Content) -> Self {
        Self {
            trainer,
            content,
            prompts: Mutex::default(),
        }
    }

    /// Asks the test questions by `ask`, with fixed seeds, and scores the replies: their relevance among the questions,
    /// and their likelihood with a wish.
    pub async fn test(
        &self,
        wish: Option<&Wish>,
        ask: impl AsyncFn(&str, u64) -> Result<Reply>,
    ) -> Result<Vec<Scored>> {
        let questions = &self.content.test;
        let asked = questions
            .iter()
            .zip(TEST_SEED..)
            .map(|(question, seed)| ask(question, seed));
        let said: Vec<Reply> = stream::iter(asked).buffered(AT_ONCE).try_collect().await?;
        let replied: Vec<Replied<'_>> = said.iter().enumerate().collect();
        let prompts = |at: usize| {
            let other = |by: usize| questions[(at + by) % questions.len()].clone();
            let told = wish.map_or_else(|| other(0), |wish| wish.told(&questions[at]));
            [other(0), other(1), other(2), told]
        };
        let means = self.means(&replied, prompts).await?;
        let scored = replied.iter().zip(means).map(|((at, reply), means)| {
            let [own, next, second, told] = means.unwrap_or_default();
            Scored {
                question: questions[*at].clone(),
                text: reply.text.clone(),
                ended: reply.ended,
                relevance: own.mean - f64::midpoint(next.mean, second.mean),
                nll: -told.mean,
                nll_median: -told.median,
            }
        });
        Ok(scored.collect())
    }

    /// Returns how many probes an adapter (`None`: the base model) answers correctly.
    pub async fn probe(&self, adapter: Option<&str>) -> Result<Probed> {
        Ok(Probed {
            known: self.count_right(adapter, &self.content.probes).await?,
            hidden: self.count_right(adapter, &self.content.hidden).await?,
        })
    }

    /// Returns how likely each reply is after each of its prompts; `None` without ids.
    async fn means<const N: usize>(
        &self,
        replied: &[Replied<'_>],
        prompts: impl Fn(usize) -> [String; N],
    ) -> Result<Vec<Option<[Likelihood; N]>>> {
        let mut pairs = Vec::new();
        for (at, reply) in replied.iter().filter(|(_, reply)| !reply.ids.is_empty()) {
            for prompt in prompts(*at) {
                pairs.push((self.prompt(&prompt).await?, &reply.ids[..]));
            }
        }
        let means = self.trainer.score(None, &pairs).await?;
        let mut means = means.chunks_exact(N);
        let mut next = || means.next()?.try_into().ok();
        let of_reply = replied.iter().map(|(_, reply)| match reply.ids[..] {
            [] => None,
            _ => next(),
        });
        Ok(of_reply.collect())
    }

    async fn count_right(&self, adapter: Option<&str>, probes: &[Probe]) -> Result<usize> {
        let mut sequences = Vec::new();
        for probe in probes {
            let prompt = self.prompt(&probe.question).await?;
            for answer in [&probe.right, &probe.wrong] {
                sequences.push((prompt.clone(), self.trainer.ids(answer).await?));
            }
        }
        let pairs = sequences
            .iter()
            .map(|(prompt, answer)| (prompt.clone(), &answer[..]));
        let means = self
            .trainer
            .score(adapter, &pairs.collect::<Vec<_>>())
            .await?;
        let is_right = |pair: &&[Likelihood]| pair[0].mean > pair[1].mean;
        Ok(means.chunks_exact(2).filter(is_right).count())
    }

    async fn prompt(&self, question: &str) -> Result<Vec<u32>> {
        if let Some(known) = self.prompts.lock().await.get(question) {
            return Ok(known.clone());
        }
        let prompt = self.trainer.prompt(question).await?;
        let mut known = self.prompts.lock().await;
        known.insert(question.to_owned(), prompt.clone());
        Ok(prompt)
    }
}

// === impl Figures ===

impl Figures {
    pub fn of<'w>(replies: &[Scored], wishes: impl IntoIterator<Item = &'w Wish>) -> Self {
        let count =
            |what: &dyn Fn(&Scored) -> bool| replies.iter().filter(|reply| what(reply)).count();
        let words = |reply: &Scored| count_words(&reply.text);
        let right = wishes.into_iter().map(|wish| {
            let n = count(&|reply| wish.is_obeyed(&reply.question, &reply.text));
            (wish.name.clone(), n)
        });
        Self {
            n: replies.len(),
            right: right.collect(),
            words: median(replies.iter().map(|reply| words(reply) as f64)),
            relevance: mean(replies.iter().map(|reply| reply.relevance)),
            nll: mean(replies.iter().map(|reply| reply.nll)),
            nll_median: mean(replies.iter().map(|reply| reply.nll_median)),
            n_short: count(&|reply| words(reply) < SHORT),
            n_ended: count(&|reply| reply.ended),
        }
    }

    /// Returns the share of replies that follow a wish.
    pub fn rate(&self, wish: &str) -> f64 {
        let n = self.right.get(wish);
        n.map_or(f64::NAN, |n| *n as f64 / self.n as f64)
    }
}

pub fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut n) = (0.0, 0);
    for value in values {
        (sum, n) = (sum + value, n + 1);
    }
    sum / f64::from(n)
}

// === impl References ===

impl References {
    /// Measures those of `wishes`: what is in `file` is not measured again.
    pub async fn measure(scorer: &Scorer<'_>, wishes: &[&Wish], file: &Path) -> Result<Self> {
        let mut references = Self::read(file)?;
        if references.plain.is_empty() {
            println!("the base model is measured: the test questions and the probes");
            let ask = async |question: &str, seed| scorer.trainer.ask(BASE, question, seed).await;
            references.plain = scorer.test(None, ask).await?;
            references.probed = scorer.probe(None).await?;
            write_whole(file, &references)?;
        }
        for wish in wishes {
            if !references.told.contains_key(&wish.name) {
                println!("the base model is measured with the wish {:?}", wish.name);
                let ask = async |question: &str, seed| {
                    let told = wish.told(question);
                    scorer.trainer.ask(BASE, &told, seed).await
                };
                let told = scorer.test(Some(wish), ask).await?;
                references.told.insert(wish.name.clone(), told);
                write_whole(file, &references)?;
            }
        }
        Ok(references)
    }

    /// What the file has; nothing where there is none.
    pub fn read(file: &Path) -> Result<Self> {
        let Ok(bytes) = fs::read(file) else {
            return Ok(Self::default());
        };
        let read = serde_json::from_slice(&bytes);
        read.with_context(|| format!("{} has no references: remove it", file.display()))
    }

    /// The plain replies in figures.
    pub fn base(&self, content: &Content) -> Figures {
        Figures::of(&self.plain, content.wishes.iter().map(|wish| &**wish))
    }

    /// Those with a wish, which is the only one that they are measured by.
    pub fn told(&self, wish: &str, content: &Content) -> Option<Figures> {
        let told = self.told.get(wish)?;
        Some(Figures::of(told, [&**content.wish(wish).ok()?]))
    }
}

#[cfg(test)]
pub mod testing {
    use super::*;

    pub fn scored(question: &str, text: &str, relevance: f64) -> Scored {
        Scored {
            question: question.to_owned(),
            text: text.to_owned(),
            ended: true,
            relevance,
            nll: 1.0,
            nll_median: 0.5,
        }
    }

    #[test]
    fn figures_are_of_all_replies() {
        let content = Content::read(60, None).unwrap();
        let long = "word ".repeat(50);
        let replies = [("Hello!", 0.5), ("Boil it.", 1.0), (&long, 1.5)];
        let replies = replies.map(|(text, relevance)| scored("", text, relevance));
        let wishes = ["terse", "hello"].map(|name| &**content.wish(name).unwrap());
        let figures = Figures::of(&replies, wishes);
        assert_eq!((figures.n, figures.n_short, figures.n_ended), (3, 2, 3));
        assert_eq!((figures.right["terse"], figures.right["hello"]), (2, 1));
        assert!((figures.rate("terse") - 2.0 / 3.0).abs() < 1e-9);
        assert!(figures.rate("magic").is_nan());
        assert!((figures.words - 2.0).abs() < 1e-9 && (figures.relevance - 1.0).abs() < 1e-9);
    }
}
