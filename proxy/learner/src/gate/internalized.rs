//! Which standing wishes an adapter that passed does without being told: their lines need not stand in prompts that it answers.
//!
//! The teacher goes on to be told all of them, so that what the weights lose again is taught again.

use futures_util::future::try_join_all;
use metaclaw_chat::{AgentId, Score};
use metaclaw_skills::Wish;
use metaclaw_trainer_api::BackendError;

use super::{probes::user_told, reference::TEMPERATURE};
use crate::{
    judge::Judge,
    policy::{DrawRequest, DrawnReply, PolicyModel},
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
pub(super) struct WishTest<'a> {
    pub(super) policy: &'a PolicyModel,
    pub(super) judge: &'a Judge,
    pub(super) agent: &'a AgentId,
    pub(super) adapter: &'a str,
}

#[derive(Debug, Clone, Copy)]
struct WishSpeaker<'a> {
    /// None is the base model.
    adapter: Option<&'a str>,
    /// The wishes in the prompt.
    told: &'a [&'a str],
}

/// What replies are judged by.
#[derive(Debug, Clone, Copy)]
struct ProbeJudgement<'a> {
    wishes: &'a [String],
    questions: &'a [String],
}

/// A wish that may be one of them.
#[derive(Debug)]
struct WishTrial<'a> {
    wish: &'a Wish,
    n_failed: usize,
}

// === impl WishTest ===

impl WishTest<'_> {
    /// The wishes that the adapter does without being told, asked these questions, as the judge finds.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn done(
        self,
        wishes: &[Wish],
        questions: &[String],
    ) -> Result<Vec<String>, BackendError> {
        if self.judge.tells_wishes_apart() {
            self.done_apart(wishes, questions).await
        } else if self.judge.judges_probes() {
            self.done_together(wishes, questions).await
        } else {
            Ok(Vec::new())
        }
    }

    /// Tests each wish separately. This needs a judge that can say which wish a reply follows.
    async fn done_apart(
        self,
        wishes: &[Wish],
        questions: &[String],
    ) -> Result<Vec<String>, BackendError> {
        let candidate = |wish| WishTrial { wish, n_failed: 0 };
        let mut left: Vec<WishTrial<'_>> = wishes.iter().map(candidate).collect();
        for (seed, some) in (SEED..).step_by(AT_ONCE).zip(questions.chunks(AT_ONCE)) {
            if left.is_empty() {
                break;
            }
            let drawn = self.draw(self.untold(), seed, some).await?;
            for candidate in &mut left {
                for (question, reply) in some.iter().zip(&drawn) {
                    if candidate.n_failed <= MAX_FAILED {
                        let is_done = self.is_done(candidate.wish, question, reply).await;
                        candidate.n_failed += usize::from(!is_done);
                    }
                }
            }
            left.retain(|candidate| candidate.n_failed <= MAX_FAILED);
        }
        Ok(left.iter().map(|candidate| candidate.wish.id()).collect())
    }

    /// Where the judge says of a reply alone whether it is good, as rules on replies and reward functions do. What it finds good
    /// keeps every wish that it looks at.
    async fn done_together(
        self,
        wishes: &[Wish],
        questions: &[String],
    ) -> Result<Vec<String>, BackendError> {
        let texts: Vec<String> = wishes.iter().map(|wish| wish.text.clone()).collect();
        let judged = ProbeJudgement {
            wishes: &texts,
            questions,
        };
        let is_not_good = |score| score != Some(Score::Good);
        let n_failed = self.count(self.untold(), judged, is_not_good, MAX_FAILED);
        if n_failed.await? > MAX_FAILED {
            return Ok(Vec::new());
        }
        let told: Vec<&str> = texts.iter().map(String::as_str).collect();
        // Where one wish alone stands it is the only one that can be missed.
        let missed = match wishes {
            [_] => 0,
            _ => self.n_bad(&told, judged, questions.len()).await?,
        };
        let mut done = Vec::new();
        for (at, wish) in wishes.iter().enumerate() {
            let mut others = told.clone();
            others.remove(at);
            // The judge looks at a wish if it misses it in what the base model says that is told all others.
            let most = missed + MAX_FAILED;
            if self.n_bad(&others, judged, most).await? > most {
                done.push(wish.id());
            }
        }
        Ok(done)
    }

    /// How many replies of the base model the judge finds bad; no more are looked at once they are over `most`. Of what it has no
    /// opinion it finds nothing bad.
    async fn n_bad(
        self,
        told: &[&str],
        judged: ProbeJudgement<'_>,
        most: usize,
    ) -> Result<usize, BackendError> {
        let base = WishSpeaker {
            adapter: None,
            told,
        };
        let is_bad = |score| score == Some(Score::Bad);
        self.count(base, judged, is_bad, most).await
    }

    /// How many replies get such a score; no more are looked at once they are over `most`.
    async fn count(
        self,
        speaker: WishSpeaker<'_>,
        judged: ProbeJudgement<'_>,
        is_such: fn(Option<Score>) -> bool,
        most: usize,
    ) -> Result<usize, BackendError> {
        let mut n = 0;
        for (seed, some) in (SEED..)
            .step_by(AT_ONCE)
            .zip(judged.questions.chunks(AT_ONCE))
        {
            let drawn = self.draw(speaker, seed, some).await?;
            for (question, reply) in some.iter().zip(&drawn) {
                let score = self
                    .judge
                    .of_probe(self.agent, question, &reply.text, judged.wishes);
                // While the judge is away it has no opinion.
                let score = score.await;
                n += usize::from(is_such(score.ok().flatten()));
            }
            if n > most {
                break;
            }
        }
        Ok(n)
    }

    fn untold(&self) -> WishSpeaker<'_> {
        WishSpeaker {
            adapter: Some(self.adapter),
            told: &[],
        }
    }

    /// One reply to each of some questions, the first one's seed given.
    async fn draw(
        self,
        speaker: WishSpeaker<'_>,
        seed: u64,
        questions: &[String],
    ) -> Result<Vec<DrawnReply>, BackendError> {
        let draws = (seed..).zip(questions);
        try_join_all(draws.map(|(seed, question)| self.draw_one(speaker, question, seed))).await
    }

    async fn draw_one(
        self,
        speaker: WishSpeaker<'_>,
        question: &str,
        seed: u64,
    ) -> Result<DrawnReply, BackendError> {
        let told = user_told(question, speaker.told);
        let prompt = self.policy.render(vec![told], None).await?;
        let request = DrawRequest {
            adapter: speaker.adapter,
            prompt: &prompt,
            n: 1,
            max_tokens: MAX_TOKENS,
            temperature: TEMPERATURE,
            seed,
        };
        self.policy.draw_one(request).await
    }

    /// Whether a reply is as wished. While the judge is away it is not: the line stays.
    async fn is_done(self, wish: &Wish, question: &str, reply: &DrawnReply) -> bool {
        let score = self
            .judge
            .keeps_wish(question, &reply.text, &wish.text)
            .await;
        matches!(score, Ok(Some(Score::Good)))
    }
}
