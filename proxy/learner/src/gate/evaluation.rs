//! The tests, one after another, and what each is held against.

use std::{path::Path, sync::Arc};

use metaclaw_skills::Wish;
use metaclaw_trainer_api::{BackendError, RunId};
use tokio::time::Instant;

use super::{
    base::Base,
    capability,
    comparison::{compare, most_surprise},
    preference::{self, PreferencePair},
    probes::Probes,
    reference,
    report::{Bound, GateReport, GateTest},
    tools, untold,
};
use crate::{
    config::GateConfig,
    judge::Judge,
    policy::{By, Policy},
};

/// Capability probes that may be lost.
const MAX_LOST: usize = 2;
/// Of the base's mean margin. A manner of answering weighs on right and wrong answers alike; a little of it shows all the same.
const MIN_MARGIN: f64 = 0.9;

/// Steps after which other questions are asked.
const STEPS_OF_A_SET: u64 = 4;

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
    /// Those of the wishes that are written down.
    pub(crate) standing: &'a [Wish],
    pub(crate) judge: &'a Judge,
    /// Replies of sessions that it has not learned from.
    pub(crate) pairs: &'a [PreferencePair],
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

/// A kind of test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Replies,
    Capability,
    Tools,
    Preference,
}

// === impl Gate ===

impl Gate {
    /// What it asks of the base model is kept in `folder`.
    pub(crate) fn new(policy: Arc<Policy>, config: GateConfig, folder: Option<&Path>) -> Self {
        Self {
            policy,
            config,
            probes: Probes::shipped(),
            base: Base::new(folder),
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
        let policy = &*self.policy;
        let base = &mut self.base;
        base.is(candidate.base, probes).await;
        let mut report = GateReport::default();
        for part in Part::ALL {
            if report.passed() {
                let begun = Instant::now();
                let asked = (policy, probes, &mut *base);
                report
                    .tests
                    .extend(part.test(asked, candidate, &self.config).await?);
                let seconds = begun.elapsed().as_secs_f64();
                tracing::debug!(adapter = candidate.adapter, ?part, seconds, "tested");
            }
        }
        if report.passed() && !candidate.standing.is_empty() {
            let asked = untold::Asked {
                policy,
                judge: candidate.judge,
                adapter: candidate.adapter,
            };
            let questions = probes.set(set_of(candidate.steps, probes));
            report.untold = asked.done(candidate.standing, questions).await?;
        }
        report.seconds = began.elapsed().as_secs_f64();
        tracing::info!(adapter = candidate.adapter, report = ?report.tests, seconds = report.seconds, "tested");
        Ok(report)
    }
}

// === impl Part ===

impl Part {
    /// What fails often comes first.
    const ALL: [Self; 4] = [
        Self::Replies,
        Self::Capability,
        Self::Tools,
        Self::Preference,
    ];

    async fn test(
        self,
        (policy, probes, base): (&Policy, &Probes, &mut Base),
        candidate: Candidate<'_>,
        config: &GateConfig,
    ) -> Result<Vec<GateTest>, BackendError> {
        match self {
            Self::Replies => replies((policy, probes, base), candidate, config).await,
            Self::Capability => capability((policy, probes, base), candidate).await,
            Self::Tools => {
                let of_base = base.tools(policy, probes).await?;
                let asked = (probes.tools.as_slice(), of_base.as_slice());
                Ok(vec![tools::test(policy, candidate.adapter, asked).await?])
            }
            Self::Preference => {
                let test =
                    preference::test(policy, (candidate.run, &mut base.margins), candidate.pairs);
                Ok(vec![test.await?])
            }
        }
    }
}

/// What the candidate says.
async fn replies(
    (policy, probes, base): (&Policy, &Probes, &mut Base),
    candidate: Candidate<'_>,
    config: &GateConfig,
) -> Result<Vec<GateTest>, BackendError> {
    let set = set_of(candidate.steps, probes);
    let asked = (probes, set);
    let plain = base.reference(policy, asked, &[]).await?;
    let reference = base.reference(policy, asked, candidate.wishes).await?;
    let prompts = base.prompts(policy, asked, candidate.wishes).await?;
    let drawn = reference::draw(policy, Some(candidate.adapter), &prompts.plain).await?;
    let enough = most_surprise(reference);
    let own = reference::measure(policy, &prompts, (&drawn, enough)).await?;
    Ok(compare(own, (reference, plain), config))
}

/// Which set of questions is asked after so many steps: they take turns, each for a few steps, since the reference of every list
/// of wishes is drawn anew for each.
fn set_of(steps: u64, probes: &Probes) -> usize {
    let sets = u64::try_from(probes.n_sets()).unwrap_or(1).max(1);
    usize::try_from(steps / STEPS_OF_A_SET % sets).unwrap_or(0)
}

/// What the candidate knows.
async fn capability(
    (policy, probes, base): (&Policy, &Probes, &mut Base),
    candidate: Candidate<'_>,
) -> Result<Vec<GateTest>, BackendError> {
    let (asked, of_base) = base.capability(policy, probes).await?;
    let own = capability::capability(policy, By::Run(candidate.run), asked).await?;
    let n = probes.capability.len();
    let least = of_base.n_right.saturating_sub(MAX_LOST);
    let right = (own.n_right as f64, (Bound::AtLeast, least as f64));
    let unit = format!("of {n} probes right");
    let least = of_base.margin - (1.0 - MIN_MARGIN) * of_base.margin.abs();
    let margin = (own.margin, (Bound::AtLeast, least));
    Ok(vec![
        GateTest::of("capability", right.0, right.1, &unit),
        GateTest::of("margin", margin.0, margin.1, "nat a token"),
    ])
}
