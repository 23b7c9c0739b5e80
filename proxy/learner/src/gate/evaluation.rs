//! The tests, one after another, and what each is held against.
//!
//! Which standing wishes an adapter that passed does without being told: their lines need not stand in prompts that it answers.
//!
//! The teacher goes on to be told all of them, so that what the weights lose again is taught again.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use futures_util::future::{join_all, try_join_all};
use metaclaw_chat::{AgentId, Score};
use metaclaw_skills::Wish;
use metaclaw_trainer_api::{BackendError, RunId};
use tokio::time::Instant;

use super::{
    base::BaseFigures,
    preference::{self, PreferencePair},
    probes::{self, ProbeSet, Probes, user_told},
    replies,
    report::{Bound, GateReport, GateTest},
    requirement::{Obedience, OnScale, RequirementLines, Scale, compare},
};
use crate::{
    config::{GateConfig, GatePart},
    judge::Judge,
    policy::{By, DrawRequest, DrawnReply, PolicyModel, ScoredPair},
};

const MAX_LOST: usize = 2;
/// Of the base's mean margin. A manner of answering weighs on right and wrong answers alike; a little of it shows all the same.
const MIN_MARGIN: f64 = 0.9;

/// Steps after which other questions are asked.
const STEPS_OF_A_SET: u64 = 4;

#[derive(Debug, Clone, Copy)]
pub(crate) struct TestSubject<'a> {
    pub(crate) agent: &'a AgentId,
    pub(crate) adapter: &'a str,
    pub(crate) run: &'a RunId,
    pub(crate) base: Option<&'a str>,
    pub(crate) wishes: &'a [String],
    pub(crate) standing: &'a [Wish],
    pub(crate) judge: &'a Judge,
    pub(crate) pairs: &'a [PreferencePair],
    /// Optimiser steps behind it: they say which questions are asked.
    pub(crate) steps: u64,
    /// Whether its weights have learned from chats. If not, what it says in chats is not what it is for.
    pub(crate) has_chats: bool,
}

#[derive(Debug)]
pub(crate) struct Gate {
    policy: Arc<PolicyModel>,
    config: GateConfig,
    base: BaseFigures,
    /// Whether the server says what the base model makes of a reply; none until that was asked.
    scores: Option<Result<(), BackendError>>,
}

// === impl TestSubject ===

impl TestSubject<'_> {
    /// The share of replies that rules or the judge find good; no number where they cannot say of each.
    async fn share_judged_good(self, questions: &[String], replies: &[DrawnReply]) -> f64 {
        let answers: Vec<(&String, &DrawnReply)> = questions.iter().zip(replies).collect();
        let mut n_good = 0;
        for some in answers.chunks(self.judge.at_once()) {
            let judged = some.iter().map(|(question, reply)| {
                self.judge
                    .of_probe(self.agent, question, &reply.text, self.wishes)
            });
            for score in join_all(judged).await {
                match score {
                    Ok(Some(score)) => n_good += usize::from(score == Score::Good),
                    // The judge is away, or has no opinion.
                    Ok(None) | Err(_) => return f64::NAN,
                }
            }
        }
        n_good as f64 / replies.len().max(1) as f64
    }
}

// === impl Gate ===

