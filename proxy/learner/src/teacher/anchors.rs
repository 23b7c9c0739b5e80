//! Replies of the base model, told what is wished, to questions of ours: what the weights are anchored to (`rl.anchor`).
//!
//! With the wishes, because an anchor without them would pull out what redo puts in.

use std::{collections::BTreeMap, sync::Arc};

use metaclaw_trainer_api::BackendError;
use serde_json::{Value, json};

use crate::{
    policy::{DrawRequest, PolicyModel, ScoredPair},
    sample::AnchorReply,
};

/// Everyday questions, none of which the gate or the bench asks.
const QUESTIONS: &str = include_str!("anchors.txt");
/// As agents are served.
const TEMPERATURE: f64 = 0.7;
/// As long as what the gate looks at.
const MOST_TOKENS: u32 = 64;
const SEED: u64 = 31;
/// The likeliest ids at each of a reply: what is left of the probability beyond them is little.
const TOP_K: u32 = 20;

/// Replies by their question's number, while the wishes stay as they are.
#[derive(Debug, Default)]
pub(super) struct Anchors {
    drawn: BTreeMap<usize, Arc<AnchorReply>>,
    /// The question that comes next: each step has others.
    next: usize,
}

// === impl Anchors ===

impl Anchors {
    /// The next `n` replies; what was not asked before is drawn.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn next(
        &mut self,
        policy: &PolicyModel,
        wishes: Option<&str>,
        n: usize,
    ) -> Result<Vec<Arc<AnchorReply>>, BackendError> {
        let questions: Vec<&str> = QUESTIONS.lines().collect();
        let numbered = (SEED..).zip(&questions).enumerate();
        let from_next = numbered
            .cycle()
            .skip(self.next)
            .take(n.min(questions.len()));
        let mut replies = Vec::new();
        for (at, (seed, question)) in from_next {
            let reply = match self.drawn.get(&at) {
                Some(reply) => Arc::clone(reply),
                None => Arc::new(reply(policy, question, wishes, seed).await?),
            };
            self.drawn.insert(at, Arc::clone(&reply));
            replies.push(reply);
        }
        self.next = (self.next + n) % questions.len().max(1);
        // Nothing can be predicted where nothing was said.
        replies.retain(|it| !it.ids.is_empty());
        Ok(replies)
    }
}

async fn reply(
    policy: &PolicyModel,
    question: &str,
    wishes: Option<&str>,
    seed: u64,
) -> Result<AnchorReply, BackendError> {
    let prompt = policy.render(vec![says(question)], None).await?;
    let told = match wishes {
        Some(wishes) => {
            let both = format!("{question}\n\n{wishes}");
            policy.render(vec![says(&both)], None).await?
        }
        None => prompt.clone(),
    };
    let request = DrawRequest {
        adapter: None,
        prompt: &told,
        n: 1,
        max_tokens: MOST_TOKENS,
        temperature: TEMPERATURE,
        seed,
    };
    let ids = policy.draw_one(request).await?.ids;
    let mut reply = AnchorReply {
        prompt,
        ids,
        likely: Vec::new(),
        logprobs: Vec::new(),
    };
    if reply.ids.is_empty() {
        return Ok(reply);
    }
    let pair = ScoredPair {
        prompt: &told,
        reply: &reply.ids,
    };
    for row in policy.likeliest(pair, TOP_K).await? {
        let (ids, probabilities): (Vec<u32>, Vec<f32>) = row.into_iter().unzip();
        reply.likely.push(ids);
        let logprobs = probabilities.into_iter().map(f32::ln);
        reply.logprobs.push(logprobs.collect());
    }
    Ok(reply)
}

fn says(question: &str) -> Value {
    json!({"role": "user", "content": question})
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_anchor_is_asked_twice_or_by_the_gate() {
        let questions: BTreeSet<&str> = QUESTIONS.lines().collect();
        assert_eq!(questions.len(), QUESTIONS.lines().count());
        assert!(questions.iter().all(|it| it.ends_with('?')));
        let probes = concat!(
            include_str!("../gate/probes/questions.yaml"),
            include_str!("../gate/probes/capability.yaml"),
            include_str!("others.txt")
        );
        for question in questions {
            assert!(!probes.contains(question), "{question}");
        }
    }
}
