//! The tests, one after another, and what each is held against.

use std::{collections::BTreeMap, sync::Arc};

use metaclaw_trainer_api::{BackendError, RunId};
use tokio::time::Instant;

use super::{
    comparison::compare,
    known::{self, Asked, Capability},
    probes::Probes,
    reference::{self, Prompts, Replies},
    report::{Bound, GateReport, GateTest},
};
use crate::{
    config::GateConfig,
    policy::{By, Policy},
};

/// Capability probes that may be lost.
const MAX_LOST: usize = 2;
/// Of the base's mean margin. A manner of answering weighs on right and wrong answers alike; a little of it shows all the same.
const MIN_MARGIN: f64 = 0.9;
/// Wish lists whose references are kept.
const MAX_LISTS: usize = 16;

/// Who is tested, and what its replies are to be like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate<'a> {
    /// As it is drawn from.
    pub(crate) adapter: &'a str,
    /// That stands at its checkpoint.
    pub(crate) run: &'a RunId,
    /// The fingerprint of the base model, where the server tells.
    pub(crate) base: Option<&'a str>,
    /// What its agent's owner wishes.
    pub(crate) wishes: &'a [String],
    /// Optimiser steps behind it: they say which questions are asked.
    pub(crate) steps: u64,
}

/// Tests adapters. What it knows of the base model is asked once.
#[derive(Debug)]
pub(crate) struct Gate {
    policy: Arc<Policy>,
    config: GateConfig,
    probes: Result<Probes, String>,
    base: Base,
}

/// What is known of a base model.
#[derive(Debug, Default)]
struct Base {
    fingerprint: Option<String>,
    asked: Option<(Vec<Asked>, Capability)>,
    n_tools: Option<usize>,
    /// By wishes and set of questions.
    references: BTreeMap<(Vec<String>, usize), (Prompts, Replies)>,
}

// === impl Gate ===

impl Gate {
    pub(crate) fn new(policy: Arc<Policy>, config: GateConfig) -> Self {
        Self {
            policy,
            config,
            probes: Probes::shipped(),
            base: Base::default(),
        }
    }

    /// Whether adapters are tested at all.
    pub(crate) fn is_on(&self) -> bool {
        self.config.enabled
    }

    /// Tests an adapter. What fails often and costs little comes first; where something failed the rest is left out.
    ///
    /// # Errors
    /// The server's: then nothing is known.
    pub(crate) async fn test(
        &mut self,
        candidate: Candidate<'_>,
    ) -> Result<GateReport, BackendError> {
        let began = Instant::now();
        let probes = match &self.probes {
            Ok(probes) => probes,
            Err(why) => return Ok(GateReport::unfit(why.clone())),
        };
        if self.base.fingerprint.as_deref() != candidate.base {
            self.base = Base {
                fingerprint: candidate.base.map(str::to_owned),
                ..Base::default()
            };
        }
        let (policy, base) = (&*self.policy, &mut self.base);
        let mut report = GateReport {
            tests: base
                .replies(policy, probes, (candidate, &self.config))
                .await?,
            seconds: 0.0,
        };
        if report.passed() {
            report
                .tests
                .extend(base.capability(policy, probes, candidate).await?);
        }
        if report.passed() {
            report
                .tests
                .push(base.tools(policy, probes, candidate).await?);
        }
        if report.passed() {
            let why = "the log keeps no pairs of one prompt that were held out, and 12 are needed";
            report.tests.push(GateTest::skipped("preference", why));
        }
        report.seconds = began.elapsed().as_secs_f64();
        tracing::info!(adapter = candidate.adapter, report = ?report.tests, seconds = report.seconds, "tested");
        Ok(report)
    }
}

// === impl Base ===

impl Base {
    /// What the candidate says.
    async fn replies(
        &mut self,
        policy: &Policy,
        probes: &Probes,
        (candidate, config): (Candidate<'_>, &GateConfig),
    ) -> Result<Vec<GateTest>, BackendError> {
        let sets = u64::try_from(probes.n_sets()).unwrap_or(1).max(1);
        let set = usize::try_from(candidate.steps % sets).unwrap_or(0);
        let (_, plain) = self.reference(policy, (probes, set), &[]).await?;
        let of_wishes = self.reference(policy, (probes, set), candidate.wishes);
        let (prompts, reference) = of_wishes.await?;
        let drawn = reference::draw(policy, Some(candidate.adapter), &prompts.plain).await?;
        let own = reference::measure(policy, &prompts, &drawn).await?;
        Ok(compare(own, (reference, plain), config))
    }

    /// The base model's own replies to a set of questions, with wishes.
    async fn reference(
        &mut self,
        policy: &Policy,
        (probes, set): (&Probes, usize),
        wishes: &[String],
    ) -> Result<(Prompts, Replies), BackendError> {
        let key = (wishes.to_vec(), set);
        if let Some(known) = self.references.get(&key) {
            return Ok(known.clone());
        }
        let prompts = reference::render(policy, probes.set(set), wishes).await?;
        let replies = reference::of_base(policy, &prompts).await?;
        // Old wish lists are not asked about again; which one goes is of no matter, but the plain ones.
        if self.references.len() >= MAX_LISTS * probes.n_sets() {
            self.references.retain(|(wishes, _), _| wishes.is_empty());
        }
        self.references.insert(key, (prompts.clone(), replies));
        Ok((prompts, replies))
    }

    /// What the candidate knows.
    async fn capability(
        &mut self,
        policy: &Policy,
        probes: &Probes,
        candidate: Candidate<'_>,
    ) -> Result<[GateTest; 2], BackendError> {
        let (asked, base) = if let Some(known) = self.asked.take() {
            known
        } else {
            let asked = known::render(policy, probes).await?;
            let base = known::capability(policy, By::Base, &asked).await?;
            (asked, base)
        };
        let own = known::capability(policy, By::Run(candidate.run), &asked).await;
        self.asked = Some((asked, base));
        let own = own?;
        let n = probes.capability.len();
        let least = base.n_right.saturating_sub(MAX_LOST);
        let right = (own.n_right as f64, (Bound::AtLeast, least as f64));
        let unit = format!("of {n} probes right");
        let least = base.margin - (1.0 - MIN_MARGIN) * base.margin.abs();
        let margin = (own.margin, (Bound::AtLeast, least));
        Ok([
            GateTest::of("capability", right.0, right.1, &unit),
            GateTest::of("margin", margin.0, margin.1, "nat a token"),
        ])
    }

    /// Whether agents can still work with what the candidate writes.
    async fn tools(
        &mut self,
        policy: &Policy,
        probes: &Probes,
        candidate: Candidate<'_>,
    ) -> Result<GateTest, BackendError> {
        let base = match self.n_tools {
            Some(n) => n,
            None => known::tools(policy, None, &probes.tools).await?,
        };
        self.n_tools = Some(base);
        let own = known::tools(policy, Some(candidate.adapter), &probes.tools).await?;
        let unit = format!(
            "of {} prompts answered as agents need it",
            probes.tools.len()
        );
        let limit = (Bound::AtLeast, base as f64);
        Ok(GateTest::of("tools", own as f64, limit, &unit))
    }
}