impl Gate {
    pub(crate) fn new(policy: Arc<PolicyModel>, config: GateConfig, folder: Option<&Path>) -> Self {
        Self {
            policy,
            config,
            base: BaseFigures::new(folder),
            scores: None,
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.config.enabled
    }

    /// What of the tests cannot be made at this server and may not be left out, in words; none where all is well. A
    /// server that may not be able to is asked once, and nothing is trained for it.
    ///
    /// # Errors
    /// The server's.
    pub(crate) async fn lacks(&mut self) -> Result<Option<String>, BackendError> {
        if self.policy.surely_scores() {
            return Ok(None);
        }
        if self.scores.is_none() {
            let pair = ScoredPair {
                prompt: &[0],
                reply: &[0],
            };
            let asked = self.policy.score(By::Base, &[pair], 1).await;
            self.scores = Some(match asked {
                Err(error) if error.is_not_supported() => Err(error),
                asked => asked.map(|_| ()).map(Ok)?,
            });
        }
        let Some(Err(why)) = &self.scores else {
            return Ok(None);
        };
        let accepted = &self.config.accept_without;
        let mut lacking = GatePart::SCORING.to_vec();
        lacking.retain(|part| !accepted.contains(part));
        let lacking: Vec<&str> = lacking.into_iter().map(GatePart::as_str).collect();
        Ok((!lacking.is_empty()).then(|| {
            let lacking = lacking.join(", ");
            format!(
                "the gate's tests {lacking} cannot be made ({why}), and nothing that is not tested serves: name them in gate.accept_without to have adapters serve by the tests that remain (metaclaw config gate.accept_without \"[{lacking}]\")"
            )
        }))
    }

    /// Tests an adapter. What fails often and costs little comes first; where something failed the rest is left out.
    ///
    /// # Errors
    /// The server's: then nothing is known.
    pub(crate) async fn test(
        &mut self,
        subject: TestSubject<'_>,
    ) -> Result<GateReport, BackendError> {
        let began = Instant::now();
        let probes = match Probes::shipped() {
            Ok(probes) => probes,
            Err(error) => return Ok(GateReport::unfit(error.to_string())),
        };
        self.base.is(subject.base, probes).await;
        let (adapter, asked) = (subject.adapter, ProbeSet::after(subject.steps, probes));
        let wishes = subject.standing.iter().map(Wish::id);
        let mut report = GateReport {
            wishes: Some(wishes.collect()),
            ..GateReport::default()
        };
        for part in GatePart::ALL {
            if !subject.has_chats && part.is_of_chats() {
                let why = "the weights have learned from rollouts alone";
                report.tests.push(GateTest::skipped(part.as_str(), why));
            } else if report.passed() {
                let begun = Instant::now();
                match self.part(part, subject, asked).await {
                    Err(error)
                        if error.is_not_supported()
                            && self.config.accept_without.contains(&part) =>
                    {
                        tracing::warn!(adapter, part = part.as_str(), %error, "this test is not made, as gate.accept_without allows");
                        report.tests.push(GateTest::not_made(part.as_str(), &error));
                    }
                    tests => report.tests.extend(tests?),
                }
                let seconds = begun.elapsed().as_secs_f64();
                tracing::debug!(adapter, ?part, seconds, "tested");
            }
        }
        if report.passed() && !subject.standing.is_empty() {
            let texts = subject.standing.iter().map(|wish| wish.text.clone());
            let test = WishTest {
                policy: &self.policy,
                judge: subject.judge,
                agent: subject.agent,
                adapter,
                wishes: subject.standing,
                texts: &texts.collect::<Vec<_>>(),
                questions: asked.texts(),
            };
            report.untold = test.done().await?;
        }
        if let Some(question) = asked.texts().first().filter(|_| subject.has_chats) {
            let drawn = replies::draw_pair(&self.policy, adapter, question).await;
            // Nothing is decided by it.
            let drawn = drawn.inspect_err(|error| {
                tracing::warn!(adapter, %error, "no pair of replies is kept to be shown");
            });
            report.pair = drawn.ok();
        }
        report.seconds = began.elapsed().as_secs_f64();
        tracing::info!(adapter, report = ?report.tests, seconds = report.seconds, "tested");
        Ok(report)
    }

    async fn part(
        &mut self,
        part: GatePart,
        subject: TestSubject<'_>,
        asked: ProbeSet,
    ) -> Result<Vec<GateTest>, BackendError> {
        let (policy, probes) = (&*self.policy, asked.probes);
        match part {
            GatePart::Replies => self.replies(subject, asked).await,
            GatePart::Capability => {
                let (prompts, of_base) = self.base.capability(policy, probes).await?;
                let own = probes::capability(policy, By::Run(subject.run), prompts).await?;
                let right = of_base.n_right.saturating_sub(MAX_LOST) as f64;
                let unit = format!("of {} probes right", probes.capability.len());
                let margin = of_base.margin - (1.0 - MIN_MARGIN) * of_base.margin.abs();
                Ok(vec![
                    GateTest::measured(
                        "capability",
                        own.n_right as f64,
                        Bound::AtLeast,
                        right,
                        &unit,
                    ),
                    GateTest::measured("margin", own.margin, Bound::AtLeast, margin, "nat a token"),
                ])
            }
            GatePart::Tools => {
                let of_base = self.base.tools(policy, probes).await?;
                probes::test(policy, subject.adapter, &probes.tools, &of_base).await
            }
            GatePart::Preference => {
                let margins = &mut self.base.margins;
                let test = preference::test(policy, subject.run, margins, subject.pairs);
                Ok(vec![test.await?])
            }
        }
    }

    async fn replies(
        &mut self,
        subject: TestSubject<'_>,
        asked: ProbeSet,
    ) -> Result<Vec<GateTest>, BackendError> {
        let (policy, base) = (&*self.policy, &mut self.base);
        let plain = base.reference(policy, asked, &[]).await?;
        let reference = base.reference(policy, asked, subject.wishes).await?;
        let prompts = base.prompts(policy, asked, subject.wishes).await?;
        let drawn = replies::draw(policy, Some(subject.adapter), &prompts.plain).await?;
        let scored = prompts.with(&drawn);
        let lines = RequirementLines::between(plain, reference, self.config.min_relevance);
        let mut own = replies::alone(policy, &scored).await?;
        if !lines.always_pass(own) {
            replies::add_wishes(policy, &scored, &mut own).await?;
        }
        let mut kept = None;
        if lines.depend_on_obedience(own) {
            let gains = (own.gain, reference.gain);
            kept = Some(self.obedience(subject, asked, &drawn, gains).await?);
        }
        Ok(compare(own, reference, plain, lines, kept.as_ref()))
    }

    /// How much of the wishes the adapter keeps: as rules or the judge find, where they tell the reference from the plain base
    /// model; else by likelihood, of which `gains` are that of its replies and that of the reference's.
    async fn obedience(
        &mut self,
        subject: TestSubject<'_>,
        asked: ProbeSet,
        drawn: &[DrawnReply],
        gains: (Option<f64>, Option<f64>),
    ) -> Result<Obedience, BackendError> {
        let (policy, base) = (&*self.policy, &mut self.base);
        if subject.wishes.is_empty() {
            return Ok(Obedience::none("nothing is wished"));
        }
        if subject.judge.judges_probes() {
            let plain = base.drawn(policy, asked, &[]).await?;
            let reference = base.drawn(policy, asked, subject.wishes).await?;
            let questions = asked.texts();
            let shares = OnScale {
                plain: subject.share_judged_good(questions, &plain).await,
                reference: subject.share_judged_good(questions, &reference).await,
                own: subject.share_judged_good(questions, drawn).await,
            };
            if let Some(kept) = Scale::Judged.read(shares) {
                return Ok(kept);
            }
        }
        let plain = base.plain_gain(policy, asked, subject.wishes).await?;
        // What was not measured is no number, and tells nothing.
        let [own, plain, reference] =
            [gains.0, plain, gains.1].map(|gain| gain.unwrap_or(f64::NAN));
        let kept = Scale::Likelihood.read(OnScale {
            own,
            plain,
            reference,
        });
        Ok(kept.unwrap_or_else(|| Obedience::none(
            "what the base model says with the wish is not to be told from what it says without",
        )))
    }
}

// === impl ProbeSet ===

impl ProbeSet {
    /// The set of questions that is asked after so many steps: they take turns, each for a few steps, since the reference of
    /// every list of wishes is drawn anew for each.
    fn after(steps: u64, probes: &'static Probes) -> Self {
        let sets = u64::try_from(probes.n_sets()).unwrap_or(1).max(1);
        let set = usize::try_from(steps / STEPS_OF_A_SET % sets).unwrap_or(0);
        Self { probes, set }
    }
}

/// Of sixteen replies, so many may fail: of an adapter that does a wish in 95 of 100 replies, 96 of 100 are found to.
const MAX_FAILED: usize = 2;
/// Questions asked before it is looked whether the others are to be: a wish that is in no weights fails at the first ones.
const FIRST: usize = 4;
/// Tokens of a reply: one that is cut was not as it would have been.
const MAX_TOKENS: u32 = 256;
const SEED: u64 = 1_000;

#[derive(Debug, Clone, Copy)]
struct WishTest<'a> {
    policy: &'a PolicyModel,
    judge: &'a Judge,
    agent: &'a AgentId,
    adapter: &'a str,
    wishes: &'a [Wish],
    texts: &'a [String],
    questions: &'a [String],
}

