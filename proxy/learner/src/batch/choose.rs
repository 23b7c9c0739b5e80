//! The samples that wait for a batch, when a step is due, and which of them it takes, with the advantages of their ids.

use std::{sync::Arc, time::Duration};

use metaclaw_chat::TurnId;
use metaclaw_turns::Turn;

use super::decision::{Support, VerdictUse};
use crate::{
    config::RlConfig,
    methods::{Compares, Method, TrainingSignal},
    sample::{Baselines, Batch, ExcludeReason, MAX_ADVANTAGE, Push, Sample, sampled_fairly, score},
    status::{SampleCounts, SupportCounts},
};

/// The fewest samples of an early batch, because a single sample is noise.
const MIN_EARLY: usize = 2;

/// An agent's samples, the oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples {
    pub(crate) answered: Vec<Sample>,
    pub(crate) unanswered: Vec<Arc<Turn>>,
    /// Samples whose own ids get an advantage, by their verdict or from a hinted teacher.
    pub(crate) own: Vec<Sample>,
    pub(crate) unhinted: Vec<Arc<Turn>>,
    pub(crate) support: Arc<Support>,
    pub(crate) n_support: SupportCounts,
}

// === impl Samples ===

impl Samples {
    pub(crate) fn counts(&self) -> SampleCounts {
        SampleCounts {
            redo: self.answered.len(),
            unanswered: self.unanswered.len(),
            binary_rl: self.own.len(),
            support: self.n_support,
        }
    }

    /// Returns whether a step is due: one method has a full batch, or the samples have waited long enough.
    pub(crate) fn are_due(&self, config: &RlConfig, now_ms: u64) -> bool {
        let redo = self.answered.iter().map(|sample| &sample.turn);
        let own = self.own.iter().map(|sample| &sample.turn);
        is_due(redo, own, config, now_ms)
    }

    pub(crate) fn are_none(&self) -> bool {
        let waiting = [&self.unanswered, &self.unhinted];
        self.answered.is_empty() && self.own.is_empty() && waiting.iter().all(|t| t.is_empty())
    }

    /// Returns whether a step would be due if the teacher answered every turn, and every prompt with a hint could be
    /// rendered.
    pub(crate) fn may_be_due(&self, config: &RlConfig, now_ms: u64) -> bool {
        let redo = self.answered.iter().map(|sample| &sample.turn);
        let redo = redo.chain(&self.unanswered);
        let own = self.own.iter().map(|sample| &sample.turn);
        is_due(redo, own.chain(&self.unhinted), config, now_ms)
    }
}

fn is_due<'a>(
    redo: impl Iterator<Item = &'a Arc<Turn>> + Clone,
    own: impl Iterator<Item = &'a Arc<Turn>> + Clone,
    config: &RlConfig,
    now_ms: u64,
) -> bool {
    let (n_redo, n_rl) = (redo.clone().count(), own.clone().count());
    let ended = redo.chain(own).map(|turn| turn.meta.ended_ms);
    let oldest = ended.min();
    let oldest = oldest.map(|ms| Duration::from_millis(now_ms.abs_diff(ms)));
    n_redo >= config.batch_size
        || n_rl >= config.batch_size
        || (n_redo + n_rl >= MIN_EARLY && oldest.is_some_and(|age| age >= config.max_wait.0))
}

/// The largest number of samples of each method in a step that the owner asked for, because a larger batch would change
/// the learning rate.
pub(crate) const MOST_AT_ONCE: usize = 64;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Choosing<'a> {
    pub(crate) config: &'a RlConfig,
    pub(crate) baselines: Baselines,
    /// Whether an external teacher adds advantages where the verdict gives none.
    pub(crate) external_teacher: bool,
    pub(crate) limit: usize,
}

