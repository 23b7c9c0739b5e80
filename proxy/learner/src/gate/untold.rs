//! Which standing wishes an adapter that passed does without being told: their lines need not stand in prompts that it answers.
//!
//! The teacher goes on to be told all of them, so that what the weights lose again is taught again.

use futures_util::future::try_join_all;
use metaclaw_chat::Score;
use metaclaw_skills::Wish;
use metaclaw_trainer_api::BackendError;

use super::{probes::user_says, reference::TEMPERATURE};
use crate::{
    judge::Judge,
    policy::{Draw, DrawRequest, Policy},
};

/// Of sixteen replies, so many may fail: of an adapter that does a wish in 95 of 100 replies, 96 of 100 are found to.
const MAX_FAILED: usize = 2;
/// Questions asked before it is looked whether more are to be: a wish that is in no weights fails at the first ones.
const AT_ONCE: usize = 4;
/// Tokens of a reply: one that is cut was not as it would have been.
const MAX_TOKENS: u32 = 256;
/// Of the first question's draw.
const SEED: u64 = 1_000;

/// Who answers, and who says whether it is as wished.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) policy: &'a Policy,
    pub(super) judge: &'a Judge,
    pub(super) adapter: &'a str,
}

/// A wish that may be one of them.
#[derive(Debug)]
struct Candidate<'a> {
    wish: &'a Wish,
    n_failed: usize,
}

// === impl Asked ===

impl Asked<'_> {
    /// The wishes that the adapter does without being told, asked these questions, as the judge finds.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn done(
        self,
        wishes: &[Wish],
        questions: &[String],
    ) -> Result<Vec<String>, BackendError> {
        if !self.judge.tells_wishes_apart() {
            return Ok(Vec::new());
        }
        let candidate = |wish| Candidate { wish, n_failed: 0 };
        let mut left: Vec<Candidate<'_>> = wishes.iter().map(candidate).collect();
        for (seed, some) in (SEED..).step_by(AT_ONCE).zip(questions.chunks(AT_ONCE)) {
            if left.is_empty() {
                break;
            }
            let draws = (seed..).zip(some);
            let draws = draws.map(|(seed, question)| self.draw(question, seed));
            let drawn = try_join_all(draws).await?;
            for candidate in &mut left {
                for asked in some.iter().zip(&drawn) {
                    if candidate.n_failed <= MAX_FAILED {
                        let is_done = self.is_done(candidate.wish, asked).await;
                        candidate.n_failed += usize::from(!is_done);
                    }
                }
            }
            left.retain(|candidate| candidate.n_failed <= MAX_FAILED);
        }
        Ok(left.iter().map(|candidate| candidate.wish.id()).collect())
    }

    async fn draw(self, question: &str, seed: u64) -> Result<Draw, BackendError> {
        let prompt = self.policy.render(vec![user_says(question)], None).await?;
        let request = DrawRequest {
            adapter: Some(self.adapter),
            prompt: &prompt,
            n: 1,
            max_tokens: MAX_TOKENS,
            temperature: TEMPERATURE,
            seed,
        };
        let drawn = self.policy.draw(request).await?.into_iter().next();
        Ok(drawn.unwrap_or_else(Draw::nothing))
    }

    /// Whether a reply is as wished. While the judge is away it is not: the line stays.
    async fn is_done(self, wish: &Wish, (question, reply): (&String, &Draw)) -> bool {
        let answer = (question.as_str(), reply.text.as_str());
        let score = self.judge.keeps_wish(answer, &wish.text).await;
        matches!(score, Ok(Some(Score::Good)))
    }
}