// === impl WishTest ===

impl WishTest<'_> {
    async fn done(self) -> Result<Vec<String>, BackendError> {
        if self.judge.tells_wishes_apart() {
            self.done_apart().await
        } else if self.judge.judges_probes() {
            self.done_together().await
        } else {
            Ok(Vec::new())
        }
    }

    /// Tests each wish separately. This needs a judge that can say which wish a reply follows.
    async fn done_apart(self) -> Result<Vec<String>, BackendError> {
        let mut left: BTreeMap<usize, usize> = (0..self.wishes.len()).map(|at| (at, 0)).collect();
        for (seed, some) in self.rounds() {
            if left.is_empty() {
                break;
            }
            let drawn = self.draw(Some(self.adapter), &[], seed, some).await?;
            for (at, n_failed) in &mut left {
                for (question, reply) in some.iter().zip(&drawn) {
                    if *n_failed <= MAX_FAILED {
                        let is_done = self.is_done(&self.texts[*at], question, reply).await;
                        *n_failed += usize::from(!is_done);
                    }
                }
            }
            left.retain(|_, n_failed| *n_failed <= MAX_FAILED);
        }
        Ok(left.into_keys().map(|at| self.wishes[at].id()).collect())
    }

    /// Where the judge says of a reply alone whether it is good, as rules on replies and reward functions do. What it finds good
    /// keeps every wish that it looks at.
    async fn done_together(self) -> Result<Vec<String>, BackendError> {
        let is_not_good = |score| score != Some(Score::Good);
        let n_failed = self.count(Some(self.adapter), &[], is_not_good, MAX_FAILED);
        if n_failed.await? > MAX_FAILED {
            return Ok(Vec::new());
        }
        let is_bad = |score| score == Some(Score::Bad);
        let told: Vec<&str> = self.texts.iter().map(String::as_str).collect();
        // Where one wish alone stands it is the only one that can be missed.
        let missed = match self.wishes {
            [_] => 0,
            _ => {
                self.count(None, &told, is_bad, self.questions.len())
                    .await?
            }
        };
        let mut done = Vec::new();
        for (at, wish) in self.wishes.iter().enumerate() {
            let mut others = told.clone();
            others.remove(at);
            // The judge looks at a wish if it misses it in what the base model says that is told all others.
            let most = missed + MAX_FAILED;
            if self.count(None, &others, is_bad, most).await? > most {
                done.push(wish.id());
            }
        }
        Ok(done)
    }

    /// How many replies get such a score, of an adapter (none is the base model) that is told these wishes; no more are looked
    /// at once they are over `most`. While the judge is away it has no opinion.
    async fn count(
        self,
        adapter: Option<&str>,
        told: &[&str],
        is_such: fn(Option<Score>) -> bool,
        most: usize,
    ) -> Result<usize, BackendError> {
        let mut n = 0;
        for (seed, some) in self.rounds() {
            let drawn = self.draw(adapter, told, seed, some).await?;
            for (question, reply) in some.iter().zip(&drawn) {
                let judged = self
                    .judge
                    .of_probe(self.agent, question, &reply.text, self.texts);
                n += usize::from(is_such(judged.await.ok().flatten()));
            }
            if n > most {
                break;
            }
        }
        Ok(n)
    }

    fn rounds<'q>(self) -> impl Iterator<Item = (u64, &'q [String])>
    where
        Self: 'q,
    {
        let (first, rest) = self.questions.split_at(FIRST.min(self.questions.len()));
        (SEED..).step_by(FIRST).zip([first, rest])
    }

    async fn draw(
        self,
        adapter: Option<&str>,
        told: &[&str],
        seed: u64,
        questions: &[String],
    ) -> Result<Vec<DrawnReply>, BackendError> {
        let draws = (seed..).zip(questions).map(async |(seed, question)| {
            let message = user_told(question, told);
            let prompt = self.policy.render(vec![message], None).await?;
            let request = DrawRequest {
                seed,
                ..DrawRequest::new(adapter, &prompt, MAX_TOKENS)
            };
            self.policy.draw_one(request).await
        });
        try_join_all(draws).await
    }

    /// Whether a reply is as wished. While the judge is away it is not: the line stays.
    async fn is_done(self, wish: &str, question: &str, reply: &DrawnReply) -> bool {
        let judged = self.judge.keeps_wish(question, &reply.text, wish);
        matches!(judged.await, Ok(Some(Score::Good)))
    }
}
