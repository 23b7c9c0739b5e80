//! What a model says and knows, in numbers, with nothing decided: what a test would find, for whoever wants to look.

use futures_util::future::try_join_all;
use metaclaw_trainer_api::BackendError;
use serde::{Deserialize, Serialize};

use super::{
    probes::{self, CapabilityPrompt, CapabilityScore, ProbeSet, Probes},
    replies::{self, Prompts, ReplyFigures, ScoredReply},
};
use crate::policy::{By, DrawRequest, DrawnReply, PolicyModel};

/// What replies to a set of questions are like.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ReplyNumbers {
    pub n: usize,
    /// Words at the median.
    pub words: f64,
    /// How much more the base model expects them after their own questions than after others, in nat a token.
    pub relevance: f64,
    /// How little it expects them after their own questions, with the wishes or without, whichever is less, in nat a token.
    pub surprise: f64,
    /// The share of them that have under 3 words.
    pub short: f64,
    /// Their distinct 4-grams of ids, as a share of all.
    pub distinct: f64,
}

/// What a model knows, and what agents can do with what it writes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct KnowledgeNumbers {
    /// How many right answers are likelier than the wrong ones; none where that cannot be asked.
    pub n_right: Option<usize>,
    pub n_probes: usize,
    /// By how much on average, in nat a token.
    pub margin: Option<f64>,
    /// Requests of agents that it answers so that they can work with it.
    pub n_tools: usize,
    pub n_tool_prompts: usize,
}

#[derive(Debug, Clone)]
pub(crate) struct EvalReplies {
    pub(crate) numbers: ReplyNumbers,
    pub(crate) replies: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Posed {
    pub(crate) plain: Vec<u32>,
    pub(crate) told: Option<Vec<u32>>,
    pub(crate) others: Vec<Vec<u32>>,
    pub(crate) seed: u64,
    pub(crate) max_tokens: u32,
}

pub(crate) struct Evaluator<'a> {
    policy: &'a PolicyModel,
    asked: ProbeSet,
    prompts: Prompts,
    capability: Vec<CapabilityPrompt>,
}

// === impl Evaluator ===

impl<'a> Evaluator<'a> {
    /// Of one of the sets of everyday questions.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn new(
        policy: &'a PolicyModel,
        probes: &'static Probes,
        set: usize,
        wishes: &[String],
    ) -> Result<Self, BackendError> {
        let asked = ProbeSet {
            probes,
            set: set % probes.n_sets().max(1),
        };
        Ok(Self {
            policy,
            asked,
            prompts: replies::render(policy, asked.texts(), wishes).await?,
            capability: probes::render(policy, probes).await?,
        })
    }

    pub(crate) fn questions(&self) -> &[String] {
        self.asked.texts()
    }

    pub(crate) async fn replies(&self, adapter: Option<&str>) -> Result<EvalReplies, BackendError> {
        self.heard(adapter, &self.prompts.plain).await
    }

    pub(crate) async fn reference(&self) -> Result<EvalReplies, BackendError> {
        self.heard(None, self.prompts.asked()).await
    }

    async fn heard(
        &self,
        adapter: Option<&str>,
        prompts: &[Vec<u32>],
    ) -> Result<EvalReplies, BackendError> {
        let drawn = replies::draw(self.policy, adapter, prompts).await?;
        let replies = replies::measure(self.policy, &self.prompts.with(&drawn)).await?;
        Ok(EvalReplies::new(replies, drawn))
    }

    /// What it knows: `by` answers the probes of knowledge, if it can be asked; `adapter` the requests of agents.
    pub(crate) async fn knowledge(
        &self,
        adapter: Option<&str>,
        by: Option<By<'_>>,
    ) -> Result<KnowledgeNumbers, BackendError> {
        let known: Option<CapabilityScore> = match by {
            Some(by) => Some(probes::capability(self.policy, by, &self.capability).await?),
            None => None,
        };
        let prompts = &self.asked.probes.tools;
        let answered = probes::each(self.policy, adapter, prompts).await?;
        Ok(KnowledgeNumbers {
            n_right: known.map(|known| known.n_right),
            n_probes: self.capability.len(),
            margin: known.map(|known| known.margin),
            n_tools: answered.into_iter().filter(|answer| answer.passed).count(),
            n_tool_prompts: prompts.len(),
        })
    }
}

// === impl EvalReplies ===

impl EvalReplies {
    pub(crate) async fn to(
        policy: &PolicyModel,
        adapter: Option<&str>,
        posed: &[Posed],
        is_told: bool,
    ) -> Result<Self, BackendError> {
        let draws = posed
            .iter()
            .map(|question| question.draw(policy, adapter, is_told));
        let drawn = try_join_all(draws).await?;
        let both = posed.iter().zip(&drawn);
        let scored = both.map(|(posed, reply)| ScoredReply {
            reply,
            own: &posed.plain,
            others: posed.others.iter().map(Vec::as_slice).collect(),
            told: posed.told.as_deref(),
        });
        let replies = replies::measure(policy, &scored.collect::<Vec<_>>()).await?;
        Ok(Self::new(replies, drawn))
    }

    fn new(replies: ReplyFigures, drawn: Vec<DrawnReply>) -> Self {
        Self {
            numbers: ReplyNumbers {
                n: drawn.len(),
                words: replies.words,
                relevance: replies.relevance,
                surprise: replies.surprise,
                short: replies.short,
                distinct: replies.distinct,
            },
            replies: drawn.into_iter().map(|reply| reply.text).collect(),
        }
    }
}

// === impl Posed ===

impl Posed {
    async fn draw(
        &self,
        policy: &PolicyModel,
        adapter: Option<&str>,
        is_told: bool,
    ) -> Result<DrawnReply, BackendError> {
        let told = self.told.as_ref().filter(|_| is_told);
        let request = DrawRequest {
            seed: self.seed,
            ..DrawRequest::new(adapter, told.unwrap_or(&self.plain), self.max_tokens)
        };
        policy.draw_one(request).await
    }
}