/// Takes the first samples of each method, and the samples of `again` in addition to those that the teacher answered. A
/// sample that is answered for the first time also has a verdict, which counts once.
pub(crate) fn choose(samples: &Samples, again: Vec<Sample>, choosing: Choosing<'_>) -> Batch {
    let limit = choosing.limit;
    let method = choosing
        .config
        .method
        .learning_from(TrainingSignal::Verdict);
    let compares = method.map_or(Compares::Nothing, Method::compares);
    let compares_batch = matches!(compares, Compares::Batch | Compares::Siblings);
    let mut own = window(&samples.own, compares, limit);
    let mut answered: Vec<Sample> = samples.answered.iter().take(limit).cloned().collect();
    push(&mut own, &mut answered, &samples.support, choosing);
    let (mut own, idle): (Vec<_>, Vec<_>) = own.into_iter().partition(|s| s.push.is_some());
    if !compares_batch {
        own.truncate(limit);
    }
    let is_pushed = |sample: &Sample| sample.push.is_some();
    let is_any = own.iter().chain(&answered).any(is_pushed);
    let idle = idle.into_iter().map(|sample| sample.turn);
    // The advantages of the other turns are computed relative to them.
    let (counted, spent): (Vec<Arc<Turn>>, Vec<(TurnId, ExcludeReason)>) =
        if compares_batch && is_any {
            (idle.collect(), Vec::new())
        } else {
            let spent = idle.map(|turn| (turn.id, ExcludeReason::NoAdvantage));
            (Vec::new(), spent.collect())
        };
    Batch {
        samples: own.into_iter().chain(answered).chain(again).collect(),
        counted,
        spent,
        ..Batch::default()
    }
}

/// Computes the advantages of each sample's ids, which depend on all samples.
fn push(own: &mut [Sample], answered: &mut [Sample], support: &Support, choosing: Choosing<'_>) {
    let all = own.iter().chain(answered.iter());
    let turns: Vec<&Arc<Turn>> = all.map(|sample| &sample.turn).collect();
    let advantages = match choosing
        .config
        .method
        .learning_from(TrainingSignal::Verdict)
    {
        Some(method) => bounded(method, &turns, support, choosing.baselines),
        None => vec![0.0; turns.len()],
    };
    let all = own.iter_mut().chain(answered.iter_mut());
    for (sample, advantage) in all.zip(advantages) {
        let push = Push {
            advantage,
            ..Push::default()
        };
        let is_pushed = advantage != 0.0 || !sample.hinted.is_empty();
        sample.push =
            (is_pushed || (choosing.external_teacher && sample.may_be_scored())).then_some(push);
    }
}

/// Returns the advantage of each turn, and 0 where its verdict gives none. The verdicts of support are compared with
/// nothing either.
fn bounded(
    method: &dyn Method,
    turns: &[&Arc<Turn>],
    support: &Support,
    baselines: Baselines,
) -> Vec<f32> {
    let is_query = |turn: &&&Arc<Turn>| support.verdict_of(turn) == VerdictUse::Query;
    let query: Vec<&Arc<Turn>> = turns.iter().filter(is_query).copied().collect();
    let mut given = method.advantages(&query, baselines).into_iter();
    let bounded = turns.iter().map(|turn| {
        let own = is_query(&turn).then(|| given.next()).flatten();
        let is_pushed = method.takes(score(turn)) && sampled_fairly(turn);
        match own {
            Some(given) if is_pushed => given.clamp(-MAX_ADVANTAGE, MAX_ADVANTAGE),
            Some(_) | None => 0.0,
        }
    });
    bounded.collect()
}

/// Returns the samples to look at: if advantages depend on other turns, as many as a batch has, with all siblings.
fn window(own: &[Sample], compares: Compares, limit: usize) -> Vec<Sample> {
    let (first, rest) = match compares {
        Compares::Nothing | Compares::Baseline => return own.to_vec(),
        Compares::Batch | Compares::Siblings => own.split_at(own.len().min(limit)),
    };
    let mut window = first.to_vec();
    if compares == Compares::Siblings {
        let siblings = rest
            .iter()
            .filter(|sample| first.iter().any(|of| are_siblings(&of.turn, &sample.turn)));
        window.extend(siblings.cloned());
    }
    window
}

fn are_siblings(one: &Turn, other: &Turn) -> bool {
    match (&one.tokens, &other.tokens) {
        (Some(one), Some(other)) => one.prompt_ids == other.prompt_ids,
        (None, _) | (_, None) => false,
    }
}
